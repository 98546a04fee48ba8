//! Network destinations as ledger entries.
//!
//! An entry has one spelling, so that entries compare as text. `docs/ledger-format.md` is the normative description.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use crate::{
    hostname::HostName,
    netpattern::{Hosts, Kind, Names, NetPattern},
    pathform::{Form, Place, escape},
};

/// Text that is no address or pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {problem}")]
pub struct AddressError {
    /// Where in the text, counted in characters from 1.
    pub column: usize,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// A part of a text that knows where it stands, for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    text: &'a str,
    column: usize,
}

impl<'a> Piece<'a> {
    pub(crate) fn whole(text: &'a str) -> Self {
        Self { text, column: 1 }
    }

    pub(crate) fn text(self) -> &'a str {
        self.text
    }

    /// What follows the first `bytes` bytes.
    pub(crate) fn skip(self, bytes: usize) -> Self {
        let (before, text) = self.text.split_at(bytes);
        let column = self.column + before.chars().count();
        Self { text, column }
    }

    pub(crate) fn after(self, prefix: &str) -> Option<Self> {
        self.text
            .starts_with(prefix)
            .then(|| self.skip(prefix.len()))
    }

    pub(crate) fn before(self, suffix: &str) -> Option<Self> {
        let text = self.text.strip_suffix(suffix)?;
        Some(Self { text, ..self })
    }

    pub(crate) fn split_once(self, delimiter: char) -> Option<(Self, Self)> {
        self.split_at(self.text.find(delimiter)?, delimiter)
    }

    pub(crate) fn split_once_last(self, delimiter: char) -> Option<(Self, Self)> {
        self.split_at(self.text.rfind(delimiter)?, delimiter)
    }

    fn split_at(self, index: usize, delimiter: char) -> Option<(Self, Self)> {
        let text = &self.text[..index];
        Some((
            Self { text, ..self },
            self.skip(index + delimiter.len_utf8()),
        ))
    }

    pub(crate) fn error(self, problem: &str) -> AddressError {
        AddressError {
            column: self.column,
            problem: problem.to_owned(),
        }
    }
}

/// The entry, and the pattern, of the resolvers that a job is configured for.
pub(crate) const RESOLVER: &str = "resolver:53";

/// A destination: a member of the column `net`.
///
/// Its `Display` is the canonical entry; entries are sorted by the bytes of that text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NetEntry {
    /// IPv4 or IPv6, TCP and UDP alike: `192.0.2.1:443`, `[2001:db8::1]:443`, `[fe80::1%eth0]:443`.
    Inet {
        /// The destination.
        host: Host,
        /// Port.
        port: u16,
    },
    /// The same by the name that the address came from: `www.example.org:443`.
    Name {
        /// The name that was asked for.
        name: HostName,
        /// Port.
        port: u16,
    },
    /// A resolver that the job is configured for, over any transport: `resolver:53`.
    Resolver,
    /// A name that was asked for and not connected to: `dns:www.example.org`.
    Lookup(HostName),
    /// A bound unix socket by its path in entry form: `unix:/run/x`, `unix:~/x`, `unix:./x` in the root.
    UnixPath(String),
    /// A unix socket in the abstract name space, escaped, without the leading NUL: `unix:@name`.
    UnixAbstract(String),
    /// `vsock:cid:port`.
    Vsock {
        /// Context id of the peer.
        cid: u32,
        /// Port.
        port: u32,
    },
    /// A raw IP socket: `raw:192.0.2.1/1`; `raw:*/1` when only its creation is known.
    Raw {
        /// The destination, when known.
        host: Option<Host>,
        /// IP protocol number.
        protocol: u16,
    },
    /// A packet socket on an interface, its name escaped: `packet:eth0`; `packet:*` when only its creation is known.
    Packet {
        /// The interface, when known.
        interface: Option<String>,
    },
}

/// An IP address with its zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host {
    address: IpAddr,
    /// Interface name of a scoped IPv6 address, escaped.
    zone: Option<String>,
}

impl Host {
    /// An address without a zone. IPv4-mapped IPv6 becomes IPv4.
    pub fn new(address: IpAddr) -> Self {
        Self {
            address: address.to_canonical(),
            zone: None,
        }
    }

    /// An IPv6 address with the name (or number, when there is no name) of the interface that its scope id means.
    /// An IPv4-mapped address has no scope.
    pub fn scoped(address: Ipv6Addr, interface: &[u8]) -> Self {
        Self::scoped_text(address, escape(interface))
    }

    /// The same with a zone that is escaped already.
    pub(crate) fn scoped_text(address: Ipv6Addr, zone: String) -> Self {
        let host = Self::new(IpAddr::V6(address));
        let zone = host.address.is_ipv6().then_some(zone);
        Self { zone, ..host }
    }

    /// The address, never IPv4-mapped.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The name of the interface that belongs to it, escaped.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, &self.zone) {
            (IpAddr::V4(address), _) => write!(f, "{address}"),
            (IpAddr::V6(address), None) => write!(f, "[{address}]"),
            (IpAddr::V6(address), Some(zone)) => write!(f, "[{address}%{zone}]"),
        }
    }
}

impl NetEntry {
    /// An inet destination without a zone.
    pub fn inet(address: IpAddr, port: u16) -> Self {
        let host = Host::new(address);
        Self::Inet { host, port }
    }

    /// A unix socket by the form of its path.
    pub fn unix_path(path: &Form) -> Self {
        match path.place {
            // `unix:@x` is an abstract name: a file `@x` in the root must not read like it.
            Place::Root => Self::UnixPath(format!("./{}", path.entry)),
            _ => Self::UnixPath(path.entry.clone()),
        }
    }

    /// A unix socket in the abstract name space by its name after the leading NUL.
    pub fn unix_abstract(name: &[u8]) -> Self {
        Self::UnixAbstract(escape(name))
    }

    /// Whether it is a unix socket.
    pub fn is_unix(&self) -> bool {
        matches!(self, Self::UnixPath(_) | Self::UnixAbstract(_))
    }

    /// A packet socket on a named interface.
    pub fn packet(interface: &[u8]) -> Self {
        let interface = match interface {
            // An interface can be called `*`; the entry `packet:*` means an unknown one.
            b"*" => "\\x2a".to_owned(),
            name => escape(name),
        };
        Self::Packet {
            interface: Some(interface),
        }
    }
}

impl fmt::Display for NetEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet { host, port } => write!(f, "{host}:{port}"),
            Self::Name { name, port } => write!(f, "{name}:{port}"),
            Self::Resolver => f.write_str(RESOLVER),
            Self::Lookup(name) => write!(f, "dns:{name}"),
            Self::UnixPath(path) => write!(f, "unix:{path}"),
            Self::UnixAbstract(name) => write!(f, "unix:@{name}"),
            Self::Vsock { cid, port } => write!(f, "vsock:{cid}:{port}"),
            Self::Raw { host, protocol } => match host {
                Some(host) => write!(f, "raw:{host}/{protocol}"),
                None => write!(f, "raw:*/{protocol}"),
            },
            Self::Packet { interface } => {
                write!(f, "packet:{}", interface.as_deref().unwrap_or("*"))
            }
        }
    }
}

impl FromStr for NetEntry {
    type Err = AddressError;

    /// Reads a canonical entry. Another spelling of the same destination is refused, so that entries compare as text.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let whole = Piece::whole(text);
        let entry = match NetPattern::from_str(text)?.kind {
            Kind::Inet {
                hosts: Hosts::One(host),
                ports,
            } if ports.start() == ports.end() => Self::Inet {
                host,
                port: *ports.start(),
            },
            Kind::Name {
                names: Names::One(name),
                ports,
            } if ports.start() == ports.end() => Self::Name {
                name,
                port: *ports.start(),
            },
            Kind::Resolver => Self::Resolver,
            Kind::Lookup(Names::One(name)) => Self::Lookup(name),
            Kind::UnixPath(path) => Self::UnixPath(path),
            Kind::UnixAbstract(name) => Self::UnixAbstract(name),
            Kind::Vsock { cid, ports } if ports.start() == ports.end() => Self::Vsock {
                cid,
                port: *ports.start(),
            },
            Kind::Raw {
                hosts: None,
                protocol,
            } => Self::Raw {
                host: None,
                protocol,
            },
            Kind::Raw {
                hosts: Some(Hosts::One(host)),
                protocol,
            } => Self::Raw {
                host: Some(host),
                protocol,
            },
            Kind::Packet(interface) => Self::Packet { interface },
            _ => return Err(whole.error("a destination is expected, not a pattern")),
        };
        if entry.to_string() == text {
            Ok(entry)
        } else {
            Err(whole.error(&format!("the entry is written `{entry}`")))
        }
    }
}

#[cfg(test)]
mod tests;
