//! capgated: makes a cgroup for each job, records what happens in it through eBPF, judges and seals.
//!
//! One direction: `probes` -> `drain` -> `decode` -> `resolve` -> `normalise` -> `session` -> ledger.

pub mod ambient;
pub mod args;
pub mod cgroup;
pub mod columns;
pub mod config;
pub mod connection;
pub mod cpu;
pub mod daemon;
pub mod decode;
pub mod dns;
pub mod drain;
pub mod ending;
pub mod enforcement;
pub mod event;
pub mod guest;
pub mod id;
pub mod job;
pub mod jobs;
pub mod lease;
pub mod leftover;
pub mod listen;
pub mod log;
pub mod look;
pub mod loss;
pub mod memory;
pub mod message;
pub mod mounts;
pub mod names;
pub mod netns;
pub mod normalise;
pub mod notify;
pub mod offsets;
pub mod peer;
pub mod permit;
pub mod privileges;
pub mod probes;
pub mod proc;
pub mod process;
pub mod recorder;
pub mod recording;
pub mod refusal;
pub mod resolve;
pub mod seen;
pub mod server;
pub mod session;
pub mod sockets;
pub mod store;
#[cfg(test)]
mod story;
pub mod stream;
pub mod support;
pub mod tail;
pub mod told;
pub mod touch;
pub mod writes;
