//! The registers of a system call that ends.

use crate::{
    arch::{self, ARGUMENTS},
    kernel::Typed,
};

/// `struct pt_regs` of the call.
#[derive(Clone, Copy)]
pub struct Regs(Typed);

impl Regs {
    /// Those at the address that a tracepoint was given.
    #[inline(always)]
    pub fn new(regs: *const u8) -> Self {
        Self(Typed::argument(regs))
    }

    /// The call's number.
    #[inline(always)]
    pub fn number(self) -> u64 {
        arch::syscall_number(self.0)
    }

    /// An argument of the call, 0 to 5.
    #[inline(always)]
    pub fn arg<const N: usize>(self) -> u64 {
        self.0.load(ARGUMENTS[N])
    }
}
