//! The `tracepoint` probe set. Each program is a thin attach function; what is recorded stands in its concern.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod arch;
mod emit;
mod exec;
mod file;
mod kernel;
mod name;
mod net;
mod path;
mod process;
mod record;
mod scope;
mod socket;
mod syscall;

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses programs that could get here.
    loop {}
}

/// Helpers that read kernel memory are for GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
