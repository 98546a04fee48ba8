//! capgated: makes a cgroup for each job, records what happens in it through eBPF, judges and seals.
//!
//! One direction: `probes` -> `drain` -> `decode` -> `resolve` -> `normalise` -> `session` -> ledger.

pub mod decode;
pub mod drain;
pub mod event;
pub mod offsets;
pub mod probes;
