//! A record under construction in per-CPU scratch memory: fixed part, then data that grows.

use aya_ebpf::{
    helpers::generated::{
        bpf_probe_read_kernel, bpf_probe_read_kernel_str, bpf_probe_read_user, bpf_probe_read_user_str,
    },
    btf_maps::PerCpuArray,
    macros::btf_map,
};
use capgate_common::{
    event::{Header, PATH_FAULT, PATH_TRUNCATED},
    limits::{DATA_CAP, STRING_CAP},
};

use crate::emit;

/// Room for a record: what may be filled, and behind it room for one more string that begins at its end.
#[repr(C, align(8))]
pub(crate) struct Scratch {
    pub(crate) bytes: [u8; DATA_CAP + STRING_CAP],
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

/// A record of fixed part `T` that grows in the scratch memory of `O`.
pub(crate) struct Draft<O: Owner, T> {
    pub(crate) scratch: *mut Scratch,
    pub(crate) end: u64,
    owner: core::marker::PhantomData<(O, T)>,
}

impl<O: Owner, T> Draft<O, T> {
    #[inline(always)]
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            scratch: O::scratch()?,
            end: size_of::<T>() as u64,
            owner: core::marker::PhantomData,
        })
    }

    /// The fixed part.
    #[inline(always)]
    pub(crate) fn fixed(&mut self) -> *mut T {
        self.scratch.cast()
    }

    /// Appends a NUL-terminated string from user memory; length without NUL, and flags.
    #[inline(always)]
    pub(crate) fn user_string(&mut self, address: u64) -> (u16, u16) {
        self.string(|to| {
            // SAFETY: `string` gives STRING_CAP writable bytes.
            unsafe { bpf_probe_read_user_str(to.cast(), STRING_CAP as u32, address as *const _) as i64 }
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
        if self.end > LAST {
            return (0, PATH_TRUNCATED);
        }
        // SAFETY: at most LAST, with STRING_CAP bytes of room behind it.
        let to = unsafe { (*self.scratch).bytes.as_mut_ptr().add((self.end & LAST) as usize) };
        let got = read(to);
        if got <= 0 {
            return (0, PATH_FAULT);
        }
        let len = (got as u64 - 1) & (STRING_CAP as u64 - 1);
        self.end += len;
        // The helper cuts silently at its bound: a string that fills it was cut, or cannot be told apart.
        (len as u16, if got as u64 >= STRING_CAP as u64 { PATH_TRUNCATED } else { 0 })
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
    fn append<const MASK: u64>(&mut self, len: u64, read: impl Fn(*mut u8, u32) -> i64) -> Option<u16> {
        const { assert!(MASK < STRING_CAP as u64) };
        if self.end > LAST {
            return None;
        }
        let len = len & MASK;
        // SAFETY: begins at most at LAST, with STRING_CAP bytes of room behind it, more than MASK.
        let to = unsafe { (*self.scratch).bytes.as_mut_ptr().add((self.end & LAST) as usize) };
        if read(to, len as u32) < 0 {
            return None;
        }
        self.end += len;
        Some(len as u16)
    }

    /// Sends what is there.
    #[inline(always)]
    pub(crate) fn send<const KIND: u16>(self, slot: u32) {
        let len = self.end;
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
