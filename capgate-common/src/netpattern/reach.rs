//! What a pattern permits by address, for a kernel that decides by it.

use std::{net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;

use super::{Hosts, Kind, NetPattern};
use crate::hostname::HostName;

/// Addresses that a pattern names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The network; a single address is one of full length.
    pub net: IpNet,
    /// Name of the interface that belongs to the address, escaped.
    pub zone: Option<String>,
}

/// What may be reached there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Ports, by whatever has ports.
    Ports(Addresses, RangeInclusive<u16>),
    /// Packets of an IP protocol; without addresses, anywhere.
    Raw(Option<Addresses>, u16),
}

impl NetPattern {
    /// What the pattern permits by address; `None` for one that names hosts, or sockets without an IP address.
    pub fn reach(&self) -> Option<Reach> {
        match &self.kind {
            Kind::Inet { hosts, ports } => Some(Reach::Ports(hosts.addresses(), ports.clone())),
            Kind::Raw { hosts, protocol } => {
                Some(Reach::Raw(hosts.as_ref().map(Hosts::addresses), *protocol))
            }
            _ => None,
        }
    }
}

impl NetPattern {
    /// The ports that the pattern permits at a host by its name, as [`HostName`] writes it.
    pub fn ports_at(&self, name: &HostName) -> Option<RangeInclusive<u16>> {
        match &self.kind {
            Kind::Name { names, ports } => names.hold(name).then(|| ports.clone()),
            _ => None,
        }
    }

    /// Whether the pattern permits hosts by their names.
    pub fn names_hosts(&self) -> bool {
        matches!(self.kind, Kind::Name { .. })
    }

    /// Whether the pattern permits the resolvers that the job is configured for.
    pub fn is_resolver(&self) -> bool {
        self.kind == Kind::Resolver
    }
}

impl Hosts {
    fn addresses(&self) -> Addresses {
        match self {
            Self::One(host) => Addresses {
                net: IpNet::from(host.address()),
                zone: host.zone().map(str::to_owned),
            },
            Self::Net(net) => Addresses {
                net: *net,
                zone: None,
            },
        }
    }
}

/// Whether an address has a meaning only on one link, so that its interface belongs to it.
pub fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local()
        || matches!(addr.octets(), [0xff, second, ..] if second & 0xf == 2))
}
