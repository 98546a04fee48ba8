//! capgate's kernel probes.
#![no_std]
#![no_main]

/// The licence the kernel reads; the helpers that the probes use are for GPL-compatible programs.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
