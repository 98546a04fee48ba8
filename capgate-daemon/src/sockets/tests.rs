use std::net::{IpAddr, Ipv6Addr};

use crate::{
    event::{Event, Fact, Inet, InetOp, KernelPath, Socket, SocketOp, Unix},
    story::{Machine, NETNS, Teller, entries, kernel_path, lost, named, record, tell, view, words},
};

/// Tells a story. Expects the column `net`, and what of it is the job's own, a probe, plumbing, in this order.
#[track_caller]
fn check(story: &str, machine: &str, net: &str, others: [&str; 3]) {
    let record = tell(story, Machine::new(machine));
    assert_eq!(words(&record.recording.net), net, "net of: {story}");
    let found = [
        &record.evidence.own,
        &record.evidence.probes,
        &record.evidence.ambient,
    ]
    .map(|items| entries(items));
    assert_eq!(
        found.each_ref().map(String::as_str),
        others,
        "own, probes, ambient of: {story}"
    );
    assert_eq!(lost(&record), "", "lost of: {story}");
}

#[test]
fn an_attempt_counts() {
    check("tcp 192.0.2.1:443", "", "192.0.2.1:443", ["", "", ""]);
    check(
        "tcp [2001:db8::1]:443",
        "",
        "[2001:db8::1]:443",
        ["", "", ""],
    );
    check(
        "tcp [::ffff:192.0.2.1]:443",
        "",
        "192.0.2.1:443",
        ["", "", ""],
    );
    check("send 192.0.2.1:53", "", "192.0.2.1:53", ["", "", ""]);
    check(
        "tcp 0.0.0.0:9; tcp [::]:9",
        "",
        "127.0.0.1:9 [::1]:9",
        ["", "", ""],
    );
}

#[test]
fn a_refused_udp_connect_counts_though_nothing_is_sent() {
    check("denied 192.0.2.1:53", "", "192.0.2.1:53", ["", "", ""]);
    let record = tell("denied 192.0.2.1:53", Machine::new(""));
    assert_eq!(
        record.evidence.entries[0].ops,
        ["connect", capgate_common::evidence::DENIED]
    );
}

#[test]
fn a_udp_connect_counts_when_something_is_sent() {
    check("udp 192.0.2.1:53", "", "", ["", "192.0.2.1:53", ""]);
    check("udp 192.0.2.1:0", "", "", ["", "192.0.2.1:0", ""]);
    check(
        "udp 192.0.2.1:53; egress 192.0.2.1:53 192.0.2.7:4444",
        "",
        "192.0.2.1:53",
        ["", "", ""],
    );
    check(
        "egress 192.0.2.1:53 192.0.2.7:4444",
        "",
        "192.0.2.1:53",
        ["", "", ""],
    );
}

#[test]
fn where_the_job_listens_is_its_own() {
    check(
        "listen 127.0.0.1:80; tcp 127.0.0.1:80",
        "",
        "",
        ["127.0.0.1:80", "", ""],
    );
    check(
        "tcp 127.0.0.1:80; listen 127.0.0.1:80",
        "",
        "",
        ["127.0.0.1:80", "", ""],
    );
    check(
        "listen 0.0.0.0:80; tcp 127.0.0.9:80; tcp 192.0.2.7:80",
        "",
        "",
        ["127.0.0.9:80 192.0.2.7:80", "", ""],
    );
    check(
        "listen [::]:80; tcp 127.0.0.1:80; tcp [::1]:80",
        "",
        "",
        ["127.0.0.1:80 [::1]:80", "", ""],
    );
    check(
        "listen [::1]:80; tcp [::1]:80",
        "",
        "",
        ["[::1]:80", "", ""],
    );
    check(
        "bindudp 127.0.0.1:80; send 127.0.0.1:80",
        "",
        "",
        ["127.0.0.1:80", "", ""],
    );
}

#[test]
fn where_others_listen_is_not() {
    check(
        "listen 127.0.0.1:80; tcp 127.0.0.1:81",
        "",
        "127.0.0.1:81",
        ["", "", ""],
    );
    check(
        "listen 127.0.0.1:80; tcp 127.0.0.2:80",
        "",
        "127.0.0.2:80",
        ["", "", ""],
    );
    check(
        "listen 0.0.0.0:80; tcp 192.0.2.8:80",
        "",
        "192.0.2.8:80",
        ["", "", ""],
    );
    check(
        "listen 0.0.0.0:80; tcp [::1]:80",
        "",
        "[::1]:80",
        ["", "", ""],
    );
    check(
        "listen 0.0.0.0:80; send 127.0.0.1:80",
        "",
        "127.0.0.1:80",
        ["", "", ""],
    );
    check(
        "bindudp 0.0.0.0:80; tcp 127.0.0.1:80",
        "",
        "127.0.0.1:80",
        ["", "", ""],
    );
}

#[test]
fn a_reply_to_the_jobs_own_client_is_its_own() {
    check(
        "bindudp 127.0.0.1:80; udp 127.0.0.1:80; egress 127.0.0.1:80 127.0.0.1:4444; send 127.0.0.1:4444",
        "",
        "",
        ["127.0.0.1:4444 127.0.0.1:80", "", ""],
    );
    check("send 127.0.0.1:4444", "", "127.0.0.1:4444", ["", "", ""]);
}

fn inet(op: InetOp, addr: &str, port: u16) -> Inet {
    Inet {
        op,
        netns: NETNS,
        addr: addr.parse().expect("an address"),
        port,
        scope_id: 0,
        local: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        local_port: 0,
        sock_type: 2,
        protocol: 17,
        denied: false,
    }
}

#[track_caller]
fn check_events(facts: Vec<Fact>, net: &str, probes: &str) {
    let mut teller = Teller::new();
    let events: Vec<Event> = facts.into_iter().map(|fact| teller.event(fact)).collect();
    let record = record(view(), Machine::default(), events);
    assert_eq!(words(&record.recording.net), net);
    assert_eq!(entries(&record.evidence.probes), probes);
}

#[test]
fn another_network_namespace_is_another_network() {
    let tcp = |op, netns| {
        Fact::Inet(Inet {
            netns,
            sock_type: 1,
            protocol: 6,
            ..inet(op, "127.0.0.1", 80)
        })
    };
    check_events(
        vec![tcp(InetOp::Listen, 2), tcp(InetOp::Connect, NETNS)],
        "127.0.0.1:80",
        "",
    );
    check_events(
        vec![tcp(InetOp::Listen, 2), tcp(InetOp::Connect, 2)],
        "",
        "",
    );
    let elsewhere = |op, addr| {
        Fact::Inet(Inet {
            netns: 2,
            sock_type: 1,
            protocol: 6,
            ..inet(op, addr, 80)
        })
    };
    // Its interfaces cannot be told.
    check_events(
        vec![
            elsewhere(InetOp::Listen, "0.0.0.0"),
            elsewhere(InetOp::Connect, "192.0.2.7"),
        ],
        "192.0.2.7:80",
        "",
    );
}

#[test]
fn a_link_local_address_has_its_interface() {
    let scoped = |op, scope_id| {
        Fact::Inet(Inet {
            scope_id,
            ..inet(op, "fe80::1", 53)
        })
    };
    check_events(vec![scoped(InetOp::Send, 2)], "[fe80::1%eth0]:53", "");
    check_events(vec![scoped(InetOp::Send, 9)], "[fe80::1%9]:53", "");
    check_events(
        vec![scoped(InetOp::Connect, 2), scoped(InetOp::Egress, 0)],
        "[fe80::1%eth0]:53",
        "",
    );
    check_events(vec![scoped(InetOp::Connect, 2)], "", "[fe80::1%eth0]:53");
    let global = Fact::Inet(Inet {
        scope_id: 2,
        ..inet(InetOp::Send, "2001:db8::1", 53)
    });
    check_events(vec![global], "[2001:db8::1]:53", "");
}

#[test]
fn raw_sockets_count_by_what_they_send_or_by_themselves() {
    let packet = |sock_type, protocol| {
        Fact::Inet(Inet {
            sock_type,
            protocol,
            ..inet(InetOp::Egress, "192.0.2.1", 0)
        })
    };
    let raw = |protocol| {
        Fact::Socket(Socket {
            op: SocketOp::Create,
            netns: 0,
            ret: 3,
            family: 2,
            sock_type: 3,
            protocol,
            addr: Vec::new(),
        })
    };
    check_events(vec![raw(1)], "raw:*/1", "");
    check_events(vec![raw(1), packet(3, 1)], "raw:192.0.2.1/1", "raw:*/1");
    check_events(vec![raw(255), packet(3, 6)], "raw:192.0.2.1/6", "raw:*/255");
    check_events(vec![raw(1), packet(3, 6)], "raw:*/1 raw:192.0.2.1/6", "");
    // ping without privileges: a datagram socket.
    check_events(vec![packet(2, 1)], "raw:192.0.2.1/1", "");
    let ping = Fact::Inet(Inet {
        protocol: 1,
        ..inet(InetOp::Connect, "192.0.2.1", 0)
    });
    check_events(vec![ping], "", "raw:192.0.2.1/1");
}

#[test]
fn other_families() {
    let socket = |op, family, addr: &[u8]| {
        Fact::Socket(Socket {
            op,
            netns: NETNS,
            ret: 0,
            family,
            sock_type: 3,
            protocol: 0,
            addr: addr.to_vec(),
        })
    };
    let mut ll = [0u8; 20];
    ll[4..8].copy_from_slice(&2u32.to_ne_bytes());
    check_events(vec![socket(SocketOp::Create, 17, &[])], "packet:*", "");
    check_events(
        vec![
            socket(SocketOp::Create, 17, &[]),
            socket(SocketOp::Bind, 17, &ll),
        ],
        "packet:eth0",
        "packet:*",
    );
    let mut vm = [0u8; 16];
    vm[4..8].copy_from_slice(&1024u32.to_ne_bytes());
    vm[8..12].copy_from_slice(&2u32.to_ne_bytes());
    check_events(
        vec![
            socket(SocketOp::Create, 40, &[]),
            socket(SocketOp::Connect, 40, &vm),
        ],
        "vsock:2:1024",
        "",
    );
    check_events(vec![socket(SocketOp::Create, 16, &[])], "", "");
    let record = tell("socket 29 3 1", Machine::default());
    assert_eq!(words(&record.recording.coverage.unseen), "socket_family");
}

#[test]
fn unix_sockets_count_by_path_or_abstract_name() {
    check("unix /run/x", "/run/x", "unix:/run/x", ["", "", ""]);
    check("unix s", "s", "unix:./s", ["", "", ""]);
    check(
        "unix l/s",
        "l->/run/q /run/q/s",
        "unix:/run/q/s",
        ["", "", ""],
    );
    check("unix l", "l->/run/x /run/x", "unix:/run/x", ["", "", ""]);
    check("unix @x", "", "unix:@x", ["", "", ""]);
    check("unix /run/x -111", "/run/x", "unix:/run/x", ["", "", ""]);
    check("unixsend /run/x", "/run/x", "unix:/run/x", ["", "", ""]);
    check("unix /run/x -2", "", "", ["", "unix:/run/x", ""]);
    // Gone since.
    check("unix /run/x -111", "", "unix:/run/x", ["", "", ""]);
}

#[test]
fn a_unix_socket_that_the_job_bound_is_its_own() {
    check("bind s; unix s", "s", "", ["unix:./s", "", ""]);
    check("unix s -111; bind s", "s", "", ["unix:./s", "", ""]);
    check("bind s; unlink s; unix s -2", "", "", ["unix:./s", "", ""]);
    check("bind s; rename s t; unix t", "t", "", ["unix:./t", "", ""]);
    check(
        "bind @x; unix @x; unix @y",
        "",
        "unix:@y",
        ["unix:@x", "", ""],
    );
}

#[test]
fn the_daemons_own_socket_is_plumbing_and_another_in_its_place_is_not() {
    let own = "/run/capgate/capgated.sock";
    check(
        &format!("unix {own}"),
        own,
        "",
        ["", "", "unix:/run/capgate/capgated.sock"],
    );
    check(
        &format!("unix {own}"),
        // Not there when the job began: so this is another one.
        "",
        "unix:/run/capgate/capgated.sock",
        ["", "", ""],
    );
}

#[test]
fn plumbing_is_no_entry_when_root_owns_it_or_it_is_not_there() {
    let nscd = "/run/nscd/socket";
    check(
        "unix /var/run/nscd/socket -2",
        "/var/run->/run /run/",
        "",
        ["", "", "unix:/run/nscd/socket"],
    );
    check(
        "unix /var/run/nscd/socket -2",
        "",
        "",
        ["", "", "unix:/var/run/nscd/socket"],
    );
    check(
        &format!("unix {nscd}"),
        &format!("{nscd}!"),
        "",
        ["", "", "unix:/run/nscd/socket"],
    );
    check(
        &format!("unix {nscd}"),
        nscd,
        "unix:/run/nscd/socket",
        ["", "", ""],
    );
    check(
        "unixsend /dev/log",
        "/dev/log->/run/systemd/journal/dev-log /run/systemd/journal/dev-log!",
        "",
        ["", "", "unix:/run/systemd/journal/dev-log"],
    );
}

fn unix(ret: i32, peer: Option<KernelPath>, name: &str) -> Fact {
    Fact::Unix(Unix {
        connect: true,
        ret,
        peer_pid: 0,
        peer,
        name: named(name),
        sock_type: 1,
    })
}

#[test]
fn the_kernels_own_path_of_a_peer_is_believed() {
    check_events(
        vec![unix(0, Some(kernel_path("/run/real")), "s")],
        "unix:/run/real",
        "",
    );
    let broken = KernelPath {
        broken: true,
        ..kernel_path("/run/re")
    };
    check_events(
        vec![unix(0, Some(broken), "/run/real\0junk")],
        "unix:/run/real",
        "",
    );
}

#[test]
fn a_successful_connection_to_a_delegate_is_an_escape() {
    let escapes = |story: &str| {
        words(
            &tell(story, Machine::new("/run/docker.sock! s"))
                .recording
                .escapes,
        )
    };
    assert_eq!(escapes("unix /run/docker.sock"), "delegate:docker");
    assert_eq!(escapes("unix /run/docker.sock -13"), "");
    assert_eq!(escapes("unix @/tmp/dbus-x1"), "delegate:dbus");
    assert_eq!(escapes("bind /run/docker.sock; unix /run/docker.sock"), "");
    assert_eq!(escapes("unix /run/x"), "");
}
