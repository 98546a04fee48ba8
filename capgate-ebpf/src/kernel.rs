//! The only file that knows kernel structs: typed reads at offsets from the running kernel's BTF.

use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel, bpf_probe_read_user};
use capgate_common::event::Offsets;

/// Member offsets, filled in by the daemon before the kernel sees the program. The map behind it is frozen
/// then, so the verifier takes each value as a constant.
#[unsafe(no_mangle)]
static OFFSETS: Offsets = zeroed();

/// 1 when `tp_btf/io_uring_submit_req` tells each operation; else a ring as a whole is unseen. Set as above.
#[unsafe(no_mangle)]
static IO_URING_OPS: u32 = 0;

/// Bytes in a ring at which the reader is woken. Set as above.
#[unsafe(no_mangle)]
static WAKE_BYTES: u64 = 0;

const fn zeroed() -> Offsets {
    // SAFETY: `Offsets` is a struct of `u32`, for which all bytes zero is a value.
    unsafe { core::mem::zeroed() }
}

/// Reads one global that the loader overwrites. Volatile, since the compiler knows only the initial value.
macro_rules! frozen {
    ($global:expr) => {
        // SAFETY: the address is of an initialised static.
        unsafe { core::ptr::read_volatile(&raw const $global) }
    };
}
pub(crate) use frozen;

/// The offset of one kernel member.
macro_rules! offset {
    ($field:ident) => {
        $crate::kernel::frozen!($crate::kernel::offsets().$field) as usize
    };
}
pub(crate) use offset;

#[inline(always)]
pub(crate) fn offsets() -> &'static Offsets {
    &OFFSETS
}

#[inline(always)]
pub(crate) fn io_uring_ops() -> bool {
    frozen!(IO_URING_OPS) != 0
}

#[inline(always)]
pub(crate) fn wake_bytes() -> u64 {
    frozen!(WAKE_BYTES)
}

/// A kernel address. Nothing is assumed about it: every read goes through a helper that may fail.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Address(pub(crate) u64);

impl Address {
    pub(crate) const NULL: Self = Self(0);

    #[inline(always)]
    pub(crate) fn at(self, offset: usize) -> Self {
        Self(self.0.wrapping_add(offset as u64))
    }

    /// Reads a value of plain bytes at this address plus `offset`.
    #[inline(always)]
    pub(crate) fn read<T: Copy>(self, offset: usize) -> Option<T> {
        // SAFETY: the helper checks the address and fails where nothing is mapped; T is plain bytes.
        unsafe { bpf_probe_read_kernel(self.at(offset).0 as *const T) }.ok()
    }

    /// Follows the pointer at `offset`; `None` when unreadable or null.
    #[inline(always)]
    pub(crate) fn follow(self, offset: usize) -> Option<Self> {
        let next = self.read::<Self>(offset)?;
        if next == Self::NULL { None } else { Some(next) }
    }
}

/// Reads plain bytes from the current task's user memory.
#[inline(always)]
pub(crate) fn user<T: Copy>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address and fails where nothing is mapped; T is plain bytes.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}

#[inline(always)]
pub(crate) fn current() -> Address {
    // SAFETY: the helper has no preconditions.
    Address(unsafe { bpf_get_current_task() } as u64)
}

/// `current->files->fdt->fd[fd]`, a `struct file`.
#[inline(always)]
pub(crate) fn file_of(fd: u32) -> Option<Address> {
    let table = current()
        .follow(offset!(task_struct_files))?
        .follow(offset!(files_struct_fdt))?;
    if fd >= table.read::<u32>(offset!(fdtable_max_fds))? {
        return None;
    }
    table.follow(offset!(fdtable_fd))?.follow(fd as usize * 8)
}

/// The `struct sock` behind a descriptor that is known to be a socket.
#[inline(always)]
pub(crate) fn sock_of(fd: u32) -> Option<Sock> {
    let socket = file_of(fd)?.follow(offset!(file_private_data))?;
    let sock = socket.follow(offset!(socket_sk))?;
    Some(Sock(sock))
}

/// A `struct sock`.
#[derive(Clone, Copy)]
pub(crate) struct Sock(pub(crate) Address);

impl Sock {
    #[inline(always)]
    pub(crate) fn family(self) -> Option<u16> {
        self.0.read(offset!(sock_common_skc_family))
    }

    #[inline(always)]
    pub(crate) fn sock_type(self) -> u16 {
        self.0.read(offset!(sock_sk_type)).unwrap_or(0)
    }

    #[inline(always)]
    pub(crate) fn protocol(self) -> u16 {
        self.0.read(offset!(sock_sk_protocol)).unwrap_or(0)
    }

    /// `net.net_cookie` of the socket's namespace, 0 when unreadable.
    #[inline(always)]
    pub(crate) fn netns(self) -> u64 {
        self.0
            .follow(offset!(sock_common_skc_net))
            .and_then(|net| net.read(offset!(net_net_cookie)))
            .unwrap_or(0)
    }
}

/// Inode number of a task's mount namespace, 0 when unreadable.
#[inline(always)]
pub(crate) fn mnt_ns(task: Address) -> u32 {
    task.follow(offset!(task_struct_nsproxy))
        .and_then(|nsproxy| nsproxy.follow(offset!(nsproxy_mnt_ns)))
        .and_then(|namespace| namespace.read(offset!(mnt_namespace_ns_inum)))
        .unwrap_or(0)
}

/// When a task's process began, nanoseconds since boot; 0 when unreadable.
#[inline(always)]
pub(crate) fn process_start(task: Address) -> u64 {
    task.follow(offset!(task_struct_group_leader))
        .and_then(|leader| leader.read(offset!(task_struct_start_boottime)))
        .unwrap_or(0)
}
