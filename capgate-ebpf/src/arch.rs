//! What differs between architectures: registers and system call numbers.

#[cfg(bpf_target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// What a system call is to the recorder; 0 is "nothing".
pub(crate) mod class {
    pub(crate) const OPEN: u8 = 1;
    pub(crate) const OPENAT: u8 = 2;
    pub(crate) const OPENAT2: u8 = 3;
    pub(crate) const CREAT: u8 = 4;
    pub(crate) const OPEN_BY_HANDLE: u8 = 5;
    pub(crate) const GETFD: u8 = 6;
    pub(crate) const RENAME: u8 = 10;
    pub(crate) const RENAMEAT: u8 = 11;
    pub(crate) const RENAMEAT2: u8 = 12;
    pub(crate) const UNLINK: u8 = 13;
    pub(crate) const UNLINKAT: u8 = 14;
    pub(crate) const RMDIR: u8 = 15;
    pub(crate) const LINK: u8 = 16;
    pub(crate) const LINKAT: u8 = 17;
    pub(crate) const SYMLINK: u8 = 18;
    pub(crate) const SYMLINKAT: u8 = 19;
    pub(crate) const MKNOD: u8 = 20;
    pub(crate) const MKNODAT: u8 = 21;
    pub(crate) const MKDIR: u8 = 22;
    pub(crate) const MKDIRAT: u8 = 23;
    pub(crate) const TRUNCATE: u8 = 24;
    pub(crate) const CHMOD: u8 = 25;
    pub(crate) const FCHMODAT: u8 = 26;
    pub(crate) const CHOWN: u8 = 27;
    pub(crate) const LCHOWN: u8 = 28;
    pub(crate) const FCHOWNAT: u8 = 29;
    pub(crate) const XATTR: u8 = 30;
    pub(crate) const LXATTR: u8 = 31;
    pub(crate) const SOCKET: u8 = 40;
    pub(crate) const BIND: u8 = 41;
    pub(crate) const LISTEN: u8 = 42;
    pub(crate) const CONNECT: u8 = 43;
    pub(crate) const SENDTO: u8 = 44;
    pub(crate) const SENDMSG: u8 = 45;
    pub(crate) const SENDMMSG: u8 = 46;
    pub(crate) const RECVMSG: u8 = 47;
    pub(crate) const RECVMMSG: u8 = 48;
    pub(crate) const PTRACE: u8 = 60;
    pub(crate) const PROCESS_VM: u8 = 61;
    pub(crate) const IO_URING_SETUP: u8 = 62;
    pub(crate) const MOUNT: u8 = 63;
    pub(crate) const KERNEL_WRITES: u8 = 64;
    pub(crate) const BPF: u8 = 65;
}

#[cfg(bpf_target_arch = "x86_64")]
mod x86_64 {
    use super::class;

    /// `pt_regs.orig_ax`: the system call's number (arch/x86/include/uapi/asm/ptrace.h).
    pub(crate) const REGS_NR: usize = 120;
    /// Offsets of the arguments in `pt_regs`: rdi, rsi, rdx, r10, r8, r9.
    pub(crate) const REGS_ARGS: [usize; 6] = [112, 104, 96, 56, 72, 64];
    /// `TS_COMPAT` in `thread_info.status`: a 32-bit call is under way (arch/x86/include/asm/thread_info.h).
    pub(crate) const STATUS_COMPAT: u32 = 2;

    /// One past the numbers that [`CLASSES`] knows.
    pub(crate) const NUMBERS: usize = 512;
    /// System call number to class (arch/x86/entry/syscalls/syscall_64.tbl).
    pub(crate) static CLASSES: [u8; NUMBERS] = classes();

    const fn classes() -> [u8; NUMBERS] {
        let pairs: [(usize, u8); 51] = [
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
        ];
        let mut table = [0; NUMBERS];
        let mut i = 0;
        while i < pairs.len() {
            table[pairs[i].0] = pairs[i].1;
            i += 1;
        }
        table
    }
}
