//! What the kernel refuses to a job whose network is enforced, and what it does not.

use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    sync::LazyLock,
};

use crate::row::{List, Row, incomplete};

/// Where somebody outside the job listens, for streams and datagrams.
const OUTSIDE: &str = "127.77.0.2:5432";

/// Once for all rows, which run at the same time.
static LISTENERS: LazyLock<(TcpListener, UdpSocket)> = LazyLock::new(|| {
    (
        TcpListener::bind(OUTSIDE).unwrap(),
        UdpSocket::bind(OUTSIDE).unwrap(),
    )
});

fn outside() -> SocketAddr {
    LISTENERS.0.local_addr().unwrap()
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = refusals();
    rows.extend([
        Row::program("what_is_allowed_is_not_refused", "refused not")
            .outside(|_| outside())
            .enforced("127.77.0.0/16:5000-6000")
            .net(OUTSIDE),
        Row::program("nobody_refuses_as_ever", "tcp refused")
            .enforced("")
            .net("127.0.0.1:9")
            .code(120),
        Row::program("a_server_of_the_enforced_job_is_reached", "serve").enforced(""),
        Row::program("so_is_its_datagram_socket", "udp own").enforced(""),
        Row::program("asking_for_a_route_is_not_refused", "udp portless")
            .enforced("")
            .evidence(List::Probes, "127.0.0.1:0"),
        Row::program("raw_packets_are_allowed_by_protocol", "families raw")
            .enforced("raw:127.0.0.0/8/253")
            .net("raw:127.0.0.1/253"),
        Row::program("an_idle_raw_socket_is_not_refused", "families raw-idle")
            .enforced("")
            .net("raw:*/253")
            .code(120),
        Row::sh(
            "another_network_namespace_is_enforced_too",
            "unshare -n {bin}/refused elsewhere",
        )
        .execs("{bin}/refused")
        .enforced("")
        .refused("192.0.2.1:9"),
    ]);
    rows
}

fn refusals() -> Vec<Row> {
    let one = |name, how: &str, entry: &str| {
        Row::program(name, &format!("refused {how}"))
            .outside(|_| outside())
            .enforced("127.77.0.2:5433 127.77.0.1:5432")
            .refused(entry)
    };
    let mut rows = vec![
        one("a_connection_is_refused", "connect", OUTSIDE),
        one("an_ipv4_mapped_connection_is_refused", "mapped", OUTSIDE),
        one("a_multipath_connection_is_refused", "multipath", OUTSIDE),
        one("data_in_the_first_packet_is_refused", "fastopen", OUTSIDE),
        one(
            "an_address_elsewhere_is_refused",
            "elsewhere",
            "192.0.2.1:9",
        ),
        one("a_datagram_socket_is_not_connected", "connected", OUTSIDE),
        one("a_datagram_by_sendto_is_refused", "sendto", OUTSIDE),
        one("a_datagram_of_udp_lite_is_refused", "lite", OUTSIDE),
        one(
            "a_datagram_to_a_mapped_address_is_refused",
            "sendto-mapped",
            OUTSIDE,
        ),
        one("a_datagram_by_sendmsg_is_refused", "sendmsg", OUTSIDE),
        one("a_datagram_by_sendmmsg_is_refused", "sendmmsg", OUTSIDE),
        one("a_raw_packet_is_refused", "raw", "raw:127.77.0.2/253"),
    ];
    for (name, operation) in [
        ("a_connection_by_a_ring_is_refused", "connect"),
        ("a_connection_by_a_polled_ring_is_refused", "connect polled"),
        ("a_datagram_by_a_ring_is_refused", "sendmsg"),
        ("a_datagram_by_a_polled_ring_is_refused", "sendmsg polled"),
    ] {
        rows.push(
            Row::program(name, &format!("uring refused-{operation}"))
                .outside(|_| outside())
                .enforced("")
                .refused(OUTSIDE)
                .tracepoint(incomplete("io_uring")),
        );
    }
    rows
}
