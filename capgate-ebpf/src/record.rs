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
pub struct Scratch {
    pub bytes: [u8; DATA_CAP + STRING_CAP],
    /// Where the next piece goes. Here and not on the stack, as is all that changes while a record grows: the
    /// verifier follows every value that a stack slot can have, and each would double its work.
    pub end: u64,
    pub walk: Walk,
    front: FrontBytes,
    /// Not 0 while a program of a [`Pool`] uses it.
    busy: u64,
}

/// Where scratch memory comes from. Programs that can interrupt each other must not have the same at the same time.
pub trait Owner {
    /// Takes a place, until it is given back.
    fn take() -> Option<u32>;
    /// The memory of a place, which the caller has taken.
    fn at(place: u32) -> Option<*mut Scratch>;
    /// Gives a place back.
    fn give_back(scratch: &mut Scratch);
}

macro_rules! owner {
    ($name:ident, $map:ident) => {
        #[btf_map]
        static $map: PerCpuArray<Scratch, 1> = PerCpuArray::new();
        /// Memory of programs that run one after the other: the kernel does not preempt a tracepoint's.
        pub struct $name;
        impl Owner for $name {
            #[inline(always)]
            fn take() -> Option<u32> {
                Some(0)
            }

            #[inline(always)]
            fn at(_place: u32) -> Option<*mut Scratch> {
                $map.get_ptr_mut(0)
            }

            #[inline(always)]
            fn give_back(_scratch: &mut Scratch) {}
        }
    };
}
owner!(Syscall, SCRATCH_SYSCALL);
owner!(Exec, SCRATCH_EXEC);

/// Tasks of one CPU that can be preempted in the middle of a program at the same time and still all be recorded.
const PLACES: u32 = 4;

#[btf_map]
static SCRATCH_POOL: PerCpuArray<Scratch, { PLACES as usize }> = PerCpuArray::new();

/// Memory of programs at the entry and exit of functions: they stay on their CPU but can be preempted there.
pub struct Pool;

impl Owner for Pool {
    #[inline(always)]
    fn take() -> Option<u32> {
        for place in 0..PLACES {
            let scratch = SCRATCH_POOL.get_ptr_mut(place)?;
            // SAFETY: the pointer comes from a successful lookup.
            if exchange(unsafe { &raw mut (*scratch).busy }, 1) == 0 {
                return Some(place);
            }
        }
        None
    }

    #[inline(always)]
    fn at(place: u32) -> Option<*mut Scratch> {
        SCRATCH_POOL.get_ptr_mut(place)
    }

    #[inline(always)]
    fn give_back(scratch: &mut Scratch) {
        exchange(&raw mut scratch.busy, 0);
    }
}

/// Puts a value into memory and answers the old one, in one instruction (kernel 5.12 and later).
#[inline(always)]
pub fn exchange(at: *mut u64, mut value: u64) -> u64 {
    // The target has no atomic types in core.
    // SAFETY: the address is an aligned u64 inside a map value, which lives as long as the program.
    unsafe {
        asm!("{value} = xchg_64({at} + 0, {value})", at = in(reg) at, value = inout(reg) value, options(nostack));
    }
    value
}

/// Highest position at which something may begin.
pub const LAST: u64 = DATA_CAP as u64 - 1;

/// Hides where a value comes from, so that the compiler keeps a bound that it thinks proven and the verifier,
/// which knows less, needs.
#[inline(always)]
pub fn opaque(mut value: u64) -> u64 {
    // SAFETY: copies a register to itself. Not an empty template: two lines of debug information for one
    // instruction are refused.
    unsafe { asm!("{value} = {value}", value = inout(reg) value, options(pure, nomem, nostack)) };
    value
}

/// A record of fixed part `T` for the job in `slot`, that grows in scratch memory of `O`.
pub struct Draft<O: Owner, T> {
    pub scratch: *mut Scratch,
    pub slot: u32,
    pub place: u32,
    owner: core::marker::PhantomData<(O, T)>,
}

impl<O: Owner, T> Drop for Draft<O, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the pointer comes from a successful lookup, and the place is this draft's.
        O::give_back(unsafe { &mut *self.scratch });
    }
}

impl<O: Owner, T> Draft<O, T> {
    #[inline(always)]
    pub fn new(slot: u32) -> Option<Self> {
        let place = O::take()?;
        let draft = Self {
            scratch: O::at(place)?,
            slot,
            place,
            owner: core::marker::PhantomData,
        };
        draft.set_end(size_of::<T>() as u64);
        Some(draft)
    }

    /// Bytes of the record so far.
    #[inline(always)]
    pub fn end(&self) -> u64 {
        // SAFETY: the pointer comes from a successful lookup. Volatile, so that the compiler keeps no copy.
        unsafe { core::ptr::read_volatile(&raw const (*self.scratch).end) }
    }

    #[inline(always)]
    pub fn set_end(&self, end: u64) {
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
                    .add((opaque(end) & LAST) as usize)
            },
            end,
        ))
    }

    /// The first bytes of a kernel struct, kept beside the record until the next such call.
    #[inline(always)]
    pub fn front(&mut self, of: Address) -> Option<Front> {
        // SAFETY: the pointer comes from a successful lookup.
        Front::read(of, unsafe { &raw mut (*self.scratch).front })
    }

    /// Appends a NUL-terminated string from user memory; length without NUL, and flags.
    #[inline(always)]
    pub fn user_string(&mut self, address: u64) -> (u16, u16) {
        self.string(|to| {
            // SAFETY: `string` gives STRING_CAP writable bytes.
            unsafe {
                bpf_probe_read_user_str(to.cast(), STRING_CAP as u32, address as *const _) as i64
            }
        })
    }

    /// Appends a NUL-terminated string from kernel memory; length without NUL, and flags.
    #[inline(always)]
    pub fn kernel_string(&mut self, address: u64) -> (u16, u16) {
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
        if got < 0 {
            return (0, PATH_FAULT);
        }
        // With the NUL; but kernels before 6.16 say 0 of an empty string in user memory (strncpy_from_user_nofault, mm/maccess.c).
        // The helper cuts at its bound, which is PATH_MAX: a longer string did not get past the system call.
        let len = (got as u64).saturating_sub(1) & (STRING_CAP as u64 - 1);
        self.set_end(end + len);
        (len as u16, 0)
    }

    /// Appends `len` bytes from user memory, at most `MASK`, a power of two less one; how many were read.
    #[inline(always)]
    pub fn user_bytes<const MASK: u64>(&mut self, address: u64, len: u64) -> Option<u16> {
        self.append::<MASK>(len, |to, len| {
            // SAFETY: `append` gives `len` writable bytes.
            unsafe { bpf_probe_read_user(to.cast(), len, address as *const _) as i64 }
        })
    }

    /// Appends `len` bytes from kernel memory, likewise.
    #[inline(always)]
    pub fn kernel_bytes<const MASK: u64>(&mut self, address: u64, len: u64) -> Option<u16> {
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

    /// Sends what is there, with its fixed part.
    #[inline(always)]
    pub fn send<const KIND: u16>(self, fixed: T) {
        let slot = self.slot;
        // SAFETY: scratch memory is larger than any record and aligned for it.
        unsafe { self.scratch.cast::<T>().write(fixed) };
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
