//! Patterns for destinations that were seen.

use std::collections::BTreeSet;

use capgate_common::{address::NetEntry, netpattern};

/// Ports that Linux gives to those who do not ask for one (`ip_local_port_range`).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;

/// What came of destinations.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Patterns that permit them.
    pub(crate) patterns: Vec<String>,
    /// Destinations that none permits.
    pub(crate) unknown: Vec<String>,
}

/// The narrowest patterns for the destinations of some runs. Ports of the ephemeral range that some runs had and others had not
/// become that range.
pub(crate) fn patterns(runs: &[&BTreeSet<String>]) -> Seen {
    let all: BTreeSet<&String> = runs.iter().copied().flatten().collect();
    let mut seen = Seen::default();
    let mut moving: BTreeSet<String> = BTreeSet::new();
    for entry in all {
        let moved = runs.iter().any(|run| !run.contains(entry));
        match entry.parse() {
            Ok(NetEntry::Inet { host, port }) if moved && EPHEMERAL.contains(&port) => {
                moving.insert(range(&NetEntry::Inet { host, port: 0 }));
            }
            Ok(NetEntry::Name { name, port }) if moved && EPHEMERAL.contains(&port) => {
                moving.insert(range(&NetEntry::Name { name, port: 0 }));
            }
            _ => match netpattern::permitting(entry) {
                Some(pattern) => seen.patterns.push(pattern.text().to_owned()),
                None => seen.unknown.push(entry.clone()),
            },
        }
    }
    seen.patterns.extend(moving);
    seen.patterns.sort();
    seen
}

/// The pattern for a destination's host and every such port; the destination has port 0.
fn range(any: &NetEntry) -> String {
    let any = any.to_string();
    let host = any.strip_suffix('0').unwrap_or(&any);
    format!("{host}{}-{}", EPHEMERAL.start(), EPHEMERAL.end())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::patterns;

    fn check(runs: &[&[&str]], expect: &[&str], unknown: &[&str]) {
        let runs: Vec<BTreeSet<String>> = runs
            .iter()
            .map(|run| run.iter().map(|&it| it.to_owned()).collect())
            .collect();
        let seen = patterns(&runs.iter().collect::<Vec<_>>());
        assert_eq!(seen.patterns, expect);
        assert_eq!(seen.unknown, unknown);
    }

    #[test]
    fn what_was_seen_is_permitted_and_moving_ports_are_a_range() {
        check(
            &[
                &["192.0.2.1:443", "[2001:db8::1]:40001", "127.0.0.1:40000"],
                &["192.0.2.1:443", "[2001:db8::1]:40002", "127.0.0.1:40000"],
            ],
            &[
                "127.0.0.1:40000",
                "192.0.2.1:443",
                "[2001:db8::1]:32768-60999",
            ],
            &[],
        );
        check(
            &[
                &["a.example:40001", "resolver:53"],
                &["a.example:40002", "resolver:53"],
            ],
            &["a.example:32768-60999", "resolver:53"],
            &[],
        );
        check(&[&["192.0.2.1:80"], &[]], &["192.0.2.1:80"], &[]);
        check(
            &[&["unix:/run/[x]", "dns:a", "tcp:a"]],
            &["dns:a", "unix:/run/[[]x[]]"],
            &["tcp:a"],
        );
    }
}
