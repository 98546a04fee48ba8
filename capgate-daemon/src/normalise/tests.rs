use capgate_common::netpattern::reach::is_link_local;

use super::{Channel, Subject, Transport, channel, destination, is_nameless, subject};
use crate::{
    event::{Inet, InetOp, Socket, SocketOp},
    story::file,
};

fn of(op: InetOp, sock_type: u16, protocol: u16) -> Channel {
    let addr = std::net::Ipv4Addr::LOCALHOST.into();
    channel(&Inet {
        op,
        netns: 0,
        addr,
        port: 1,
        scope_id: 0,
        local: addr,
        local_port: 1,
        sock_type,
        protocol,
        denied: false,
    })
}

#[test]
fn protocols_have_ports_or_not() {
    assert_eq!(of(InetOp::Connect, 1, 6), Channel::Port(Transport::Tcp));
    assert_eq!(of(InetOp::Connect, 1, 262), Channel::Port(Transport::Tcp));
    assert_eq!(of(InetOp::Listen, 1, 0), Channel::Port(Transport::Tcp));
    assert_eq!(of(InetOp::Send, 2, 17), Channel::Port(Transport::Udp));
    assert_eq!(of(InetOp::Send, 2, 136), Channel::Port(Transport::Udp));
    assert_eq!(of(InetOp::Egress, 0, 17), Channel::Port(Transport::Udp));
    assert_eq!(
        of(InetOp::Connect, 1, 132),
        Channel::Port(Transport::Other(132))
    );
    assert_eq!(of(InetOp::Egress, 1, 132), Channel::Raw(132));
    assert_eq!(of(InetOp::Egress, 3, 17), Channel::Raw(17));
    assert_eq!(of(InetOp::Connect, 2, 1), Channel::Raw(1));
}

#[test]
fn an_address_is_taken_as_the_kernel_takes_it() {
    for (addr, expect) in [
        ("192.0.2.1", "192.0.2.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:0.0.0.0", "127.0.0.1"),
    ] {
        assert_eq!(
            destination(addr.parse().expect("an address")).to_string(),
            expect
        );
    }
    let local = |addr: &str| is_link_local(addr.parse().expect("an address"));
    assert!(local("fe80::1") && local("ff02::fb"));
    assert!(!local("2001:db8::1") && !local("ff05::2") && !local("169.254.0.1"));
}

#[test]
fn a_nameless_file_is_known_by_its_inode() {
    let mut nameless = file("/tmp/#5", 5);
    assert!(!is_nameless(&nameless), "a real name");
    nameless.path.unhashed = true;
    assert!(is_nameless(&nameless));
    nameless.id.ino = 6;
    assert!(!is_nameless(&nameless));
}

#[test]
fn addresses_that_are_cut_short_are_none() {
    let of = |family, addr: &[u8]| {
        subject(&Socket {
            op: SocketOp::Connect,
            netns: 0,
            ret: 0,
            family,
            sock_type: 3,
            protocol: 1,
            addr: addr.to_vec(),
        })
    };
    for len in 0..8 {
        assert_eq!(
            of(2, &vec![0; len]),
            Subject::Raw {
                to: None,
                protocol: 1
            }
        );
        assert_eq!(of(17, &vec![0; len]), Subject::Packet { index: None });
        assert_eq!(of(40, &vec![0; len]), Subject::Vsock { peer: None });
    }
    let mut addr = vec![0; 16];
    addr[..2].copy_from_slice(&2u16.to_ne_bytes());
    addr[4..8].copy_from_slice(&[192, 0, 2, 1]);
    let to = Some("192.0.2.1".parse().expect("an address"));
    assert_eq!(of(2, &addr), Subject::Raw { to, protocol: 1 });
    assert_eq!(of(0, &[]), Subject::Nothing);
    assert_eq!(of(30, &[]), Subject::Unknown);
}
