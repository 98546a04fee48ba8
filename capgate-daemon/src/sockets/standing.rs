//! Which destinations count, when all is known.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use capgate_common::{address::NetEntry, pathform::Form};
use hashbrown::{HashMap, HashSet};

use super::{Bound, Destination, Reached, Sockets, entry};
use crate::{
    ambient,
    dns::lookups::{self, Lookups, Source},
    look::Look,
    names::{NameId, Names},
    normalise::Transport,
    seen::{Op, Ops, Seen},
};

/// How a destination counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is in the column.
    Entry,
    /// The job itself listens there.
    Own,
    /// Nothing was sent.
    Probe,
    /// Host plumbing.
    Ambient,
}

/// A destination at the end of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concluded {
    /// The text of the entry.
    pub entry: String,
    /// How it counts.
    pub standing: Standing,
    /// How it came about.
    pub seen: Seen,
    /// The address behind an entry by name.
    pub address: Option<IpAddr>,
    /// A service behind it that starts processes for others, and to which a connection was made.
    pub delegate: Option<&'static str>,
}

impl Sockets {
    /// Says how each destination counts. `form` writes paths.
    #[must_use]
    pub fn conclude(
        mut self,
        names: &Names,
        look: &dyn Look,
        form: &dyn Fn(NameId) -> Option<Form>,
        lookups: &Lookups,
    ) -> Vec<Concluded> {
        self.join_scopes();
        let mut local: HashMap<u64, HashSet<IpAddr>> = HashMap::new();
        let mut is_own = |netns, transport, addr: IpAddr, port| {
            let addresses = local
                .entry(netns)
                .or_insert_with(|| look.addresses(netns).into_iter().collect());
            let is_local = addr.is_loopback() || addresses.contains(&addr);
            self.is_own(netns, transport, addr, port, is_local)
        };
        let mut named = HashSet::new();
        let mut concluded = Vec::with_capacity(self.reached.len());
        for reached in &self.reached {
            let Some(mut entry) = entry(reached, form) else {
                continue;
            };
            let mut address = None;
            let standing = match &reached.destination {
                &Destination::Port {
                    netns,
                    transport,
                    addr,
                    port,
                    named: number,
                    ..
                } => {
                    if is_own(netns, transport, addr, port) {
                        Standing::Own
                    } else if transport == Transport::Udp
                        && (port == 0 || !was_sent(reached.seen.ops))
                    {
                        Standing::Probe
                    } else {
                        // What the job itself answers names nothing.
                        let told = number.and_then(|number| self.names.get(number as usize));
                        let told = told.filter(|told| {
                            let Source { resolver, .. } = told.source;
                            !is_own(netns, told.source.transport(), resolver, lookups::PORT)
                        });
                        if reached.resolver {
                            entry = NetEntry::Resolver;
                        } else if let Some(told) = told {
                            entry = NetEntry::Name {
                                name: told.name.clone(),
                                port,
                            };
                            named.insert(&told.name);
                            address = Some(addr);
                        }
                        Standing::Entry
                    }
                }
                Destination::Raw { addr: Some(_), .. } if !was_sent(reached.seen.ops) => {
                    Standing::Probe
                }
                &Destination::Raw {
                    addr: None,
                    protocol,
                } if self.raw_was_sent(protocol) => Standing::Probe,
                Destination::Packet(None) if self.packet_was_bound() => Standing::Probe,
                Destination::UnixPath(name) => match reached {
                    _ if self.unix_bound.contains(name) => Standing::Own,
                    Reached {
                        exists: true,
                        plumbing: false,
                        ..
                    } => Standing::Entry,
                    Reached { exists: true, .. } => Standing::Ambient,
                    _ if ambient::is_ambient(&names.bytes(*name)) => Standing::Ambient,
                    _ => Standing::Probe,
                },
                Destination::UnixAbstract(name) if self.abstract_bound.contains(name) => {
                    Standing::Own
                }
                _ => Standing::Entry,
            };
            let delegate = match &reached.destination {
                _ if !reached.connected || standing == Standing::Own => None,
                Destination::UnixPath(name) => ambient::delegate(&names.bytes(*name)),
                Destination::UnixAbstract(name) => ambient::abstract_delegate(name),
                _ => None,
            };
            concluded.push(Concluded {
                entry: entry.to_string(),
                standing,
                seen: reached.seen,
                address,
                delegate,
            });
        }
        for (name, lookup) in lookups.all().filter(|(name, _)| !named.contains(name)) {
            let mut sources = lookup.sources.iter();
            let is_own = sources.all(|source| {
                let netns = lookups.netns();
                netns.is_some_and(|netns| {
                    is_own(netns, source.transport(), source.resolver, lookups::PORT)
                })
            });
            concluded.push(Concluded {
                entry: NetEntry::Lookup(name.clone()).to_string(),
                standing: if is_own {
                    Standing::Own
                } else if lookups.is_attempt(name) {
                    Standing::Probe
                } else {
                    Standing::Entry
                },
                seen: lookup.seen,
                address: None,
                delegate: None,
            });
        }
        concluded
    }

    /// Whether the job itself is bound where a destination is.
    fn is_own(
        &self,
        netns: u64,
        transport: Transport,
        addr: IpAddr,
        port: u16,
        is_local: bool,
    ) -> bool {
        let bound = |addr| {
            self.bound.contains(&Bound {
                netns,
                transport,
                addr,
                port,
            })
        };
        // A socket bound to the IPv6 wildcard takes IPv4 too, unless it asked not to, which the record does not show.
        let anywhere = bound(IpAddr::V6(Ipv6Addr::UNSPECIFIED))
            || addr.is_ipv4() && bound(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        bound(addr) || is_local && anywhere
    }

    /// A packet has no interface in its record: it joins the connect to the same address.
    fn join_scopes(&mut self) {
        let mut scoped: HashMap<Destination, usize> = HashMap::new();
        for (index, reached) in self.reached.iter().enumerate() {
            if let Destination::Port { scope: 1.., .. } = reached.destination {
                scoped
                    .entry(without_scope(&reached.destination))
                    .or_insert(index);
            }
        }
        let mut joined = HashSet::new();
        for index in 0..self.reached.len() {
            let Reached {
                destination, seen, ..
            } = &self.reached[index];
            if matches!(destination, Destination::Port { scope: 0, .. })
                && let Some(&into) = scoped.get(destination)
            {
                let seen = *seen;
                self.reached[into].seen.merge(&seen);
                joined.insert(index);
            }
        }
        let mut index = 0..;
        self.reached
            .retain(|_| index.next().is_none_or(|index| !joined.contains(&index)));
    }

    /// Whether a raw socket's creation is explained by what was sent: a protocol of 255 sends any.
    fn raw_was_sent(&self, protocol: u16) -> bool {
        const ANY: u16 = 255;
        self.reached.iter().any(|reached| {
            matches!(reached.destination, Destination::Raw { addr: Some(_), protocol: sent } if sent == protocol || protocol == ANY)
                && was_sent(reached.seen.ops)
        })
    }

    fn packet_was_bound(&self) -> bool {
        self.reached
            .iter()
            .any(|reached| matches!(reached.destination, Destination::Packet(Some(_))))
    }
}

/// Whether something was sent, or would have been if the kernel had not refused.
fn was_sent(ops: Ops) -> bool {
    [Op::Send, Op::Egress, Op::Denied]
        .into_iter()
        .any(|op| ops.has(op))
}

fn without_scope(destination: &Destination) -> Destination {
    match *destination {
        Destination::Port {
            netns,
            transport,
            addr,
            port,
            named,
            ..
        } => Destination::Port {
            netns,
            transport,
            addr,
            scope: 0,
            port,
            named,
        },
        ref other => other.clone(),
    }
}
