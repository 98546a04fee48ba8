//! The only file that touches the rings. Every record that was set out for is counted: emitted, equal to an
//! earlier one, or lost.

use core::arch::asm;

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    btf_maps::{Array, ArrayOfMaps, RingBuf},
    helpers::{bpf_ktime_get_boot_ns, bpf_ringbuf_output, bpf_ringbuf_query},
    macros::btf_map,
};
use capgate_common::{
    event::{Counters, Header, KINDS, UnseenRecord},
    limits::{MAX_JOBS, RING_BYTES},
};

use crate::kernel;

/// One ring for each job.
#[btf_map]
static RINGS: ArrayOfMaps<RingBuf<u8, { RING_BYTES as usize }>, { MAX_JOBS as usize }> =
    ArrayOfMaps::new();

/// What happened to each job's records.
#[btf_map]
static COUNTERS: Array<Counters, { MAX_JOBS as usize }> = Array::new();

/// Adds one to a counter that other CPUs write too.
#[inline(always)]
fn add(counter: *mut u64) {
    // The target has no atomic types in core, though the machine has the instruction.
    // SAFETY: the address is an aligned u64 inside a map value, which lives as long as the program.
    unsafe {
        asm!("lock *(u64 *)({counter} + 0) += {one}", counter = in(reg) counter, one = in(reg) 1u64, options(nostack));
    }
}

macro_rules! count {
    ($slot:expr, $field:ident, $kind:expr) => {
        if let Some(counters) = COUNTERS.get_ptr_mut($slot) {
            const { assert!(($kind as usize) < KINDS) };
            // SAFETY: the pointer comes from a successful lookup, the index is checked above.
            add(unsafe { &raw mut (*counters).$field[$kind as usize] });
        }
    };
}

/// A fact is to be recorded.
#[inline(always)]
pub fn attempted<const KIND: u16>(slot: u32) {
    count!(slot, attempted, KIND);
}

/// A fact was recorded already.
#[inline(always)]
pub fn deduplicated<const KIND: u16>(slot: u32) {
    count!(slot, deduplicated, KIND);
}

/// A fact could not be recorded.
#[inline(always)]
pub fn lost<const KIND: u16>(slot: u32) {
    count!(slot, lost, KIND);
}

/// Sends `len` bytes at `record`, and counts what became of them.
#[inline(always)]
pub fn send<const KIND: u16>(slot: u32, record: *const u8, len: u64) {
    const { assert!((KIND as usize) < KINDS) };
    let Some(counters) = COUNTERS.get_ptr_mut(slot) else {
        return;
    };
    let Some(ring) = RINGS.get(slot) else {
        lost::<KIND>(slot);
        return;
    };
    let ring = core::ptr::from_ref(ring).cast_mut().cast();
    let mut wake = BPF_RB_NO_WAKEUP;
    // SAFETY: counters and ring come from successful lookups, the index is checked above, and the verifier
    // proves that `len` bytes at `record` are the program's own. Racing writers of the high-water mark may store
    // the smaller of two values; it is a hint for sizing rings, nothing depends on it.
    unsafe {
        let emitted = &raw mut (*counters).emitted[KIND as usize];
        if core::ptr::read_volatile(emitted) & kernel::look_mask() == 0 {
            let fill = bpf_ringbuf_query(ring, u64::from(BPF_RB_AVAIL_DATA));
            if fill >= kernel::wake_bytes() {
                wake = BPF_RB_FORCE_WAKEUP;
            }
            if fill > (*counters).high_water {
                (*counters).high_water = fill;
            }
        }
        if bpf_ringbuf_output(ring, record.cast_mut().cast(), len, u64::from(wake)) < 0 {
            add(&raw mut (*counters).lost[KIND as usize]);
        } else {
            add(emitted);
        }
    }
}

/// Sends a record without variable data from the stack.
#[inline(always)]
pub fn send_fixed<T, const KIND: u16>(slot: u32, record: &T) {
    attempted::<KIND>(slot);
    send::<KIND>(
        slot,
        core::ptr::from_ref(record).cast(),
        size_of::<T>() as u64,
    );
}

/// The head of a record of the current task.
#[inline(always)]
pub fn header(kind: u16) -> Header {
    let (tgid, tid) = kernel::ids();
    Header {
        kind,
        flags: 0,
        data_len: 0,
        // SAFETY: the helper has no preconditions.
        time_ns: unsafe { bpf_ktime_get_boot_ns() },
        start_ns: kernel::process_start(),
        tgid,
        tid,
        mnt_ns: kernel::mnt_ns(),
        pad: 0,
    }
}

/// Reports a blind spot, once for each job and `what`.
#[inline(always)]
pub fn unseen(slot: u32, what: u32, arg: u64) {
    let Some(counters) = COUNTERS.get_ptr_mut(slot) else {
        return;
    };
    let bit = 1u64 << what;
    // SAFETY: the pointer comes from a successful lookup. Two CPUs may both see the bit unset: then the
    // record comes twice, which the reader does not mind.
    unsafe {
        if (*counters).unseen & bit != 0 {
            return;
        }
        (*counters).unseen |= bit;
    }
    let record = UnseenRecord {
        header: header(capgate_common::event::KIND_UNSEEN),
        arg,
        what,
        pad: 0,
    };
    send_fixed::<_, { capgate_common::event::KIND_UNSEEN }>(slot, &record);
}
