//! The maps by which the kernel refuses what an enforced job may not reach.

use std::net::{IpAddr, SocketAddr};

use aya::{
    Ebpf, Pod,
    maps::{Array, HashMap, LpmTrie, MapData, MapError, lpm_trie::Key},
};
use capgate_common::enforce::{
    Asker, Enforced, HEAD4, HEAD6, Net4, Net6, Ports, Resolver, Space, StandIn,
};
use ipnet::IpNet;

use super::{
    error::{ProbesError, map_error},
    take,
};
use crate::{
    forwarder,
    permit::{Place, Rule},
};

/// [`Enforced`] as a map value.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct EnforcedValue(Enforced);
// SAFETY: integers without padding; every bit pattern is a value.
unsafe impl Pod for EnforcedValue {}

/// [`Net4`] as a map key.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Net4Value(Net4);
// SAFETY: integers without padding; every bit pattern is a value.
unsafe impl Pod for Net4Value {}

/// [`Net6`] as a map key.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Net6Value(Net6);
// SAFETY: integers without padding; every bit pattern is a value.
unsafe impl Pod for Net6Value {}

/// [`Ports`] as a map value.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct PortsValue(Ports);
// SAFETY: integers without padding; every bit pattern is a value.
unsafe impl Pod for PortsValue {}

/// [`Resolver`] as a map key.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct ResolverValue(Resolver);
// SAFETY: integers without padding; every bit pattern is a value.
unsafe impl Pod for ResolverValue {}

/// [`StandIn`] as a map key.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct StandInValue(StandIn);
// SAFETY: integers without padding; every bit pattern is a value.
unsafe impl Pod for StandInValue {}

/// [`Asker`] as a map key.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct AskerValue(Asker);
// SAFETY: integers without padding; every bit pattern is a value.
unsafe impl Pod for AskerValue {}

/// What is refused to which job, and which of its resolvers the daemon stands in for.
pub(super) struct Wall {
    enforced: Array<MapData, EnforcedValue>,
    rules4: LpmTrie<MapData, Net4Value, PortsValue>,
    rules6: LpmTrie<MapData, Net6Value, PortsValue>,
    /// What the maps hold: slot and place.
    known: Vec<(u16, Place)>,
    forwards: HashMap<MapData, ResolverValue, u32>,
    stand_ins: HashMap<MapData, StandInValue, [u8; 16]>,
    /// What these two hold.
    standing: Vec<(Resolver, StandIn)>,
    /// How many they are.
    count: Array<MapData, u32>,
    askers: HashMap<MapData, AskerValue, u64>,
}

/// Where a rule stands in the maps.
enum At {
    V4(Key<Net4Value>),
    V6(Key<Net6Value>),
}

impl At {
    fn new(slot: u16, place: Place) -> Self {
        let space = Space {
            slot,
            kind: place.kind,
        };
        match place.net {
            IpNet::V4(net) => Self::V4(Key::new(
                HEAD4 + u32::from(net.prefix_len()),
                Net4Value(Net4 {
                    space,
                    addr: net.addr().octets(),
                }),
            )),
            IpNet::V6(net) => Self::V6(Key::new(
                HEAD6 + u32::from(net.prefix_len()),
                Net6Value(Net6 {
                    space,
                    scope: place.scope,
                    addr: net.addr().octets(),
                }),
            )),
        }
    }
}

impl Wall {
    /// Takes the maps out of the loader's hands.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, ProbesError> {
        Ok(Self {
            enforced: take(ebpf, "ENFORCED")?,
            rules4: take(ebpf, "RULES4")?,
            rules6: take(ebpf, "RULES6")?,
            known: Vec::new(),
            forwards: take(ebpf, "FORWARDS")?,
            stand_ins: take(ebpf, "STAND_INS")?,
            standing: Vec::new(),
            count: take(ebpf, "STANDING")?,
            askers: take(ebpf, "ASKERS")?,
        })
    }

    /// From here on the job in a slot reaches what a rule permits, and nothing else. `netns` is the namespace that it begins in.
    pub(super) fn raise(
        &mut self,
        index: u32,
        netns: u64,
        rules: &[Rule],
        stand_ins: &[forwarder::StandIn],
    ) -> Result<(), ProbesError> {
        self.permit(index, rules)?;
        for stand_in in stand_ins {
            self.stand_in(index, stand_in)?;
        }
        let enforced = Enforced {
            on: 1,
            forwards: u32::from(!stand_ins.is_empty()),
            netns,
        };
        self.enforced
            .set(index, EnforcedValue(enforced), 0)
            .map_err(map_error("enforce a job's network"))
    }

    /// The job in a slot may reach more than it could.
    pub(super) fn permit(&mut self, index: u32, rules: &[Rule]) -> Result<(), ProbesError> {
        let slot = slot(index)?;
        rules.iter().try_for_each(|rule| self.write(slot, rule))
    }

    fn stand_in(&mut self, slot: u32, at: &forwarder::StandIn) -> Result<(), ProbesError> {
        const WHAT: &str = "say where the daemon stands in for a resolver";
        let addr = match at.resolver {
            IpAddr::V4(addr) => addr.to_ipv6_mapped(),
            IpAddr::V6(addr) => addr,
        };
        let resolver = Resolver {
            addr: addr.octets(),
            slot,
        };
        let stand_in = stand_in(slot, at.resolver.is_ipv6(), at.port);
        self.standing.push((resolver, stand_in));
        self.forwards
            .insert(ResolverValue(resolver), u32::from(at.port), 0)
            .map_err(map_error(WHAT))?;
        self.stand_ins
            .insert(StandInValue(stand_in), resolver.addr, 0)
            .map_err(map_error(WHAT))?;
        self.count()
    }

    fn count(&mut self) -> Result<(), ProbesError> {
        let count = u32::try_from(self.standing.len()).unwrap_or(u32::MAX);
        self.count
            .set(0, count, 0)
            .map_err(map_error("say whether the daemon stands in for a resolver"))
    }

    /// When a socket of the job in a slot last sent something to a stand-in, in nanoseconds since boot; `None` when it did not.
    pub(super) fn asked(
        &self,
        slot: u32,
        to: SocketAddr,
        from: u16,
        is_tcp: bool,
    ) -> Result<Option<u64>, ProbesError> {
        let asker = Asker {
            to: stand_in(slot, to.is_ipv6(), to.port()),
            port: from,
            is_tcp: u16::from(is_tcp),
        };
        match self.askers.get(&AskerValue(asker), 0) {
            Ok(when) => Ok(Some(when)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(map_error("tell who asked for a name")(error)),
        }
    }

    fn write(&mut self, slot: u16, rule: &Rule) -> Result<(), ProbesError> {
        let ports = PortsValue(rule.ports);
        let written = match At::new(slot, rule.place) {
            At::V4(key) => self.rules4.insert(&key, ports, 0),
            At::V6(key) => self.rules6.insert(&key, ports, 0),
        };
        written.map_err(map_error("write what a job may reach"))?;
        self.known.push((slot, rule.place));
        Ok(())
    }

    /// Forgets everything about the job in a slot.
    pub(super) fn fell(&mut self, index: u32) -> Result<(), ProbesError> {
        self.enforced
            .set(index, EnforcedValue(Enforced::default()), 0)
            .map_err(map_error("end the enforcement of a job's network"))?;
        let (gone, kept) = std::mem::take(&mut self.standing)
            .into_iter()
            .partition(|(resolver, _)| resolver.slot == index);
        self.standing = kept;
        let gone: Vec<(Resolver, StandIn)> = gone;
        for (resolver, stand_in) in gone {
            forgotten(self.forwards.remove(&ResolverValue(resolver)))?;
            forgotten(self.stand_ins.remove(&StandInValue(stand_in)))?;
        }
        self.count()?;
        let own = slot(index)?;
        let (gone, kept) = std::mem::take(&mut self.known)
            .into_iter()
            .partition(|&(slot, _)| slot == own);
        self.known = kept;
        let gone: Vec<(u16, Place)> = gone;
        for (slot, place) in gone {
            let removed = match At::new(slot, place) {
                At::V4(key) => self.rules4.remove(&key),
                At::V6(key) => self.rules6.remove(&key),
            };
            forgotten(removed)?;
        }
        Ok(())
    }

    /// How many rules there are, of all jobs.
    pub(super) fn len(&self) -> usize {
        self.rules4.keys().count() + self.rules6.keys().count() + self.forwards.keys().count()
    }
}

fn stand_in(slot: u32, is_v6: bool, port: u16) -> StandIn {
    StandIn {
        slot,
        port,
        is_v6: u16::from(is_v6),
    }
}

/// What was to be removed is gone, now or before.
fn forgotten(removed: Result<(), MapError>) -> Result<(), ProbesError> {
    match removed {
        Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
        Err(error) => Err(map_error("forget what a job may reach")(error)),
    }
}

fn slot(index: u32) -> Result<u16, ProbesError> {
    u16::try_from(index).map_err(|_| ProbesError::Slots)
}
