use super::{NetPattern, NetPatterns};
use crate::address::NetEntry;

fn patterns(texts: &[&str]) -> NetPatterns {
    let parsed: Vec<NetPattern> = texts
        .iter()
        .map(|text| text.parse().expect("a pattern"))
        .collect();
    NetPatterns::new(&parsed).expect("good globs")
}

fn permits(pattern: &str, entry: &str) -> bool {
    let entry: NetEntry = entry.parse().expect("an entry");
    !patterns(&[pattern]).matching(&entry).is_empty()
}

fn check(pattern: &str, permitted: &[&str], refused: &[&str]) {
    for entry in permitted {
        assert!(permits(pattern, entry), "{pattern} permits {entry}");
    }
    for entry in refused {
        assert!(
            !permits(pattern, entry),
            "{pattern} does not permit {entry}"
        );
    }
}

fn refuse(pattern: &str, column: usize, phrase: &str) {
    let error = pattern.parse::<NetPattern>().expect_err(pattern);
    assert_eq!(error.column, column, "column in {pattern:?}: {error}");
    assert!(error.problem.contains(phrase), "{pattern:?}: {error}");
}

#[test]
fn an_entry_is_a_pattern_for_itself_alone() {
    check(
        "127.0.0.1:5432",
        &["127.0.0.1:5432"],
        &[
            "127.0.0.1:5433",
            "127.0.0.2:5432",
            "[::1]:5432",
            "vsock:1:5432",
            "raw:127.0.0.1/6",
        ],
    );
    check(
        "[2001:db8::1]:443",
        &["[2001:db8::1]:443"],
        &["[2001:db8::2]:443"],
    );
    check(
        "vsock:2:1024",
        &["vsock:2:1024"],
        &["vsock:2:1025", "vsock:3:1024"],
    );
    check(
        "raw:192.0.2.1/1",
        &["raw:192.0.2.1/1"],
        &["raw:192.0.2.1/2", "raw:*/1"],
    );
    check(
        "packet:eth0",
        &["packet:eth0"],
        &["packet:eth1", "packet:*"],
    );
}

#[test]
fn other_spellings_of_an_address_are_the_same_pattern() {
    check("[2001:DB8:0::1]:443", &["[2001:db8::1]:443"], &[]);
    check("[::ffff:127.0.0.1]:9", &["127.0.0.1:9"], &[]);
}

#[test]
fn ports_can_be_any_or_a_range() {
    check(
        "127.0.0.1:*",
        &["127.0.0.1:0", "127.0.0.1:65535"],
        &["127.0.0.2:1"],
    );
    check(
        "127.0.0.1:32768-60999",
        &["127.0.0.1:32768", "127.0.0.1:60999"],
        &["127.0.0.1:32767", "127.0.0.1:61000"],
    );
    check("vsock:2:*", &["vsock:2:4294967295"], &["vsock:1:1"]);
    check("vsock:2:5-6", &["vsock:2:5"], &["vsock:2:7"]);
}

#[test]
fn networks_hold_their_addresses_in_any_zone() {
    check(
        "10.0.0.0/8:*",
        &["10.255.0.1:1"],
        &["11.0.0.1:1", "[2001:db8::1]:1", "raw:10.0.0.1/1"],
    );
    check(
        "[2001:db8::/32]:443",
        &["[2001:db8:1::1]:443"],
        &["[2001:db9::1]:443", "[2001:db8::1]:80"],
    );
    check("[fe80::/10]:1", &["[fe80::1]:1", "[fe80::1%eth0]:1"], &[]);
    check("0.0.0.0/0:443", &["192.0.2.1:443"], &["[2001:db8::1]:443"]);
}

#[test]
fn an_address_without_a_zone_is_not_one_with_a_zone() {
    check(
        "[fe80::1%eth0]:1",
        &["[fe80::1%eth0]:1"],
        &["[fe80::1]:1", "[fe80::1%eth1]:1"],
    );
    check("[fe80::1]:1", &["[fe80::1]:1"], &["[fe80::1%eth0]:1"]);
}

#[test]
fn unix_paths_are_globs() {
    check(
        "unix:/run/x.sock",
        &["unix:/run/x.sock"],
        &["unix:/run/x.sock2", "unix:@/run/x.sock"],
    );
    check(
        "unix:/tmp/*/s",
        &["unix:/tmp/a/s"],
        &["unix:/tmp/a/b/s", "unix:@/tmp/a/s"],
    );
    check(
        "unix:~/.cache/**",
        &["unix:~/.cache/a/b"],
        &["unix:/.cache/a"],
    );
    check(
        "unix:./tmp/*.sock",
        &["unix:./tmp/a.sock"],
        &["unix:/tmp/a.sock"],
    );
    check(
        "unix:./**/a.sock",
        &["unix:./a.sock", "unix:./x/y/a.sock"],
        &["unix:/a.sock"],
    );
    check("unix:/run/user/$UID/bus", &["unix:/run/user/$UID/bus"], &[]);
    check(
        "unix:@/tmp/.X11-unix/*",
        &["unix:@/tmp/.X11-unix/X0"],
        &["unix:/tmp/.X11-unix/X0"],
    );
    check("unix:@job-*", &["unix:@job-1"], &["unix:./job-1"]);
    check(r"unix:@a\x0a*", &[r"unix:@a\x0ab"], &["unix:@ab"]);
}

#[test]
fn raw_and_packet_sockets_can_go_anywhere() {
    check(
        "raw:*/1",
        &["raw:*/1", "raw:192.0.2.1/1", "raw:[2001:db8::1]/1"],
        &["raw:*/58"],
    );
    check(
        "raw:10.0.0.0/8/1",
        &["raw:10.1.1.1/1"],
        &["raw:11.0.0.1/1", "raw:*/1"],
    );
    check("packet:*", &["packet:*", "packet:eth0"], &["raw:*/1"]);
}

#[test]
fn names_permit_destinations_by_name_and_no_address() {
    check(
        "*.example.org:443",
        &[
            "www.example.org:443",
            "a.b.example.org:443",
            "dns:www.example.org",
        ],
        &[
            "example.org:443",
            "wwwexample.org:443",
            "www.example.org:80",
            "192.0.2.1:443",
            "dns:example.org",
        ],
    );
    check(
        "EXAMPLE.org:1-2",
        &["example.org:1", "example.org:2", "dns:example.org"],
        &["example.org:3", "a.example.org:1"],
    );
    check("node1:*", &["node1:80"], &["node2:80", "[::1]:80"]);
    check(r"a\x2eb:80", &[r"a\x2eb:80"], &["a.b:80"]);
    check(
        "dns:*.example.org",
        &["dns:www.example.org"],
        &["www.example.org:443", "dns:example.org"],
    );
    check("dns:.", &["dns:."], &["dns:org"]);
    check(
        "resolver:53",
        &["resolver:53"],
        &["127.0.0.53:53", r"\x72esolver:53"],
    );
    check("self", &[], &["127.0.0.1:80", r"\x73elf:80"]);
    assert!("self".parse::<NetPattern>().expect("a pattern").is_own());
}

#[test]
fn a_name_is_permitted_by_all_the_addresses_behind_it() {
    let patterns = ["192.0.2.0/24:443", "[2001:db8::1]:443", "*.example.org:443"];
    let patterns = patterns.map(|text| text.parse().expect("a pattern"));
    let patterns = NetPatterns::new(&patterns).expect("patterns");
    let behind = |entry: &str, addresses: &[&str]| {
        let addresses = addresses
            .iter()
            .map(|addr| addr.parse().expect("an address"));
        patterns.matching_behind(&entry.parse().expect("an entry"), &addresses.collect())
    };
    assert_eq!(
        behind("a.example.net:443", &["192.0.2.1", "192.0.2.2"]),
        [0]
    );
    assert_eq!(
        behind("a.example.net:443", &["192.0.2.1", "2001:db8::1"]),
        [0, 1]
    );
    assert_eq!(
        behind("a.example.net:443", &["192.0.2.1", "198.51.100.1"]),
        [0usize; 0]
    );
    assert_eq!(behind("a.example.net:80", &["192.0.2.1"]), [0usize; 0]);
    assert_eq!(behind("a.example.net:443", &[]), [0usize; 0]);
    assert_eq!(behind("a.example.org:443", &["192.0.2.1"]), [0, 2]);
    assert_eq!(behind("a.example.org:443", &["198.51.100.1"]), [2]);
    assert_eq!(behind("dns:a.example.net", &["192.0.2.1"]), [0usize; 0]);
}

#[test]
fn nonsense_is_refused_where_it_stands() {
    refuse("", 1, "`HOST:PORT` is expected");
    refuse("example.org", 1, "`HOST:PORT` is expected");
    refuse("[2001:db8::1]", 1, "`HOST:PORT` is expected");
    refuse(":443", 1, "`HOST:PORT` is expected");
    refuse(
        "192.0.2.1:http",
        11,
        "a port, `*` or a range `A-B` is expected (at most 65535)",
    );
    refuse("192.0.2.1:65536", 11, "at most 65535");
    refuse("192.0.2.1:080", 11, "a port");
    refuse("192.0.2.1:", 11, "a port");
    refuse("192.0.2.1:-5", 11, "a port");
    refuse("192.0.2.1:80-", 14, "a port");
    refuse("192.0.2.1:90-80", 11, "ends before it begins");
    refuse("192.0.2.256:80", 1, "an IPv4 address");
    refuse("10.0.0:80", 1, "an IPv4 address");
    refuse("2001:db8::1:443", 1, "in brackets");
    refuse("[2001:db8::1:443", 1, "not closed");
    refuse("[2001:db8::g]:443", 2, "an IPv6 address");
    refuse("[192.0.2.1]:443", 2, "an IPv6 address");
    refuse("[fe80::1%]:443", 10, "the name of an interface");
    refuse("[fe80::/10%eth0]:443", 2, "an IPv6 address");
    refuse("10.0.0.1/8:*", 1, "write `10.0.0.0/8`");
    refuse("10.0.0.0/33:*", 1, "an IPv4 address or a network");
    refuse("[::ffff:10.0.0.0/104]:*", 2, "IPv4 network");
    refuse("*:443", 1, "no host");
    refuse("a b:443", 2, "neither an address nor a host name");
    refuse("名前:443", 1, "neither an address nor a host name");
    refuse("a..b:443", 3, "neither an address nor a host name");
    refuse("a.*.b:443", 3, "the first labels of a host name only");
    refuse("resolver:54", 10, "`resolver:53` is expected");
    refuse("dns:*", 5, "no host");
    refuse("dns:a:53", 6, "neither an address nor a host name");
    refuse("dns:192.0.2.1", 5, r"written `192.0.2.\x31`");
    refuse(r"a\x62c:443", 1, "written `abc`");
    refuse("https://example.org:443", 1, "in brackets");
    refuse("unix:run/x", 6, "`unix:/PATH`");
    refuse("vsock:2", 7, "`vsock:CID:PORT`");
    refuse(
        "vsock:x:1",
        7,
        "a context id is expected (at most 4294967295)",
    );
    refuse("raw:*", 5, "`raw:ADDRESS/PROTOCOL`");
    refuse("raw:*/icmp", 7, "an IP protocol number");
    refuse("packet:", 8, "the name of an interface");
    refuse("192.0.2.1:44\n3", 13, "a control character");
}

#[test]
fn permitting_everything_is_refused() {
    refuse("0.0.0.0/0:*", 1, "permits every address and port");
    refuse("[::/0]:1-65535", 1, "permits every address and port");
    for text in ["unix:/**", "unix:@*", "unix:./**", "unix:~/**", "unix:/*"] {
        let pattern: NetPattern = text.parse().expect("well-formed");
        let others: NetPattern = "192.0.2.1:1".parse().expect("a pattern");
        let error = NetPatterns::new(&[others, pattern]).expect_err(text);
        assert_eq!(error.index, Some(1), "{text}");
        assert!(error.problem.contains("matches everything"), "{error}");
    }
}

#[test]
fn every_pattern_that_permits_an_entry_is_told() {
    let patterns = patterns(&[
        "127.0.0.1:1",
        "127.0.0.0/8:*",
        "127.0.0.2:1",
        "unix:/a/*",
        "unix:/a/b",
        "unix:@b",
    ]);
    let matching = |entry: &str| patterns.matching(&entry.parse().expect("an entry"));
    assert_eq!(matching("127.0.0.1:1"), [0, 1]);
    assert_eq!(matching("unix:/a/b"), [3, 4]);
    assert_eq!(matching("unix:@b"), [5]);
}

#[test]
fn an_entry_that_is_a_pattern_permits_itself_whatever_it_is() {
    let mut texts = vec![String::new()];
    for _ in 0..3 {
        let longer: Vec<String> = texts
            .iter()
            .flat_map(|text| "[]%:/*-1a@é.".chars().map(move |c| format!("{text}{c}")))
            .collect();
        texts.extend(longer);
    }
    let prefixes = [
        "",
        "unix:",
        "unix:/",
        "vsock:",
        "raw:",
        "packet:",
        "[fe80::1",
        "10.0.0.0/",
    ];
    let mut entries = 0;
    for text in prefixes
        .iter()
        .flat_map(|prefix| texts.iter().map(move |text| format!("{prefix}{text}")))
    {
        let (Ok(entry), Ok(pattern)) = (text.parse::<NetEntry>(), text.parse::<NetPattern>())
        else {
            continue;
        };
        entries += 1;
        assert_eq!(entry.to_string(), text);
        if !matches!(entry, NetEntry::UnixPath(_) | NetEntry::UnixAbstract(_)) {
            assert!(pattern.matches_without_glob(&entry), "{text}");
        }
    }
    assert!(entries > 100, "{entries}");
}

#[test]
fn the_narrowest_pattern_permits_its_entry() {
    for entry in [
        "192.0.2.1:443",
        "[2001:db8::1]:443",
        "[fe80::1%eth0]:443",
        "unix:/run/x.sock",
        "unix:/run/[a]*?.sock",
        "unix:~/.x/s",
        "unix:./tmp/s",
        r"unix:./odd\x0a{s}",
        "unix:@job-1",
        "unix:@*",
        "vsock:2:1024",
        "raw:192.0.2.1/1",
        "raw:*/1",
        "packet:eth0",
        "packet:*",
        "www.example.org:443",
        r"\x2a.example.org:443",
        "resolver:53",
        "dns:www.example.org",
        "dns:.",
    ] {
        let parsed: NetEntry = entry.parse().expect(entry);
        let pattern = super::permitting(entry).expect(entry);
        let patterns = NetPatterns::new(std::slice::from_ref(&pattern)).expect(entry);
        assert_eq!(patterns.matching(&parsed), [0], "{entry}");
    }
    for other in ["unix:/run/aXb.sock", "unix:/run/[b]*?.sock"] {
        let pattern = super::permitting("unix:/run/[a]*?.sock").expect("a pattern");
        let patterns = NetPatterns::new(&[pattern]).expect("patterns");
        assert!(patterns.matching(&other.parse().expect(other)).is_empty());
    }
    assert_eq!(super::permitting("dns:192.0.2.1"), None);
    assert_eq!(super::permitting("nonsense"), None);
}
