//! Which resolvers each job is configured for, as the probes know it.

use std::net::IpAddr;

use aya::{
    Pod,
    maps::{HashMap, MapData},
};
use capgate_common::{event::ResolverKey, limits::RESOLVERS_PER_JOB};

use super::error::{ProbesError, map_error};

/// [`ResolverKey`] as a map key.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Key(ResolverKey);
// SAFETY: bytes and u32 without padding; every bit pattern is a value.
unsafe impl Pod for Key {}

/// The map of the probes, and what it holds.
pub(super) struct Resolvers {
    map: HashMap<MapData, Key, u8>,
    known: Vec<ResolverKey>,
}

impl Resolvers {
    pub(super) fn new(map: HashMap<MapData, Key, u8>) -> Self {
        Self {
            map,
            known: Vec::new(),
        }
    }

    /// Says which the resolvers of a slot's job are.
    pub(super) fn set(&mut self, slot: u32, resolvers: &[IpAddr]) -> Result<(), ProbesError> {
        // What a job that could not begin left.
        self.forget(slot)?;
        for resolver in resolvers.iter().take(RESOLVERS_PER_JOB as usize) {
            let addr = match resolver {
                IpAddr::V4(addr) => addr.to_ipv6_mapped(),
                IpAddr::V6(addr) => *addr,
            };
            let key = ResolverKey {
                addr: addr.octets(),
                slot,
                pad: 0,
            };
            self.map
                .insert(Key(key), 1, 0)
                .map_err(map_error("say which resolvers a job has"))?;
            if !self.known.contains(&key) {
                self.known.push(key);
            }
        }
        Ok(())
    }

    /// Forgets those of a slot's job.
    pub(super) fn forget(&mut self, slot: u32) -> Result<(), ProbesError> {
        let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.known)
            .into_iter()
            .partition(|key| key.slot == slot);
        self.known = kept;
        for key in gone {
            self.map
                .remove(&Key(key))
                .map_err(map_error("forget a resolver"))?;
        }
        Ok(())
    }
}
