//! The only file that knows kernel structs: typed reads at offsets from the running kernel's BTF.

use aya_ebpf::helpers::{
    bpf_get_current_task, bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_probe_read_user,
    generated::bpf_probe_read_kernel as bpf_probe_read_kernel_raw,
};
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

/// The fill is looked at when this many low bits of the count of records are 0. Set as above.
#[unsafe(no_mangle)]
static LOOK_MASK: u64 = 0;

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
pub fn offsets() -> &'static Offsets {
    &OFFSETS
}

#[inline(always)]
pub fn io_uring_ops() -> bool {
    frozen!(IO_URING_OPS) != 0
}

#[inline(always)]
pub fn wake_bytes() -> u64 {
    frozen!(WAKE_BYTES)
}

#[inline(always)]
pub fn look_mask() -> u64 {
    frozen!(LOOK_MASK)
}

/// A kernel address. Nothing is assumed about it: every read goes through a helper that may fail.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Address(pub u64);

impl Address {
    pub const NULL: Self = Self(0);

    /// Where a typed pointer points.
    #[inline(always)]
    pub fn of(typed: Typed) -> Self {
        Self(typed.0 as u64)
    }

    /// Whether it is an error number: `IS_ERR_VALUE` (include/linux/err.h).
    #[inline(always)]
    pub fn is_error(self) -> bool {
        self.0 >= -4095i64 as u64
    }

    #[inline(always)]
    pub fn at(self, offset: usize) -> Self {
        Self(self.0.wrapping_add(offset as u64))
    }

    /// Reads a value of plain bytes at this address plus `offset`.
    #[inline(always)]
    pub fn read<T: Copy>(self, offset: usize) -> Option<T> {
        // SAFETY: the helper checks the address and fails where nothing is mapped; T is plain bytes.
        unsafe { bpf_probe_read_kernel(self.at(offset).0 as *const T) }.ok()
    }

    /// Follows the pointer at `offset`; `None` when unreadable or null.
    #[inline(always)]
    pub fn follow(self, offset: usize) -> Option<Self> {
        let next = self.read::<Self>(offset)?;
        if next == Self::NULL { None } else { Some(next) }
    }
}

/// Reads plain bytes from the current task's user memory.
#[inline(always)]
pub fn user<T: Copy>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address and fails where nothing is mapped; T is plain bytes.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}

#[inline(always)]
pub fn current() -> Address {
    // SAFETY: the helper has no preconditions.
    Address(unsafe { bpf_get_current_task() } as u64)
}

/// The `struct mount` around a `struct vfsmount`.
#[inline(always)]
pub fn mount_of(vfsmount: Address) -> Address {
    Address(vfsmount.0.wrapping_sub(offset!(mount_mnt) as u64))
}

/// A kernel pointer whose type the verifier knows, from BTF: loads through it are plain instructions, several
/// times cheaper than a helper. A load from a bad address gives 0 (the kernel's exception table sees to it).
#[derive(Clone, Copy)]
pub struct Typed(*const u8);

impl Typed {
    /// The current task.
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the helper has no preconditions.
        Self(unsafe { bpf_get_current_task_btf() }.cast())
    }

    /// An argument of a tracepoint.
    #[inline(always)]
    pub fn argument(pointer: *const u8) -> Self {
        Self(pointer)
    }

    /// The member at `offset`. Volatile, since the compiler must not turn two loads into one of another width.
    #[inline(always)]
    pub fn load<T: Copy>(self, offset: usize) -> T {
        // SAFETY: the verifier checks offset and width against the struct's type.
        unsafe { core::ptr::read_volatile(self.0.add(offset).cast()) }
    }

    /// Follows the pointer at `offset`, whose type the verifier knows too.
    #[inline(always)]
    pub fn next(self, offset: usize) -> Self {
        Self(self.load(offset))
    }
}

/// `current->files->fdt->fd[fd]`, a `struct file`.
#[inline(always)]
pub fn file_of(fd: u32) -> Option<Address> {
    let table = Typed::current()
        .next(offset!(task_struct_files))
        .next(offset!(files_struct_fdt));
    if fd >= table.load::<u32>(offset!(fdtable_max_fds)) {
        return None;
    }
    table
        .load::<Address>(offset!(fdtable_fd))
        .follow(fd as usize * 8)
}

/// The `struct sock` behind a descriptor that is known to be a socket.
#[inline(always)]
pub fn sock_of(fd: u32) -> Option<Sock> {
    let socket = file_of(fd)?.follow(offset!(file_private_data))?;
    let sock = socket.follow(offset!(socket_sk))?;
    Some(Sock(sock))
}

/// A `struct sock`.
#[derive(Clone, Copy)]
pub struct Sock(pub Address);

impl Sock {
    #[inline(always)]
    pub fn family(self) -> Option<u16> {
        self.0.read(offset!(sock_common_skc_family))
    }

    #[inline(always)]
    pub fn sock_type(self) -> u16 {
        self.0.read(offset!(sock_sk_type)).unwrap_or(0)
    }

    #[inline(always)]
    pub fn protocol(self) -> u16 {
        self.0.read(offset!(sock_sk_protocol)).unwrap_or(0)
    }

    /// `net.net_cookie` of the socket's namespace, 0 when unreadable.
    #[inline(always)]
    pub fn netns(self) -> u64 {
        self.0
            .follow(offset!(sock_common_skc_net))
            .and_then(|net| net.read(offset!(net_net_cookie)))
            .unwrap_or(0)
    }
}

/// Inode number of the current task's mount namespace, 0 when unreadable.
#[inline(always)]
pub fn mnt_ns() -> u32 {
    Typed::current()
        .next(offset!(task_struct_nsproxy))
        .next(offset!(nsproxy_mnt_ns))
        .load(offset!(mnt_namespace_ns_inum))
}

/// The current task's `struct mnt_namespace`, to be compared only.
#[inline(always)]
pub fn mount_namespace() -> Address {
    Typed::current()
        .next(offset!(task_struct_nsproxy))
        .load(offset!(nsproxy_mnt_ns))
}

/// When the current task's process began, nanoseconds since boot; 0 when unreadable.
#[inline(always)]
pub fn process_start() -> u64 {
    Typed::current()
        .next(offset!(task_struct_group_leader))
        .load(offset!(task_struct_start_boottime))
}

/// Process and thread id of the current task, in the initial pid namespace.
#[inline(always)]
pub fn ids() -> (u32, u32) {
    let task = Typed::current();
    (
        task.load(offset!(task_struct_tgid)),
        task.load(offset!(task_struct_pid)),
    )
}

/// Whether the current task names processes by the numbers that the kernel knows them by.
#[inline(always)]
pub fn is_in_first_pid_namespace() -> bool {
    Typed::current()
        .next(offset!(task_struct_thread_pid))
        .load::<u32>(offset!(pid_level))
        == 0
}

/// The first bytes of a kernel struct, in one read. They are kept outside the stack, of which kernels before 6.13 have
/// 512 bytes for all of a program's functions together.
pub struct Front(Address, *const u8);

const FRONT: usize = 80;

/// Room for a [`Front`].
pub type FrontBytes = [u64; FRONT / 8];

impl Front {
    /// Reads them into `room`, which must be the program's own for as long as this is used.
    #[inline(always)]
    pub fn read(of: Address, room: *mut FrontBytes) -> Option<Self> {
        // SAFETY: the helper checks the address; the room is FRONT bytes of a map value.
        let read =
            unsafe { bpf_probe_read_kernel_raw(room.cast(), FRONT as u32, of.0 as *const _) };
        if read < 0 {
            return None;
        }
        Some(Self(of, room.cast()))
    }

    /// A member; read on its own when this kernel keeps it farther back.
    #[inline(always)]
    pub fn member<T: Copy>(&self, offset: usize) -> Option<T> {
        if offset + size_of::<T>() > FRONT {
            return self.0.read(offset);
        }
        // SAFETY: inside the room, checked above; T is plain bytes. BPF loads need no alignment here.
        Some(unsafe { core::ptr::read_volatile(self.1.add(offset).cast()) })
    }
}
