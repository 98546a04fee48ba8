//! What the release promises, by the real client, the real daemon and the running kernel: inputs that broke other recorders,
//! many jobs at once, users that must not see each other, blind spots that must be said, and a second look by `strace`. Needs root.
//!
//! Beside these, `tests/client/real` has the wrapper, the gate and the crash of a daemon as a client sees it, and
//! `capgate-daemon/tests/daemon` the leases, peers and limits.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../support/absent.rs"]
mod absent;

mod ambient;
mod argv;
mod blind;
mod budget;
mod clients;
mod crash;
mod enforcement;
mod job;
mod kernel;
mod loss;
mod many;
mod names;
mod network;
mod programs;
mod project;
mod resolver;
mod servers;
mod service;
mod stream;
mod users;
mod witness;
