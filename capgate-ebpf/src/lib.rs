//! What both probe sets record. The sets themselves, `bin/tracepoint.rs` and `bin/fentry.rs`, are thin attach functions.
#![no_std]
#![feature(asm_experimental_arch)]

pub mod arch;
pub mod dns;
pub mod emit;
pub mod enforce;
pub mod exec;
pub mod file;
pub mod forward;
pub mod kernel;
pub mod name;
pub mod net;
pub mod path;
pub mod process;
pub mod record;
pub mod regs;
pub mod root;
pub mod scope;
pub mod socket;
