//! Destinations, tried or reached, by every way that leads there.

use std::{
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::PermissionsExt as _,
            net::{SocketAddr, UnixDatagram, UnixListener},
        },
    },
};

use crate::{
    row::{List, Row},
    site::Site,
};

/// A socket outside the job that it connects to.
fn listener(name: &'static str) -> impl Fn(&Site) -> UnixListener {
    move |site| {
        let path = site.path(name);
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        listener
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = inet();
    rows.extend(others());
    rows
}

fn inet() -> Vec<Row> {
    vec![
        Row::program("a_refused_connection_is_an_attempt", "tcp refused").net("127.0.0.1:9"),
        Row::program("a_connection_in_progress_is_an_attempt", "tcp later").net("127.0.0.1:9"),
        Row::program(
            "a_connection_without_a_route_is_an_attempt",
            "tcp unreachable",
        )
        .net("240.0.0.1:9"),
        Row::program("ipv6_is_written_in_brackets", "tcp v6").net("[::1]:9"),
        Row::program("a_mapped_address_is_ipv4", "tcp mapped").net("127.0.0.1:9"),
        Row::program("data_in_the_first_packet_is_an_attempt", "tcp fastopen").net("127.0.0.1:9"),
        Row::program("multipath_tcp_is_tcp", "tcp multipath").net("127.0.0.1:9"),
        Row::program("a_datagram_by_sendto", "udp sendto").net("127.0.0.1:9"),
        Row::program("a_datagram_by_sendmsg", "udp sendmsg").net("127.0.0.1:9"),
        Row::program("datagrams_by_sendmmsg_are_one_entry_each", "udp sendmmsg")
            .net("127.0.0.1:9 127.0.0.2:9"),
        Row::program("a_connected_socket_that_sends", "udp connected").net("127.0.0.1:9"),
        Row::program("a_connected_socket_that_is_silent_is_a_probe", "udp silent")
            .evidence(List::Probes, "127.0.0.1:9"),
        Row::program("no_port_is_no_entry", "udp portless").evidence(List::Probes, "127.0.0.1:0"),
        Row::program("udp_lite_is_udp", "udp lite").net("127.0.0.1:9"),
        Row::program("a_datagram_to_a_mapped_address_is_ipv4", "udp mapped").net("127.0.0.1:9"),
        Row::program("a_datagram_that_is_refused_is_an_attempt", "udp broadcast")
            .net("255.255.255.255:9"),
        Row::program("the_jobs_own_datagram_socket_is_no_destination", "udp own"),
        Row::sh(
            "an_attempt_in_another_network_namespace",
            "unshare -n {bin}/tcp refused",
        )
        .execs("{bin}/tcp")
        .net("127.0.0.1:9"),
        Row::program("a_raw_socket_that_sends", "families raw").net("raw:127.0.0.1/253"),
        Row::program("a_raw_socket_that_is_idle", "families raw-idle").net("raw:*/253"),
        Row::program("a_packet_socket_on_an_interface", "families packet").net("packet:lo"),
        Row::program("a_virtual_socket", "families vsock").net("vsock:2:1024"),
        Row::program("the_jobs_own_listener_is_no_destination", "serve"),
        Row::program(
            "a_listener_on_every_address_is_own_at_the_local_ones_only",
            "spaces wildcard",
        )
        .net("240.0.0.1:47001")
        .evidence(List::Own, "127.0.0.1:47001 127.99.0.1:47001"),
        Row::program("a_listener_that_is_gone_was_the_jobs_own", "spaces gone")
            .evidence(List::Own, "127.0.0.1:47002"),
        Row::program(
            "a_listener_of_another_process_of_the_job_is_own",
            "spaces child",
        )
        .evidence(List::Own, "127.0.0.1:47003"),
        Row::program("a_datagram_socket_is_no_listener", "spaces transport").net("127.0.0.1:47004"),
        Row::program(
            "a_listener_in_another_network_namespace_is_not_own",
            "spaces namespace",
        )
        .net("127.0.0.1:47005"),
        Row::program("a_server_that_was_there_before_is_one", "tcp served")
            .outside(|_| TcpListener::bind("127.77.0.1:5432").unwrap())
            .net("127.77.0.1:5432"),
    ]
}

fn others() -> Vec<Row> {
    vec![
        Row::program("a_unix_stream_by_path", "unix stream {site}/out.sock")
            .outside(listener("out.sock"))
            .net("unix:{site}/out.sock"),
        Row::program(
            "a_unix_stream_by_a_relative_path",
            "unix stream ../repo/in.sock",
        )
        .outside(listener("repo/in.sock"))
        .net("unix:./in.sock"),
        Row::program("a_unix_stream_through_a_link", "unix stream link/out.sock")
            .given("link->..")
            .outside(listener("out.sock"))
            .net("unix:{site}/out.sock"),
        Row::program(
            "an_abstract_name_may_have_any_byte",
            "unix stream @capgate-\u{1b}[2J\u{e9}",
        )
        .outside(|_| {
            let name = SocketAddr::from_abstract_name("capgate-\u{1b}[2J\u{e9}").unwrap();
            UnixListener::bind_addr(&name).unwrap()
        })
        .net("unix:@capgate-\\x1b[2J\u{e9}"),
        Row::program("a_unix_datagram_by_path", "unix datagram {site}/out.sock")
            .outside(|site| UnixDatagram::bind(site.path("out.sock")).unwrap())
            .net("unix:{site}/out.sock"),
        Row::program("a_unix_message_by_path", "unix message {site}/out.sock")
            .outside(|site| UnixDatagram::bind(site.path("out.sock")).unwrap())
            .net("unix:{site}/out.sock"),
        Row::program("a_pair_of_sockets_is_no_destination", "unix pair -"),
        Row::program("an_abstract_unix_stream", "unix stream @capgate-scenario")
            .outside(|_| {
                let name = SocketAddr::from_abstract_name("capgate-scenario").unwrap();
                UnixListener::bind_addr(&name).unwrap()
            })
            .net("unix:@capgate-scenario"),
        Row::program(
            "a_unix_socket_that_is_not_there_is_a_probe",
            "unix absent {site}/none",
        )
        .evidence(List::Probes, "unix:{site}/none"),
        Row::program(
            "the_jobs_own_unix_socket_is_a_file_and_no_destination",
            "unix own s",
        )
        .writes("s")
        .evidence(List::Own, "unix:./s"),
        Row::program(
            "the_jobs_own_abstract_socket_is_no_destination",
            "unix own @capgate-own",
        )
        .evidence(List::Own, "unix:@capgate-own"),
        Row::program(
            "a_service_that_starts_processes_is_an_escape",
            "unix stream {site}/docker.sock",
        )
        .outside(listener("docker.sock"))
        .net("unix:{site}/docker.sock")
        .escapes("delegate:docker"),
        Row::program("a_user_reaches_it_too", "unix stream {site}/docker.sock")
            .user(64_121)
            .outside(listener("docker.sock"))
            .net("unix:{site}/docker.sock")
            .escapes("delegate:docker"),
    ]
}
