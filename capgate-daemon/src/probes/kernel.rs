//! Two commands of bpf(2) that the loader's crate does not offer.

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
};

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_prog_info};
use nix::libc;

/// Runs a `raw_tp` program in this thread with these arguments (`BPF_PROG_TEST_RUN`).
///
/// # Errors
/// When the kernel refuses.
pub(super) fn run(program: BorrowedFd<'_>, arguments: &[u64; 4]) -> io::Result<()> {
    // SAFETY: a union of structs of integers, for which all bytes zero is a value.
    let mut attributes: bpf_attr = unsafe { mem::zeroed() };
    attributes.test.prog_fd = descriptor(program)?;
    attributes.test.ctx_size_in =
        u32::try_from(size_of_val(arguments)).map_err(io::Error::other)?;
    attributes.test.ctx_in = std::ptr::from_ref(arguments).addr() as u64;
    call(bpf_cmd::BPF_PROG_TEST_RUN, &mut attributes)
}

/// How often the kernel did not run a program because it ran already on that CPU (`bpf_prog_info.recursion_misses`).
///
/// # Errors
/// When the kernel refuses.
pub(super) fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: a struct of integers, for which all bytes zero is a value.
    let mut info: bpf_prog_info = unsafe { mem::zeroed() };
    // SAFETY: as in `run`.
    let mut attributes: bpf_attr = unsafe { mem::zeroed() };
    attributes.info.bpf_fd = descriptor(program)?;
    attributes.info.info_len = u32::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    attributes.info.info = (&raw mut info).addr() as u64;
    call(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attributes)?;
    Ok(info.recursion_misses)
}

fn descriptor(program: BorrowedFd<'_>) -> io::Result<u32> {
    u32::try_from(program.as_raw_fd()).map_err(io::Error::other)
}

fn call(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<()> {
    // SAFETY: bpf(2) reads and writes at most the given size of the union, and what its pointers name: live locals of the callers, of
    // the sizes given beside them. No crate wraps these commands.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            std::ptr::from_mut(attributes),
            size_of::<bpf_attr>(),
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
