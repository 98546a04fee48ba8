//! capgated: makes a cgroup for each job, records what happens in it through eBPF, judges and seals.
//!
//! One direction: `probes` -> `drain` -> `decode` -> `resolve` -> `normalise` -> `session` -> ledger.

pub mod event;
