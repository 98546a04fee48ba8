//! The only gate: which job, if any, does a task, cgroup or packet belong to?

use aya_ebpf::{
    bindings::__sk_buff,
    btf_maps::{Array, HashMap},
    helpers::{bpf_get_current_ancestor_cgroup_id, bpf_skb_ancestor_cgroup_id},
    macros::btf_map,
};
use capgate_common::{
    event::Slot,
    limits::{MAX_JOBS, MAX_LEVELS},
};

use crate::kernel::{Address, offset};

/// Cgroup id of each job to its slot.
#[btf_map]
static SCOPE: HashMap<u64, Slot, { MAX_JOBS as usize }> = HashMap::new();

/// Depths at which jobs' cgroups are, each once; 0 ends the list (the root is never a job).
#[btf_map]
static LEVELS: Array<[u8; MAX_LEVELS], 1> = Array::new();

/// Process id to slot, for those that the kernel names without their being current.
#[btf_map]
static MEMBERS: HashMap<u32, u32, 65536, 1> = HashMap::new();

/// Tries each depth in use with the ancestor id that `ancestor` gives for it.
#[inline(always)]
fn find(ancestor: impl Fn(u8) -> u64) -> Option<Slot> {
    let levels = LEVELS.get(0)?;
    for level in levels {
        if *level == 0 {
            break;
        }
        let id = ancestor(*level);
        // SAFETY: the value is plain integers, written once, before the job has a task.
        if let Some(slot) = unsafe { SCOPE.get(id) } {
            return Some(*slot);
        }
    }
    None
}

/// The job of the current task.
#[inline(always)]
pub(crate) fn current() -> Option<u32> {
    // SAFETY: the helper has no preconditions; a level below the task's depth gives 0, which is no job's id.
    find(|level| unsafe { bpf_get_current_ancestor_cgroup_id(i32::from(level)) })
        .map(|slot| slot.index)
}

/// The job of the socket that sends a packet.
#[inline(always)]
pub(crate) fn packet(skb: *mut __sk_buff) -> Option<Slot> {
    // SAFETY: the context pointer is the program's own.
    find(|level| unsafe { bpf_skb_ancestor_cgroup_id(skb, i32::from(level)) })
}

/// The job that a cgroup lies in.
#[inline(always)]
pub(crate) fn cgroup(cgroup: Address) -> Option<u32> {
    let depth = cgroup.read::<i32>(offset!(cgroup_level))?;
    find(|level| {
        if i32::from(level) > depth {
            return 0;
        }
        cgroup
            .follow(offset!(cgroup_ancestors) + usize::from(level) * 8)
            .and_then(id_of_cgroup)
            .unwrap_or(0)
    })
    .map(|slot| slot.index)
}

/// The job of the current task, for programs whose type has no cgroup helper.
#[inline(always)]
pub(crate) fn task(task: Address) -> Option<u32> {
    cgroup(
        task.follow(offset!(task_struct_cgroups))?
            .follow(offset!(css_set_dfl_cgrp))?,
    )
}

/// The cgroup's id: its directory's inode number.
#[inline(always)]
pub(crate) fn id_of_cgroup(cgroup: Address) -> Option<u64> {
    cgroup
        .follow(offset!(cgroup_kn))?
        .read(offset!(kernfs_node_id))
}

/// The slot of a process that was seen joining a job.
#[inline(always)]
pub(crate) fn member(tgid: u32) -> Option<u32> {
    // SAFETY: the value is an integer; a stale one is the same process' own.
    unsafe { MEMBERS.get(tgid) }.copied()
}

/// Remembers a member; false when there is no room.
#[inline(always)]
pub(crate) fn join(tgid: u32, slot: u32) -> bool {
    MEMBERS.insert(tgid, slot, 0).is_ok()
}

/// Forgets a member; nothing to do when it was none.
#[inline(always)]
pub(crate) fn leave(tgid: u32) {
    let _: Result<(), i32> = MEMBERS.remove(tgid);
}
