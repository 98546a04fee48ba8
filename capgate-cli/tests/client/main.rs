//! The real `capgate` in fresh directories: what it says, how it wraps a command, what it leaves behind.
//!
//! In most tests the other end of the socket is a stand-in that speaks the protocol and records nothing, since the client's own
//! behaviour does not depend on what is recorded. The tests in `real` have the real daemon, and look at both together.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/service.rs"]
mod daemon;
#[path = "../support/repository.rs"]
mod repository;

mod accept;
mod base;
mod errors;
mod files;
mod gate;
mod guard;
mod host;
mod private;
mod real;
mod report;
mod sealed;
mod signals;
mod stand;
mod stand_in;
mod stream;
mod terminal;
mod transparent;
