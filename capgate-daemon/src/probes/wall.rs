//! The maps by which the kernel refuses what an enforced job may not reach.

use aya::{
    Ebpf, Pod,
    maps::{Array, LpmTrie, MapData, MapError, lpm_trie::Key},
};
use capgate_common::enforce::{Enforced, HEAD4, HEAD6, Net4, Net6, Ports, Space};
use ipnet::IpNet;

use super::{
    error::{ProbesError, map_error},
    take,
};
use crate::permit::{Place, Rule};

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

/// What is refused to which job.
pub(super) struct Wall {
    enforced: Array<MapData, EnforcedValue>,
    rules4: LpmTrie<MapData, Net4Value, PortsValue>,
    rules6: LpmTrie<MapData, Net6Value, PortsValue>,
    /// What the maps hold: slot and place.
    known: Vec<(u16, Place)>,
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
        })
    }

    /// From here on the job in a slot reaches what a rule permits, and nothing else. `netns` is the namespace that it begins in.
    pub(super) fn raise(
        &mut self,
        index: u32,
        netns: u64,
        rules: &[Rule],
    ) -> Result<(), ProbesError> {
        for rule in rules {
            self.write(slot(index)?, rule)?;
        }
        let enforced = Enforced {
            on: 1,
            netns,
            ..Enforced::default()
        };
        self.enforced
            .set(index, EnforcedValue(enforced), 0)
            .map_err(map_error("enforce a job's network"))
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
            match removed {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(map_error("forget what a job may reach")(error)),
            }
        }
        Ok(())
    }

    /// How many rules there are, of all jobs.
    pub(super) fn len(&self) -> usize {
        self.rules4.keys().count() + self.rules6.keys().count()
    }
}

fn slot(index: u32) -> Result<u16, ProbesError> {
    u16::try_from(index).map_err(|_| ProbesError::Slots)
}
