//! The client alone: what it says, how it wraps a command, what it leaves behind. The other end of the socket is a stand-in that
//! speaks the protocol and records nothing, so that these tests need neither root nor a kernel with BTF.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod errors;
mod files;
mod gate;
mod host;
mod signals;
mod stand;
mod stand_in;
mod stream;
mod terminal;
mod transparent;
