//! Processes: made, ended, moved between cgroups, reached into.

use capgate_common::event::{
    ExitRecord, ForkRecord, KIND_EXIT, KIND_FORK, KIND_MOVE, KIND_PTRACE, MoveRecord,
    PTRACE_ATTACH, PTRACE_INSIDE, PTRACE_OUTSIDE, PTRACE_VM, PtraceRecord, UNSEEN_IO_URING,
};

use crate::{
    arch::class,
    emit,
    kernel::{self, Address, offset},
    regs::Regs,
    scope::{self, NONE},
};

/// Records a new process, and with `REMEMBER` keeps it in mind as a member: for a set that sees the kernel name a process by
/// number, or only after it has moved. False when there was no room for that.
#[inline(always)]
pub fn forked<const REMEMBER: bool>(slot: u32, child: Address) -> bool {
    let tgid: u32 = child.read(offset!(task_struct_tgid)).unwrap_or(0);
    let tid: u32 = child.read(offset!(task_struct_pid)).unwrap_or(0);
    if tid != tgid {
        return !REMEMBER || scope::thread_began(tid, tgid) || forgotten(slot);
    }
    // clone3 can put the child into another cgroup (CLONE_INTO_CGROUP).
    let outside = scope::task(child).unwrap_or(NONE) != slot;
    let record = ForkRecord {
        header: emit::header(KIND_FORK),
        child_start_ns: child.read(offset!(task_struct_start_boottime)).unwrap_or(0),
        child_tgid: tgid,
        outside: u32::from(outside),
    };
    emit::send_fixed::<_, KIND_FORK>(slot, &record);
    if !REMEMBER || outside || scope::join(tgid, slot) {
        return true;
    }
    forgotten(slot)
}

/// There was no room for a member: whether it leaves the job, or others reach out of the job to it, cannot be told.
#[inline(always)]
fn forgotten(slot: u32) -> bool {
    emit::attempted::<KIND_MOVE>(slot);
    emit::lost::<KIND_MOVE>(slot);
    false
}

/// A thread of the current task's job ends.
#[inline(always)]
pub fn exited(task: Address) {
    let Some(slot) = scope::current() else {
        return;
    };
    // do_exit counts the live threads down before the tracepoint; the process has ended with the last.
    let live = task
        .follow(offset!(task_struct_signal))
        .and_then(|signal| signal.read::<u32>(offset!(signal_struct_live)));
    let (tgid, tid) = kernel::ids();
    if tid != tgid {
        scope::thread_ended(tid);
    }
    if live.unwrap_or(0) != 0 {
        return;
    }
    let header = emit::header(KIND_EXIT);
    scope::leave(tgid);
    let record = ExitRecord {
        header,
        exit_code: task.read(offset!(task_struct_exit_code)).unwrap_or(0),
        pad: 0,
    };
    emit::send_fixed::<_, KIND_EXIT>(slot, &record);
}

/// A task is in another cgroup now: in the v2 hierarchy, or in a v1 one, which does not matter. Told by whose members were
/// remembered.
#[inline(always)]
pub fn moved(cgroup: Address, task: Address) -> Option<()> {
    if !is_unified(cgroup)? {
        return None;
    }
    let tgid: u32 = task.read(offset!(task_struct_tgid))?;
    let was = scope::member(tgid).unwrap_or(NONE);
    let is = scope::cgroup(cgroup).unwrap_or(NONE);
    if was == is {
        return None;
    }
    let mut record = MoveRecord {
        header: emit::header(KIND_MOVE),
        cgroup: scope::id_of_cgroup(cgroup).unwrap_or(0),
        moved_tgid: tgid,
        left: 1,
    };
    if was != NONE {
        scope::leave(tgid);
        emit::send_fixed::<_, KIND_MOVE>(was, &record);
    }
    if is != NONE {
        record.left = 0;
        emit::send_fixed::<_, KIND_MOVE>(is, &record);
        if !scope::join(tgid, is) {
            emit::attempted::<KIND_MOVE>(is);
            emit::lost::<KIND_MOVE>(is);
        }
    }
    Some(())
}

/// A task, with its whole process or alone, is about to be moved into a cgroup of any hierarchy.
#[inline(always)]
pub fn moving(cgroup: Address, task: Address) -> Option<()> {
    if !is_unified(cgroup)? {
        return None;
    }
    let was = scope::task(task).unwrap_or(NONE);
    let is = scope::cgroup(cgroup).unwrap_or(NONE);
    if was == is {
        return None;
    }
    let mut record = MoveRecord {
        header: emit::header(KIND_MOVE),
        cgroup: scope::id_of_cgroup(cgroup).unwrap_or(0),
        moved_tgid: task.read(offset!(task_struct_tgid))?,
        left: 1,
    };
    if was != NONE {
        emit::send_fixed::<_, KIND_MOVE>(was, &record);
    }
    if is != NONE {
        record.left = 0;
        emit::send_fixed::<_, KIND_MOVE>(is, &record);
    }
    Some(())
}

/// Whether a cgroup is of the v2 hierarchy, which has id 0 (kernel/cgroup/cgroup.c).
#[inline(always)]
fn is_unified(cgroup: Address) -> Option<bool> {
    let root = cgroup.follow(offset!(cgroup_root))?;
    Some(root.read::<i32>(offset!(cgroup_root_hierarchy_id))? == 0)
}

/// `PTRACE_ATTACH`, `PTRACE_SEIZE` (include/uapi/linux/ptrace.h).
const REQUEST_ATTACH: u64 = 16;
const REQUEST_SEIZE: u64 = 0x4206;

/// ptrace or process_vm_readv, process_vm_writev succeeded.
#[inline(always)]
pub fn traced(class: u8, slot: u32, regs: Regs) {
    if class == class::PROCESS_VM {
        reached(slot, PTRACE_VM, regs.arg::<0>() as u32);
    } else if regs.arg::<0>() == REQUEST_ATTACH || regs.arg::<0>() == REQUEST_SEIZE {
        reached(slot, PTRACE_ATTACH, regs.arg::<1>() as u32);
    }
}

/// The job got hold of another process; `target` is 0 when the call had a descriptor of it.
#[inline(always)]
pub fn reached(slot: u32, op: u32, target: u32) {
    let inside = if target == 0 {
        0
    } else if scope::member_by_thread(target).unwrap_or(NONE) == slot {
        PTRACE_INSIDE
    } else if kernel::is_in_first_pid_namespace() {
        // Every member is known by its number there.
        PTRACE_OUTSIDE
    } else {
        0
    };
    let record = PtraceRecord {
        header: emit::header(KIND_PTRACE),
        op,
        target,
        inside,
        pad: 0,
    };
    emit::send_fixed::<_, KIND_PTRACE>(slot, &record);
}

/// `PTRACE_MODE_ATTACH` (include/linux/ptrace.h): more than a look.
const MODE_ATTACH: u32 = 2;

/// The kernel is about to let the current task reach into another, by ptrace, process_vm_readv and its like, `/proc/PID/mem` or
/// pidfd_getfd.
#[inline(always)]
pub fn reaching(slot: u32, target: Address, mode: u32) {
    if mode & MODE_ATTACH == 0 {
        return;
    }
    let inside = scope::task(target).unwrap_or(NONE) == slot;
    let record = PtraceRecord {
        header: emit::header(KIND_PTRACE),
        op: PTRACE_ATTACH,
        target: target.read(offset!(task_struct_tgid)).unwrap_or(0),
        inside: if inside {
            PTRACE_INSIDE
        } else {
            PTRACE_OUTSIDE
        },
        pad: 0,
    };
    emit::send_fixed::<_, KIND_PTRACE>(slot, &record);
}

/// io_uring opcodes (include/uapi/linux/io_uring.h) that act on descriptors which the job already has, or
/// that the inet hooks see: bit n stands for opcode n. NOP to POLL_REMOVE, SYNC_FILE_RANGE, RECVMSG to
/// ASYNC_CANCEL, LINK_TIMEOUT, FALLOCATE, CLOSE to WRITE but for nothing between, FADVISE, MADVISE, RECV,
/// EPOLL_CTL to REMOVE_BUFFERS, TEE, SHUTDOWN, and waiting and reading forms added later.
const HARMLESS: u64 = bits(&[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 22, 23, 24, 25, 27, 29, 30,
    31, 32, 33, 34, 49, 50, 51, 52, 55, 58, 59, 60,
]);

const fn bits(opcodes: &[u8]) -> u64 {
    let mut mask = 0;
    let mut i = 0;
    while i < opcodes.len() {
        mask |= 1 << opcodes[i];
        i += 1;
    }
    mask
}

/// An io_uring operation is submitted. Workers and the polling thread are threads of the submitter, in its cgroup.
#[inline(always)]
pub fn uring_submitted(request: Address) {
    let Some(slot) = scope::current() else {
        return;
    };
    let opcode = request
        .read::<u8>(offset!(io_kiocb_opcode))
        .unwrap_or(u8::MAX);
    if opcode >= 64 || HARMLESS & (1u64 << (opcode & 63)) == 0 {
        emit::unseen(slot, UNSEEN_IO_URING, u64::from(opcode));
    }
}
