//! x86-64.

use super::{NUMBERS, class, table};
use crate::kernel::{Typed, offset};

/// `pt_regs.orig_ax` (arch/x86/include/uapi/asm/ptrace.h).
const ORIG_AX: usize = 120;

/// Offsets of a call's arguments in `pt_regs`: rdi, rsi, rdx, r10, r8, r9.
pub const ARGUMENTS: [usize; 6] = [112, 104, 96, 56, 72, 64];

/// `TS_COMPAT` in `thread_info.status` (arch/x86/include/asm/thread_info.h).
const STATUS_COMPAT: u32 = 2;

/// The number of a call that seccomp or ptrace skipped: -1.
pub const SKIPPED: u64 = u64::MAX;

/// The number of the call that ends, from its `struct pt_regs`.
#[inline(always)]
pub fn syscall_number(regs: Typed) -> u64 {
    regs.load(ORIG_AX)
}

/// Whether a 32-bit call of this task is under way. Calls of the x32 kind are beyond [`NUMBERS`].
#[inline(always)]
pub fn is_compat(task: Typed) -> bool {
    let status: u32 = task.load(offset!(task_struct_thread_info_compat));
    status & STATUS_COMPAT != 0
}

/// System call number to class (arch/x86/entry/syscalls/syscall_64.tbl).
pub static CLASSES: [u8; NUMBERS] = table([
    (2, class::OPEN),
    (257, class::OPENAT),
    (437, class::OPENAT2),
    (85, class::CREAT),
    (304, class::OPEN_BY_HANDLE),
    (438, class::GETFD),
    (82, class::RENAME),
    (264, class::RENAMEAT),
    (316, class::RENAMEAT2),
    (87, class::UNLINK),
    (263, class::UNLINKAT),
    (84, class::RMDIR),
    (86, class::LINK),
    (265, class::LINKAT),
    (88, class::SYMLINK),
    (266, class::SYMLINKAT),
    (133, class::MKNOD),
    (259, class::MKNODAT),
    (83, class::MKDIR),
    (258, class::MKDIRAT),
    (76, class::TRUNCATE),
    (90, class::CHMOD),
    (268, class::FCHMODAT),
    (452, class::FCHMODAT),
    (92, class::CHOWN),
    (94, class::LCHOWN),
    (260, class::FCHOWNAT),
    (188, class::XATTR),
    (197, class::XATTR),
    (189, class::LXATTR),
    (198, class::LXATTR),
    (59, class::EXECVE),
    (322, class::EXECVEAT),
    (41, class::SOCKET),
    (49, class::BIND),
    (50, class::LISTEN),
    (42, class::CONNECT),
    (44, class::SENDTO),
    (46, class::SENDMSG),
    (307, class::SENDMMSG),
    (47, class::RECVMSG),
    (299, class::RECVMMSG),
    (101, class::PTRACE),
    (310, class::PROCESS_VM),
    (311, class::PROCESS_VM),
    (425, class::IO_URING_SETUP),
    (165, class::MOUNT),
    (166, class::MOUNT),
    (155, class::MOUNT),
    (429, class::MOUNT),
    (163, class::KERNEL_WRITES),
    (300, class::KERNEL_WRITES),
    (321, class::BPF),
]);
