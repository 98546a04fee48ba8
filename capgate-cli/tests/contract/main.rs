//! The contract's daily life with the real client, the real daemon and real tools: seeding one, names that move, what git ignores, and
//! the way of a reviewer from a broken gate to an accepted change. Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/absent.rs"]
mod absent;
#[path = "../support/repository.rs"]
mod repository;
#[path = "../support/service.rs"]
mod service;

mod marked;
mod moving;
mod packages;
mod project;
mod refused;
mod reviewer;
mod seed;
mod watched;
