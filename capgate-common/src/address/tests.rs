use std::net::{IpAddr, Ipv6Addr};

use super::{Host, NetEntry};
use crate::hostname::HostName;
use crate::pathform::{Form, Place};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

fn check(entry: &NetEntry, text: &str) {
    assert_eq!(entry.to_string(), text);
    assert_eq!(text.parse().as_ref(), Ok(entry), "reading {text} back");
}

#[test]
fn inet_destinations_are_host_and_port() {
    check(&NetEntry::inet(ip("192.0.2.1"), 443), "192.0.2.1:443");
    check(&NetEntry::inet(ip("2001:db8::1"), 443), "[2001:db8::1]:443");
    check(&NetEntry::inet(ip("::"), 0), "[::]:0");
    check(&NetEntry::inet(ip("::127.0.0.1"), 1), "[::7f00:1]:1");
}

#[test]
fn names_are_destinations_of_their_own() {
    let name = |text: &str| text.parse::<HostName>().expect("a name");
    let at = |text, port| NetEntry::Name {
        name: name(text),
        port,
    };
    check(&at("www.example.org", 443), "www.example.org:443");
    check(&at(r"\x72esolver", 53), r"\x72esolver:53");
    check(&at(r"192.0.2.\x31", 80), r"192.0.2.\x31:80");
    check(&NetEntry::Resolver, "resolver:53");
    check(
        &NetEntry::Lookup(name("www.example.org")),
        "dns:www.example.org",
    );
    check(&NetEntry::Lookup(name(".")), "dns:.");
    for text in [
        "WWW.example.org:443",
        "*.example.org:443",
        "dns:*.example.org",
        "self",
    ] {
        assert!(text.parse::<NetEntry>().is_err(), "{text}");
    }
}

#[test]
fn mapped_addresses_are_ipv4() {
    check(&NetEntry::inet(ip("::ffff:127.0.0.1"), 9), "127.0.0.1:9");
    let host = Host::scoped(v6("::ffff:127.0.0.1"), b"lo");
    assert_eq!(host, Host::new(ip("127.0.0.1")));
}

#[test]
fn scoped_addresses_have_their_interface() {
    let entry = |name: &[u8]| NetEntry::Inet {
        host: Host::scoped(v6("fe80::1"), name),
        port: 443,
    };
    check(&entry(b"eth0"), "[fe80::1%eth0]:443");
    check(&entry(b"7"), "[fe80::1%7]:443");
    check(&entry(b"a]%\xff"), r"[fe80::1%a]%\xff]:443");
}

#[test]
fn unix_sockets_are_paths_in_entry_form_or_abstract_names() {
    let path = |entry: &str, place| {
        NetEntry::unix_path(&Form {
            entry: entry.to_owned(),
            place,
        })
    };
    check(&path("/run/x.sock", Place::Other), "unix:/run/x.sock");
    check(&path("~/x", Place::Home), "unix:~/x");
    check(
        &path("/run/user/$UID/bus", Place::RunUser),
        "unix:/run/user/$UID/bus",
    );
    check(&path("tmp/x", Place::Root), "unix:./tmp/x");
    check(
        &NetEntry::unix_abstract(b"/tmp/.X11-unix/X0"),
        "unix:@/tmp/.X11-unix/X0",
    );
    check(&NetEntry::unix_abstract(b"a\0b\n"), r"unix:@a\x00b\x0a");
}

#[test]
fn a_file_in_the_root_cannot_imitate_an_abstract_name() {
    let file = NetEntry::unix_path(&Form {
        entry: "@name".to_owned(),
        place: Place::Root,
    });
    assert_ne!(
        file.to_string(),
        NetEntry::unix_abstract(b"name").to_string()
    );
}

#[test]
fn other_families_have_their_own_forms() {
    check(&NetEntry::Vsock { cid: 2, port: 1024 }, "vsock:2:1024");
    let raw = |host, protocol| NetEntry::Raw { host, protocol };
    check(&raw(Some(Host::new(ip("192.0.2.1"))), 1), "raw:192.0.2.1/1");
    check(
        &raw(Some(Host::new(ip("2001:db8::1"))), 58),
        "raw:[2001:db8::1]/58",
    );
    check(&raw(None, 255), "raw:*/255");
    check(&NetEntry::packet(b"eth0"), "packet:eth0");
    check(&NetEntry::packet(b"*"), r"packet:\x2a");
    check(&NetEntry::Packet { interface: None }, "packet:*");
}

#[test]
fn only_the_canonical_spelling_is_an_entry() {
    for text in [
        "",
        "192.0.2.1",
        "192.0.2.1:",
        "192.0.2.1:0443",
        "192.0.2.1:+443",
        "192.0.2.1:65536",
        "192.0.2.1:*",
        "192.0.2.1:1-2",
        "192.0.2.0/24:1",
        "192.0.2.1/32:1",
        "2001:db8::1:443",
        "[2001:DB8::1]:443",
        "[2001:db8:0::1]:443",
        "[::ffff:127.0.0.1]:9",
        "[2001:db8::1]",
        "[fe80::1%]:1",
        "[192.0.2.1]:1",
        "Www.example.org:443",
        "www.example.org",
        "unix:",
        "unix:x",
        "vsock:2",
        "vsock:2:*",
        "raw:*/*",
        "raw:192.0.2.1",
        "packet:",
        " 192.0.2.1:443",
        "192.0.2.1:443\n",
    ] {
        assert!(text.parse::<NetEntry>().is_err(), "{text:?} is no entry");
    }
}
