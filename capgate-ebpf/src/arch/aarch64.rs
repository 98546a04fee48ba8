//! arm64.

use super::{NUMBERS, class, table};
use crate::kernel::{Typed, offset};

/// `pt_regs.syscallno`, an `s32` behind `orig_x0` (arch/arm64/include/asm/ptrace.h).
const SYSCALLNO: usize = 280;

/// Offsets of a call's arguments in `pt_regs`: orig_x0, since x0 holds the result by now, then x1 to x5.
pub const ARGUMENTS: [usize; 6] = [272, 8, 16, 24, 32, 40];

/// `TIF_32BIT` in `thread_info.flags`: this thread runs 32-bit code, so each of its calls is one of theirs
/// (arch/arm64/include/asm/thread_info.h).
const FLAG_32BIT: u32 = 1 << 22;

/// The number of a call that seccomp or ptrace skipped: `NO_SYSCALL`, -1, as [`syscall_number`] has it.
pub const SKIPPED: u64 = 0xffff_ffff;

/// The number of the call that ends, from its `struct pt_regs`.
#[inline(always)]
pub fn syscall_number(regs: Typed) -> u64 {
    // Not extended by its sign: the verifier would lose the bounds.
    let number: u32 = regs.load(SYSCALLNO);
    u64::from(number)
}

/// Whether a 32-bit call of this task is under way.
#[inline(always)]
pub fn is_compat(task: Typed) -> bool {
    let flags: u32 = task.load(offset!(task_struct_thread_info_compat));
    flags & FLAG_32BIT != 0
}

/// System call number to class (include/uapi/asm-generic/unistd.h).
pub static CLASSES: [u8; NUMBERS] = table([
    (5, class::XATTR),
    (6, class::LXATTR),
    (14, class::XATTR),
    (15, class::LXATTR),
    (33, class::MKNODAT),
    (34, class::MKDIRAT),
    (35, class::UNLINKAT),
    (36, class::SYMLINKAT),
    (37, class::LINKAT),
    (38, class::RENAMEAT),
    (39, class::MOUNT),
    (40, class::MOUNT),
    (41, class::MOUNT),
    (45, class::TRUNCATE),
    (53, class::FCHMODAT),
    (54, class::FCHOWNAT),
    (56, class::OPENAT),
    (89, class::KERNEL_WRITES),
    (117, class::PTRACE),
    (198, class::SOCKET),
    (200, class::BIND),
    (201, class::LISTEN),
    (203, class::CONNECT),
    (206, class::SENDTO),
    (211, class::SENDMSG),
    (212, class::RECVMSG),
    (221, class::EXECVE),
    (243, class::RECVMMSG),
    (262, class::KERNEL_WRITES),
    (265, class::OPEN_BY_HANDLE),
    (269, class::SENDMMSG),
    (270, class::PROCESS_VM),
    (271, class::PROCESS_VM),
    (276, class::RENAMEAT2),
    (280, class::BPF),
    (281, class::EXECVEAT),
    (425, class::IO_URING_SETUP),
    (429, class::MOUNT),
    (437, class::OPENAT2),
    (438, class::GETFD),
    (452, class::FCHMODAT),
]);
