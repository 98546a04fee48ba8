//! The daemon as it is installed, with real clients of several users on the running kernel. Needs root.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "../../../capgate-cli/tests/support/absent.rs"]
mod absent;
mod faults;
mod harness;
mod leases;
mod limits;
mod peers;
mod places;
mod private;
mod service;
mod streams;
