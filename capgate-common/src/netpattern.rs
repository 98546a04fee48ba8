//! `allow_net`: patterns over network destinations.
//!
//! A pattern has the spelling of an entry, with freedom in some of its parts. Unix socket paths are globs, which only a
//! whole set of patterns can match cheaply; that is [`NetPatterns`].

use std::{collections::BTreeSet, fmt, net::IpAddr, ops::RangeInclusive, str::FromStr};

use ipnet::IpNet;

use crate::{
    address::{AddressError, Host, NetEntry, Piece},
    glob::{self, GlobError, GlobPatterns},
    hostname::HostName,
};

mod parse;
pub mod reach;

/// One pattern of `allow_net`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetPattern {
    text: String,
    pub(crate) kind: Kind,
}

/// The narrowest pattern that permits an entry; `None` for text that is no entry of this version.
pub fn permitting(entry: &str) -> Option<NetPattern> {
    let destination: NetEntry = entry.parse().ok()?;
    let text = match entry.strip_prefix("unix:") {
        // A socket in the root; a pattern says so, since an entry has no other beginning there.
        Some(path) if !path.starts_with(['/', '~', '@', '.']) => {
            format!("unix:./{}", glob::literal(path))
        }
        Some(path) => format!("unix:{}", globset::escape(path)),
        None => entry.to_owned(),
    };
    let pattern: NetPattern = text.parse().ok()?;
    let permits = NetPatterns::new(std::slice::from_ref(&pattern)).ok()?;
    (!permits.matching(&destination).is_empty()).then_some(pattern)
}

/// What a pattern permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// IPv4 and IPv6 destinations.
    Inet {
        hosts: Hosts,
        ports: RangeInclusive<u16>,
    },
    /// Hosts by name.
    Name {
        names: Names,
        ports: RangeInclusive<u16>,
    },
    /// The resolvers that the job is configured for.
    Resolver,
    /// Names that are asked for and not connected to.
    Lookup(Names),
    /// Where the job itself listens, which is no entry.
    Own,
    /// A glob over unix socket paths in entry form.
    UnixPath(String),
    /// A glob over abstract unix socket names, without the `@`.
    UnixAbstract(String),
    /// Virtual sockets of one context.
    Vsock {
        cid: u32,
        ports: RangeInclusive<u32>,
    },
    /// Raw sockets of one protocol; `None` for any destination, an unknown one too.
    Raw { hosts: Option<Hosts>, protocol: u16 },
    /// Packet sockets on one interface; `None` for any, an unknown one too.
    Packet(Option<String>),
}

/// Addresses that a pattern means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// Exactly this address, with exactly this zone or none.
    One(Host),
    /// Every address of the network, in any zone.
    Net(IpNet),
}

/// Host names that a pattern means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Exactly this one.
    One(HostName),
    /// Every name below this one, at any depth.
    Below(HostName),
}

impl Names {
    fn hold(&self, name: &HostName) -> bool {
        match self {
            Self::One(one) => one == name,
            Self::Below(domain) => name.without(domain).is_some(),
        }
    }
}

impl Hosts {
    fn hold(&self, host: &Host) -> bool {
        match self {
            Self::One(one) => one == host,
            Self::Net(net) => net.contains(&host.address()),
        }
    }

    fn is_every_address(&self) -> bool {
        matches!(self, Self::Net(net) if net.prefix_len() == 0)
    }
}

impl NetPattern {
    /// The pattern as its author wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it permits what is no entry, so that nothing can match it: where the job itself listens.
    pub fn is_own(&self) -> bool {
        self.kind == Kind::Own
    }

    /// The glob over the paths of unix sockets, when it is about one.
    pub(crate) fn unix_path(&self) -> Option<&str> {
        match &self.kind {
            Kind::UnixPath(path) => Some(path),
            _ => None,
        }
    }

    /// Whether it permits an entry; globs are left to [`NetPatterns`].
    fn matches_without_glob(&self, entry: &NetEntry) -> bool {
        match (&self.kind, entry) {
            (Kind::Inet { hosts, ports }, NetEntry::Inet { host, port }) => {
                ports.contains(port) && hosts.hold(host)
            }
            (Kind::Name { names, ports }, NetEntry::Name { name, port }) => {
                ports.contains(port) && names.hold(name)
            }
            // What may be connected to may be asked for.
            (Kind::Name { names, .. } | Kind::Lookup(names), NetEntry::Lookup(name)) => {
                names.hold(name)
            }
            (Kind::Resolver, NetEntry::Resolver) => true,
            (Kind::Vsock { cid, ports }, NetEntry::Vsock { cid: peer, port }) => {
                cid == peer && ports.contains(port)
            }
            (
                Kind::Raw { hosts, protocol },
                NetEntry::Raw {
                    host,
                    protocol: used,
                },
            ) => {
                protocol == used
                    && match (hosts, host) {
                        (None, _) => true,
                        (Some(hosts), Some(host)) => hosts.hold(host),
                        (Some(_), None) => false,
                    }
            }
            (Kind::Packet(pattern), NetEntry::Packet { interface }) => {
                pattern.is_none() || pattern == interface
            }
            _ => false,
        }
    }
}

impl fmt::Display for NetPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for NetPattern {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let kind = parse::pattern(Piece::whole(text))?;
        let text = text.to_owned();
        Ok(Self { text, kind })
    }
}

/// All patterns of one contract, ready to match.
#[derive(Clone, Debug)]
pub struct NetPatterns {
    patterns: Vec<NetPattern>,
    /// Globs over unix paths, and for each the index of its pattern.
    paths: (GlobPatterns, Vec<usize>),
    /// The same over abstract names.
    names: (GlobPatterns, Vec<usize>),
}

impl NetPatterns {
    /// Makes the patterns ready.
    ///
    /// # Errors
    /// When a glob is malformed or permits every socket; the number is the index of the pattern.
    pub fn new(patterns: &[NetPattern]) -> Result<Self, GlobError> {
        let compile = |select: fn(&Kind) -> Option<&str>| {
            let (globs, owners): (Vec<String>, Vec<usize>) = patterns
                .iter()
                .enumerate()
                .filter_map(|(index, pattern)| Some((select(&pattern.kind)?.to_owned(), index)))
                .unzip();
            match GlobPatterns::new(&globs) {
                Ok(compiled) => Ok((compiled, owners)),
                Err(mut error) => {
                    error.index = error.index.and_then(|index| owners.get(index).copied());
                    Err(error)
                }
            }
        };
        Ok(Self {
            patterns: patterns.to_vec(),
            paths: compile(|kind| match kind {
                // Globs are written like entries of the column `writes`, where the root's names have no anchor.
                Kind::UnixPath(path) => Some(path.strip_prefix("./").unwrap_or(path)),
                _ => None,
            })?,
            names: compile(|kind| match kind {
                Kind::UnixAbstract(name) => Some(name),
                _ => None,
            })?,
        })
    }

    /// The patterns, in the contract's order.
    pub fn patterns(&self) -> &[NetPattern] {
        &self.patterns
    }

    /// Indexes of the patterns that permit an entry by its name, or all the addresses behind it, ascending; empty when neither.
    pub fn matching_behind(&self, entry: &NetEntry, addresses: &BTreeSet<IpAddr>) -> Vec<usize> {
        let mut matching: BTreeSet<usize> = self.matching(entry).into_iter().collect();
        if let NetEntry::Name { port, .. } = entry {
            let behind = addresses
                .iter()
                .map(|addr| self.matching(&NetEntry::inet(*addr, *port)));
            let behind: Vec<Vec<usize>> = behind.collect();
            if behind.iter().all(|matching| !matching.is_empty()) {
                matching.extend(behind.into_iter().flatten());
            }
        }
        matching.into_iter().collect()
    }

    /// Indexes of the patterns that permit an entry, ascending; empty when none does.
    pub fn matching(&self, entry: &NetEntry) -> Vec<usize> {
        let by_glob = |(globs, owners): &(GlobPatterns, Vec<usize>), text: &str| {
            globs
                .matching(text)
                .into_iter()
                .filter_map(|index| owners.get(index).copied())
                .collect()
        };
        match entry {
            NetEntry::UnixPath(path) => {
                by_glob(&self.paths, path.strip_prefix("./").unwrap_or(path))
            }
            NetEntry::UnixAbstract(name) => by_glob(&self.names, name),
            _ => self
                .patterns
                .iter()
                .enumerate()
                .filter(|(_, pattern)| pattern.matches_without_glob(entry))
                .map(|(index, _)| index)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
