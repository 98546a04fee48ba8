//! The only gate: which job, if any, does a task, cgroup or packet belong to?

use aya_ebpf::{
    btf_maps::{Array, HashMap},
    helpers::{bpf_get_current_ancestor_cgroup_id, bpf_skb_ancestor_cgroup_id},
    macros::btf_map,
    programs::SkBuffContext,
};
use capgate_common::{
    event::{Scope, Slot},
    limits::MAX_JOBS,
};

use crate::kernel::{Address, Typed, offset};

/// The jobs that most lookups are about.
#[btf_map]
static SCOPE: Array<Scope, 1> = Array::new();

/// Cgroup id of each job that has no place in [`SCOPE`] to its slot.
#[btf_map]
static MORE_SCOPE: HashMap<u64, Slot, { MAX_JOBS as usize }> = HashMap::new();

/// Process id to slot, for those that the kernel names without their being current. Allocated as needed
/// (BPF_F_NO_PREALLOC).
#[btf_map]
static MEMBERS: HashMap<u32, u32, 65536, 1> = HashMap::new();

/// Thread id to process id, for the further threads of members, which others name by their own number. Not a slot: a process that
/// leaves its job takes all of them along.
#[btf_map]
static THREADS: HashMap<u32, u32, 65536, 1> = HashMap::new();

/// No slot, where slots are compared: of two options the compiler would copy the undefined half of a `None`,
/// which the verifier refuses.
pub const NONE: u32 = u32::MAX;

/// Tries each depth in use with the id of the ancestor at that depth, which `ancestor` gives; 0 for none.
#[inline(always)]
fn find(ancestor: impl Fn(u8) -> u64) -> Option<Slot> {
    let scope = SCOPE.get(0)?;
    for level in &scope.levels {
        let level = *level;
        if level == 0 {
            continue;
        }
        let id = ancestor(level);
        if id == 0 {
            continue;
        }
        for (job, slot) in scope.ids.iter().zip(&scope.slots) {
            if *job == id {
                return Some(*slot);
            }
        }
        if scope.more != 0 {
            // SAFETY: the value is plain integers, written once, before the job has a task.
            if let Some(slot) = unsafe { MORE_SCOPE.get(id) } {
                return Some(*slot);
            }
        }
    }
    None
}

/// The job of the current task.
#[inline(always)]
pub fn current() -> Option<u32> {
    let own = Typed::current()
        .next(offset!(task_struct_cgroups))
        .next(offset!(css_set_dfl_cgrp));
    let depth: i32 = own.load(offset!(cgroup_level));
    find(|level| {
        let level = i32::from(level);
        if level == depth {
            // Most tasks are in their job's own cgroup: no helper call.
            own.next(offset!(cgroup_kn)).load(offset!(kernfs_node_id))
        } else if level < depth {
            // SAFETY: the helper has no preconditions.
            unsafe { bpf_get_current_ancestor_cgroup_id(level) }
        } else {
            0
        }
    })
    .map(|slot| slot.index)
}

/// The job of the socket that sends a packet.
#[inline(always)]
pub fn packet(ctx: &SkBuffContext) -> Option<Slot> {
    // SAFETY: the context pointer is the program's own.
    find(|level| unsafe { bpf_skb_ancestor_cgroup_id(ctx.skb.skb, i32::from(level)) })
}

/// The job that a cgroup lies in.
#[inline(always)]
pub fn cgroup(cgroup: Address) -> Option<u32> {
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

/// The job of a task that need not be the current one.
#[inline(always)]
pub fn task(task: Address) -> Option<u32> {
    cgroup(
        task.follow(offset!(task_struct_cgroups))?
            .follow(offset!(css_set_dfl_cgrp))?,
    )
}

/// The cgroup's id: its directory's inode number.
#[inline(always)]
pub fn id_of_cgroup(cgroup: Address) -> Option<u64> {
    cgroup
        .follow(offset!(cgroup_kn))?
        .read(offset!(kernfs_node_id))
}

/// The slot of a process that was seen joining a job.
#[inline(always)]
pub fn member(tgid: u32) -> Option<u32> {
    // SAFETY: the value is an integer; a stale one is the same process' own.
    unsafe { MEMBERS.get(tgid) }.copied()
}

/// The slot of a process that was seen joining a job, by the number of any of its threads.
#[inline(always)]
pub fn member_by_thread(tid: u32) -> Option<u32> {
    if let Some(slot) = member(tid) {
        return Some(slot);
    }
    // SAFETY: the value is an integer; threads are forgotten when they end.
    member(*unsafe { THREADS.get(tid) }?)
}

/// Remembers a further thread of a member; false when there is no room.
#[inline(always)]
pub fn thread_began(tid: u32, tgid: u32) -> bool {
    THREADS.insert(tid, tgid, 0).is_ok()
}

/// Forgets a thread; nothing to do when there was no room for it.
#[inline(always)]
pub fn thread_ended(tid: u32) {
    let _: Result<(), i32> = THREADS.remove(tid);
}

/// Remembers a member; false when there is no room.
#[inline(always)]
pub fn join(tgid: u32, slot: u32) -> bool {
    MEMBERS.insert(tgid, slot, 0).is_ok()
}

/// Forgets a member; nothing to do when it was none.
#[inline(always)]
pub fn leave(tgid: u32) {
    let _: Result<(), i32> = MEMBERS.remove(tgid);
}
