//! `/etc/resolv.conf` -> which resolvers a job is to ask, and in which domains it looks for a name. Pure.

use std::net::{IpAddr, Ipv4Addr};

use capgate_common::hostname::HostName;

/// Most bytes of the file that are read. What is behind them counts for nothing.
pub const MOST_BYTES: usize = 64 << 10;
/// Most resolvers, and most domains. The C libraries use the first three and six.
const MOST: usize = capgate_common::limits::RESOLVERS_PER_JOB as usize;

/// What a C library takes from the file (resolv.conf(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// Addresses of the resolvers, in the order of the file; 127.0.0.1 when it names none. Never IPv4-mapped.
    pub resolvers: Vec<IpAddr>,
    /// Domains that a name is looked for in.
    pub search: Vec<HostName>,
}

impl Default for Configured {
    /// What a file without a line means, and a missing one.
    fn default() -> Self {
        Self {
            resolvers: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            search: Vec::new(),
        }
    }
}

impl Configured {
    /// Reads the file. Lines that are not understood mean nothing, as for a C library.
    #[must_use]
    pub fn read(file: &[u8]) -> Self {
        let mut read = Self {
            resolvers: Vec::new(),
            search: Vec::new(),
        };
        let file = &file[..file.len().min(MOST_BYTES)];
        for line in file.split(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            let mut words = line.split_ascii_whitespace();
            // A keyword stands at the beginning of its line; so do the marks of a comment.
            if line.starts_with(|c: char| c.is_ascii_whitespace()) {
                continue;
            }
            match words.next() {
                Some("nameserver") if read.resolvers.len() < MOST => {
                    // The interface of a link-local address is left out: packets do not name it.
                    let address = words.next().and_then(|word| word.split('%').next());
                    let address = address.and_then(|address| address.parse::<IpAddr>().ok());
                    read.resolvers
                        .extend(address.map(|address| address.to_canonical()));
                }
                // The last line of both decides.
                Some("search") => read.search = words.filter_map(domain).take(MOST).collect(),
                Some("domain") => read.search = words.next().and_then(domain).into_iter().collect(),
                _ => {}
            }
        }
        if read.resolvers.is_empty() {
            read.resolvers = Self::default().resolvers;
        }
        read
    }
}

/// A domain, with or without a dot at its end. The root is none: a name in it is the name itself.
fn domain(word: &str) -> Option<HostName> {
    word.strip_suffix('.').unwrap_or(word).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Configured;

    fn check(file: &str, resolvers: &str, search: &str) {
        let read = Configured::read(file.as_bytes());
        let words = |list: Vec<String>| list.join(" ");
        let found: Vec<String> = read.resolvers.iter().map(ToString::to_string).collect();
        assert_eq!(words(found), resolvers, "{file}");
        let found: Vec<String> = read.search.iter().map(ToString::to_string).collect();
        assert_eq!(words(found), search, "{file}");
    }

    #[test]
    fn lines_are_read_as_a_c_library_does() {
        check(
            "nameserver 192.0.2.1\nnameserver\t2001:db8::1 \n",
            "192.0.2.1 2001:db8::1",
            "",
        );
        check(
            "nameserver fe80::1%eth0\nnameserver ::ffff:192.0.2.1",
            "fe80::1 192.0.2.1",
            "",
        );
        check(
            "# nameserver 192.0.2.1\n;nameserver 192.0.2.2\n nameserver 192.0.2.3\n",
            "127.0.0.1",
            "",
        );
        check(
            "nameserver x\nnameserver\noptions ndots:5\nnameserver 192.0.2.9 x",
            "192.0.2.9",
            "",
        );
        check(
            "search a.example B.example.\nnameserver ::1",
            "::1",
            "a.example b.example",
        );
        check(
            "search a.example\ndomain b.example c.example\n",
            "127.0.0.1",
            "b.example",
        );
        check("search .\n", "127.0.0.1", "");
        check("", "127.0.0.1", "");
    }

    #[test]
    fn no_more_than_a_few_resolvers_are_taken() {
        let lines: String = (1..100)
            .map(|n| format!("nameserver 192.0.2.{n}\n"))
            .collect();
        assert_eq!(
            Configured::read(lines.as_bytes()).resolvers.len(),
            super::MOST
        );
    }
}
