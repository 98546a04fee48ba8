//! What differs between architectures: registers and system call numbers.
//!
//! Each architecture's module has the same items: `syscall_number` and `is_compat` of a call that ends, `ARGUMENTS`,
//! `SKIPPED` and `CLASSES`.

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64;
#[cfg(bpf_target_arch = "x86_64")]
mod x86_64;

#[cfg(bpf_target_arch = "aarch64")]
pub use aarch64::{ARGUMENTS, CLASSES, SKIPPED, is_compat, syscall_number};
#[cfg(bpf_target_arch = "x86_64")]
pub use x86_64::{ARGUMENTS, CLASSES, SKIPPED, is_compat, syscall_number};

/// One past the numbers that `CLASSES` knows.
pub const NUMBERS: usize = 512;

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
pub mod class {
    pub const OPEN: u8 = 1;
    pub const OPENAT: u8 = 2;
    pub const OPENAT2: u8 = 3;
    pub const CREAT: u8 = 4;
    pub const OPEN_BY_HANDLE: u8 = 5;
    pub const GETFD: u8 = 6;
    pub const RENAME: u8 = 10;
    pub const RENAMEAT: u8 = 11;
    pub const RENAMEAT2: u8 = 12;
    pub const UNLINK: u8 = 13;
    pub const UNLINKAT: u8 = 14;
    pub const RMDIR: u8 = 15;
    pub const LINK: u8 = 16;
    pub const LINKAT: u8 = 17;
    pub const SYMLINK: u8 = 18;
    pub const SYMLINKAT: u8 = 19;
    pub const MKNOD: u8 = 20;
    pub const MKNODAT: u8 = 21;
    pub const MKDIR: u8 = 22;
    pub const MKDIRAT: u8 = 23;
    pub const TRUNCATE: u8 = 24;
    pub const CHMOD: u8 = 25;
    pub const FCHMODAT: u8 = 26;
    pub const CHOWN: u8 = 27;
    pub const LCHOWN: u8 = 28;
    pub const FCHOWNAT: u8 = 29;
    pub const XATTR: u8 = 30;
    pub const LXATTR: u8 = 31;
    pub const EXECVE: u8 = 32;
    pub const EXECVEAT: u8 = 33;
    pub const SOCKET: u8 = 40;
    pub const BIND: u8 = 41;
    pub const LISTEN: u8 = 42;
    pub const CONNECT: u8 = 43;
    pub const SENDTO: u8 = 44;
    pub const SENDMSG: u8 = 45;
    pub const SENDMMSG: u8 = 46;
    pub const RECVMSG: u8 = 47;
    pub const RECVMMSG: u8 = 48;
    pub const PTRACE: u8 = 60;
    pub const PROCESS_VM: u8 = 61;
    pub const IO_URING_SETUP: u8 = 62;
    pub const MOUNT: u8 = 63;
    pub const KERNEL_WRITES: u8 = 64;
    pub const BPF: u8 = 65;
}
