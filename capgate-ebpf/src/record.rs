//! A record under construction in per-CPU scratch memory: fixed part, then data that grows.

use core::arch::asm;

use aya_ebpf::{
    btf_maps::PerCpuArray,
    helpers::generated::{
        bpf_probe_read_kernel, bpf_probe_read_kernel_str, bpf_probe_read_user,
        bpf_probe_read_user_str,
    },
    macros::btf_map,
};
use capgate_common::{
    event::{Header, PATH_FAULT, PATH_TRUNCATED},
    limits::{DATA_CAP, STRING_CAP},
};

use crate::{
    emit,
    kernel::{Address, Front, FrontBytes},
    path::Walk,
};

/// Room for a record: what may be filled, and behind it room for one more string that begins at its end.
#[repr(C, align(8))]
pub(crate) struct Scratch {
    pub(crate) bytes: [u8; DATA_CAP + STRING_CAP],
    /// Where the next piece goes. Here and not on the stack, as is all that changes while a record grows: the
    /// verifier follows every value that a stack slot can have, and each would double its work.
    pub(crate) end: u64,
    pub(crate) walk: Walk,
    front: FrontBytes,
}

/// Scratch memory belongs to one program: programs that can interrupt each other must not share it.
pub(crate) trait Owner {
    fn scratch() -> Option<*mut Scratch>;
}

macro_rules! owner {
    ($name:ident, $map:ident) => {
        #[btf_map]
        static $map: PerCpuArray<Scratch, 1> = PerCpuArray::new();
        pub(crate) struct $name;
        impl Owner for $name {
            #[inline(always)]
            fn scratch() -> Option<*mut Scratch> {
                $map.get_ptr_mut(0)
            }
        }
    };
}
owner!(Syscall, SCRATCH_SYSCALL);
owner!(Exec, SCRATCH_EXEC);

/// Highest position at which something may begin.
pub(crate) const LAST: u64 = DATA_CAP as u64 - 1;

/// Hides where a value comes from, so that the compiler keeps a bound that it thinks proven and the verifier,
/// which knows less, needs.
#[inline(always)]
fn opaque(mut value: u64) -> u64 {
    // SAFETY: copies a register to itself. Not an empty template: two lines of debug information for one
    // instruction are refused.
    unsafe { asm!("{value} = {value}", value = inout(reg) value, options(pure, nomem, nostack)) };
    value
}

/// A record of fixed part `T` that grows in the scratch memory of `O`.
pub(crate) struct Draft<O: Owner, T> {
    pub(crate) scratch: *mut Scratch,
    owner: core::marker::PhantomData<(O, T)>,
}

impl<O: Owner, T> Draft<O, T> {
    #[inline(always)]
    pub(crate) fn new() -> Option<Self> {
        let draft = Self {
            scratch: O::scratch()?,
            owner: core::marker::PhantomData,
        };
        draft.set_end(size_of::<T>() as u64);
        Some(draft)
    }

    /// Bytes of the record so far.
    #[inline(always)]
    pub(crate) fn end(&self) -> u64 {
        // SAFETY: the pointer comes from a successful lookup. Volatile, so that the compiler keeps no copy.
        unsafe { core::ptr::read_volatile(&raw const (*self.scratch).end) }
    }

    #[inline(always)]
    pub(crate) fn set_end(&self, end: u64) {
        // SAFETY: as above.
        unsafe { core::ptr::write_volatile(&raw mut (*self.scratch).end, end) }
    }

    /// Where the next piece goes, with STRING_CAP bytes of room behind it; `None` when the record is full.
    #[inline(always)]
    fn tail(&self) -> Option<(*mut u8, u64)> {
        let end = self.end();
        if end > LAST {
            return None;
        }
        // SAFETY: at most LAST, with STRING_CAP bytes of room behind it.
        Some((
            unsafe {
                (*self.scratch)
                    .bytes
                    .as_mut_ptr()
                    .add((end & LAST) as usize)
            },
            end,
        ))
    }

    /// The fixed part.
    #[inline(always)]
    pub(crate) fn fixed(&mut self) -> *mut T {
        self.scratch.cast()
    }

    /// The first bytes of a kernel struct, kept beside the record until the next such call.
    #[inline(always)]
    pub(crate) fn front(&mut self, of: Address) -> Option<Front> {
        // SAFETY: the pointer comes from a successful lookup.
        Front::read(of, unsafe { &raw mut (*self.scratch).front })
    }

    /// Appends a NUL-terminated string from user memory; length without NUL, and flags.
    #[inline(always)]
    pub(crate) fn user_string(&mut self, address: u64) -> (u16, u16) {
        self.string(|to| {
            // SAFETY: `string` gives STRING_CAP writable bytes.
            unsafe {
                bpf_probe_read_user_str(to.cast(), STRING_CAP as u32, address as *const _) as i64
            }
        })
    }

    /// Appends a NUL-terminated string from kernel memory; length without NUL, and flags.
    #[inline(always)]
    pub(crate) fn kernel_string(&mut self, address: u64) -> (u16, u16) {
        self.string(|to| {
            // SAFETY: `string` gives STRING_CAP writable bytes.
            unsafe {
                bpf_probe_read_kernel_str(to.cast(), STRING_CAP as u32, address as *const _) as i64
            }
        })
    }

    #[inline(always)]
    fn string(&mut self, read: impl Fn(*mut u8) -> i64) -> (u16, u16) {
        let Some((to, end)) = self.tail() else {
            return (0, PATH_TRUNCATED);
        };
        let got = read(to);
        if got <= 0 {
            return (0, PATH_FAULT);
        }
        // The helper cuts at its bound, which is PATH_MAX: a longer string did not get past the system call.
        let len = (got as u64 - 1) & (STRING_CAP as u64 - 1);
        self.set_end(end + len);
        (len as u16, 0)
    }

    /// Appends `len` bytes from user memory, at most `MASK`, a power of two less one; how many were read.
    #[inline(always)]
    pub(crate) fn user_bytes<const MASK: u64>(&mut self, address: u64, len: u64) -> Option<u16> {
        self.append::<MASK>(len, |to, len| {
            // SAFETY: `append` gives `len` writable bytes.
            unsafe { bpf_probe_read_user(to.cast(), len, address as *const _) as i64 }
        })
    }

    /// Appends `len` bytes from kernel memory, likewise.
    #[inline(always)]
    pub(crate) fn kernel_bytes<const MASK: u64>(&mut self, address: u64, len: u64) -> Option<u16> {
        self.append::<MASK>(len, |to, len| {
            // SAFETY: `append` gives `len` writable bytes.
            unsafe { bpf_probe_read_kernel(to.cast(), len, address as *const _) as i64 }
        })
    }

    #[inline(always)]
    fn append<const MASK: u64>(
        &mut self,
        len: u64,
        read: impl Fn(*mut u8, u32) -> i64,
    ) -> Option<u16> {
        const { assert!(MASK < STRING_CAP as u64) };
        let (to, end) = self.tail()?;
        let len = opaque(len) & MASK;
        if read(to, len as u32) < 0 {
            return None;
        }
        self.set_end(end + len);
        Some(len as u16)
    }

    /// Sends what is there.
    #[inline(always)]
    pub(crate) fn send<const KIND: u16>(self, slot: u32) {
        let len = self.end();
        // SAFETY: every fixed part begins with a header (asserted where the layouts are).
        unsafe {
            (*self.scratch.cast::<Header>()).data_len = (len - size_of::<T>() as u64) as u32;
        }
        if len > DATA_CAP as u64 {
            emit::lost::<KIND>(slot);
            return;
        }
        emit::send::<KIND>(slot, self.scratch.cast(), len);
    }
}
