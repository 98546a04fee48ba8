//! Processes: made, ended, moved between cgroups, reached into.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use aya_log_ebpf::warn;
use capgate_common::event::{
    ExitRecord, ForkRecord, KIND_EXIT, KIND_FORK, KIND_MOVE, KIND_PTRACE, MoveRecord,
    PTRACE_ATTACH, PTRACE_VM, PtraceRecord, UNSEEN_IO_URING,
};

use crate::{
    arch::class,
    emit,
    kernel::{self, Address, offset},
    scope::{self, NONE},
    syscall::Regs,
};

/// Kernel: `trace_sched_process_fork(struct task_struct *parent, struct task_struct *child)`.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
    if let Some(slot) = scope::current()
        && !forked(slot, Address(ctx.arg::<u64>(1)))
    {
        warn!(&ctx, "no room to remember the members of job {}", slot);
    }
    0
}

/// Records a new process; false when there was no room to remember it as a member.
#[inline(always)]
fn forked(slot: u32, child: Address) -> bool {
    let tgid: u32 = child.read(offset!(task_struct_tgid)).unwrap_or(0);
    let tid: u32 = child.read(offset!(task_struct_pid)).unwrap_or(0);
    if tid != tgid {
        scope::thread_began(tid, tgid);
        return true;
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
    if outside || scope::join(tgid, slot) {
        return true;
    }
    // Whether it leaves the job could not be told.
    emit::attempted::<KIND_MOVE>(slot);
    emit::lost::<KIND_MOVE>(slot);
    false
}

/// Kernel: `trace_sched_process_exit(struct task_struct *p)`, in do_exit of each thread.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn sched_process_exit(ctx: BtfTracePointContext) -> i32 {
    if let Some(slot) = scope::current() {
        exited(slot, Address(ctx.arg::<u64>(0)));
    }
    0
}

#[inline(always)]
fn exited(slot: u32, task: Address) {
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

/// Kernel: `trace_cgroup_attach_task(struct cgroup *dst_cgrp, const char *path, struct task_struct *task, bool threadgroup)`.
/// Runs when the task is in its new place, and for moves in v1 hierarchies too.
#[btf_tracepoint(function = "cgroup_attach_task")]
pub fn cgroup_attach_task(ctx: BtfTracePointContext) -> i32 {
    let _: Option<()> = try_attach(Address(ctx.arg::<u64>(0)), Address(ctx.arg::<u64>(2)));
    0
}

#[inline(always)]
fn try_attach(cgroup: Address, task: Address) -> Option<()> {
    // The v2 hierarchy has id 0 (kernel/cgroup/cgroup.c).
    if cgroup
        .follow(offset!(cgroup_root))?
        .read::<i32>(offset!(cgroup_root_hierarchy_id))?
        != 0
    {
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

/// `PTRACE_ATTACH`, `PTRACE_SEIZE` (include/uapi/linux/ptrace.h).
const REQUEST_ATTACH: u64 = 16;
const REQUEST_SEIZE: u64 = 0x4206;

/// ptrace or process_vm_readv, process_vm_writev succeeded.
#[inline(always)]
pub(crate) fn traced(class: u8, slot: u32, regs: Regs) {
    if class == class::PROCESS_VM {
        reached(slot, PTRACE_VM, regs.arg::<0>() as u32);
    } else if regs.arg::<0>() == REQUEST_ATTACH || regs.arg::<0>() == REQUEST_SEIZE {
        reached(slot, PTRACE_ATTACH, regs.arg::<1>() as u32);
    }
}

/// The job got hold of another process.
#[inline(always)]
pub(crate) fn reached(slot: u32, op: u32, target: u32) {
    // The target is named in the caller's pid namespace, so only a hit says something here.
    let inside = u32::from(scope::member_by_thread(target).unwrap_or(NONE) == slot);
    let record = PtraceRecord {
        header: emit::header(KIND_PTRACE),
        op,
        target,
        inside,
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

/// Kernel (6.3 and later): `trace_io_uring_submit_req(struct io_kiocb *req)`. Workers and the polling thread are
/// threads of the submitter, in its cgroup.
#[btf_tracepoint(function = "io_uring_submit_req")]
pub fn io_uring_submit_req(ctx: BtfTracePointContext) -> i32 {
    if let Some(slot) = scope::current() {
        let request = Address(ctx.arg::<u64>(0));
        let opcode = request
            .read::<u8>(offset!(io_kiocb_opcode))
            .unwrap_or(u8::MAX);
        if opcode >= 64 || HARMLESS & (1u64 << (opcode & 63)) == 0 {
            emit::unseen(slot, UNSEEN_IO_URING, u64::from(opcode));
        }
    }
    0
}
