//! The only file that touches the rings. Every record that was set out for is counted: emitted, equal to an
//! earlier one, or lost.

use core::arch::asm;

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    btf_maps::{Array, ArrayOfMaps, RingBuf},
    helpers::{
        bpf_get_current_pid_tgid, bpf_ktime_get_boot_ns, bpf_ringbuf_output, bpf_ringbuf_query,
    },
    macros::btf_map,
};
use capgate_common::{
    event::{Counters, Header, KINDS, UnseenRecord},
    limits::{MAX_JOBS, RING_BYTES},
};

use crate::kernel::{self, Address, offset};

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
pub(crate) fn attempted<const KIND: u16>(slot: u32) {
    count!(slot, attempted, KIND);
}

/// A fact was recorded already.
#[inline(always)]
pub(crate) fn deduplicated<const KIND: u16>(slot: u32) {
    count!(slot, deduplicated, KIND);
}

/// A fact could not be recorded.
#[inline(always)]
pub(crate) fn lost<const KIND: u16>(slot: u32) {
    count!(slot, lost, KIND);
}

/// Sends `len` bytes at `record`, and counts what became of them.
#[inline(always)]
pub(crate) fn send<const KIND: u16>(slot: u32, record: *const u8, len: u64) {
    let Some(ring) = RINGS.get(slot) else {
        lost::<KIND>(slot);
        return;
    };
    let ring = core::ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: the ring comes from a successful lookup.
    let fill = unsafe { bpf_ringbuf_query(ring, u64::from(BPF_RB_AVAIL_DATA)) };
    let wake = if fill >= kernel::wake_bytes() {
        BPF_RB_FORCE_WAKEUP
    } else {
        BPF_RB_NO_WAKEUP
    };
    // SAFETY: the verifier proves that `len` bytes at `record` are the program's own.
    let sent = unsafe { bpf_ringbuf_output(ring, record.cast_mut().cast(), len, u64::from(wake)) };
    if sent < 0 {
        lost::<KIND>(slot);
    } else {
        count!(slot, emitted, KIND);
        if let Some(counters) = COUNTERS.get_ptr_mut(slot) {
            // SAFETY: the pointer comes from a successful lookup. Racing writers may store the smaller of
            // two values; the mark is a hint for sizing rings, nothing depends on it.
            unsafe {
                if fill > (*counters).high_water {
                    (*counters).high_water = fill;
                }
            }
        }
    }
}

/// Sends a record without variable data from the stack.
#[inline(always)]
pub(crate) fn send_fixed<T, const KIND: u16>(slot: u32, record: &T) {
    attempted::<KIND>(slot);
    send::<KIND>(
        slot,
        core::ptr::from_ref(record).cast(),
        size_of::<T>() as u64,
    );
}

/// The head of a record of the current task, for programs whose type has no helper for its ids.
#[inline(always)]
pub(crate) fn header_of(kind: u16, task: Address) -> Header {
    // SAFETY: the helper has no preconditions.
    let time_ns = unsafe { bpf_ktime_get_boot_ns() };
    Header {
        kind,
        flags: 0,
        data_len: 0,
        time_ns,
        start_ns: kernel::process_start(task),
        tgid: task.read(offset!(task_struct_tgid)).unwrap_or(0),
        tid: task.read(offset!(task_struct_pid)).unwrap_or(0),
        mnt_ns: kernel::mnt_ns(task),
        pad: 0,
    }
}

/// The head of a record of the current task.
#[inline(always)]
pub(crate) fn header(kind: u16, task: Address) -> Header {
    // SAFETY: neither helper has preconditions.
    let (ids, time_ns) = unsafe { (bpf_get_current_pid_tgid(), bpf_ktime_get_boot_ns()) };
    Header {
        kind,
        flags: 0,
        data_len: 0,
        time_ns,
        start_ns: kernel::process_start(task),
        tgid: (ids >> 32) as u32,
        tid: ids as u32,
        mnt_ns: kernel::mnt_ns(task),
        pad: 0,
    }
}

/// Reports a blind spot, once for each job and `what`.
#[inline(always)]
pub(crate) fn unseen(slot: u32, what: u32, arg: u64) {
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
        header: header(capgate_common::event::KIND_UNSEEN, kernel::current()),
        arg,
        what,
        pad: 0,
    };
    send_fixed::<_, { capgate_common::event::KIND_UNSEEN }>(slot, &record);
}
