//! What differs between architectures: registers and system call numbers.
//!
//! Each architecture's module has the same items: `syscall_number` and `is_compat` of a call that ends, `ARGUMENTS`, and
//! `CLASSES`.

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64;
#[cfg(bpf_target_arch = "x86_64")]
mod x86_64;

#[cfg(bpf_target_arch = "aarch64")]
pub(crate) use aarch64::{ARGUMENTS, CLASSES, is_compat, syscall_number};
#[cfg(bpf_target_arch = "x86_64")]
pub(crate) use x86_64::{ARGUMENTS, CLASSES, is_compat, syscall_number};

/// One past the numbers that `CLASSES` knows.
pub(crate) const NUMBERS: usize = 512;

/// A table from system call number to class.
const fn table<const N: usize>(pairs: [(usize, u8); N]) -> [u8; NUMBERS] {
    let mut table = [0; NUMBERS];
    let mut i = 0;
    while i < N {
        table[pairs[i].0] = pairs[i].1;
        i += 1;
    }
    table
}

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
