//! The `tracepoint` set: the end of every system call, filtered on the number, then on the job, then handed to the concern.
#![no_std]
#![no_main]

#[path = "../shared.rs"]
mod shared;

use aya_ebpf::{
    btf_maps::{PerCpuArray, ProgramArray},
    macros::{btf_map, btf_tracepoint},
    programs::BtfTracePointContext,
};
use aya_log_ebpf::warn;
use capgate_common::event::{
    KIND_FILE, UNSEEN_COMPAT, UNSEEN_IO_URING, UNSEEN_KERNEL, UNSEEN_MOUNT,
};
use capgate_ebpf::{
    arch::{self, CLASSES, NUMBERS, class},
    emit, file,
    kernel::{self, Address, Typed},
    name, process,
    regs::Regs,
    root, scope, socket,
};

/// Kernel: `trace_sys_exit(struct pt_regs *regs, long ret)`.
#[btf_tracepoint(function = "sys_exit")]
pub fn sys_exit(ctx: BtfTracePointContext) -> i32 {
    try_sys_exit(&ctx);
    0
}

#[inline(always)]
fn try_sys_exit(ctx: &BtfTracePointContext) {
    let number = Regs::new(ctx.arg(0)).number();
    // Numbers of 32-bit and x32 calls mean other calls than ours.
    if arch::is_compat(Typed::current()) || number >= NUMBERS as u64 {
        // Numbers that the kernel does not know come back as -ENOSYS.
        if let Some(slot) = scope::current() {
            let ret: i64 = ctx.arg::<u64>(1) as i64;
            if ret != -38 && number != arch::SKIPPED {
                emit::unseen(slot, UNSEEN_COMPAT, number);
            }
        }
        return;
    }
    let class = CLASSES[number as usize];
    if class == 0 {
        return;
    }
    let Some(slot) = scope::current() else { return };
    let ret: i64 = ctx.arg::<u64>(1) as i64;
    dispatch(ctx, class, slot, ret);
}

/// `BPF_OBJ_PIN` of `enum bpf_cmd` (include/uapi/linux/bpf.h).
const BPF_OBJ_PIN: u64 = 6;

/// What the first program found out, for the one that it hands over to. Both run on one CPU, not preempted.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handover {
    slot: u32,
    class: u32,
}

#[btf_map]
static HANDOVER: PerCpuArray<Handover, 1> = PerCpuArray::new();

/// The second programs, by [`CONCERNS`] index. Each is small enough for the verifier; together they are not.
#[btf_map]
static CONCERNS: ProgramArray<8> = ProgramArray::new();

#[inline(always)]
fn dispatch(ctx: &BtfTracePointContext, class: u8, slot: u32, ret: i64) {
    let attempt = class == class::CONNECT || class == class::SENDTO || class == class::SENDMSG;
    // Attempts to reach a peer count, whatever came of them. Most are inet, which the cgroup hooks see.
    if attempt {
        if socket::is_inet(Regs::new(ctx.arg(0)).arg::<0>() as u32) {
            return;
        }
    } else if ret < 0 && !name::is_refused(class, ret) || ret >= 0 && name::is_exec(class) {
        // A program that started is told of by its own hook.
        return;
    }
    let concern = match class {
        _ if ret < 0 && !attempt => CONCERN_REFUSED,
        class::IO_URING_SETUP => {
            if !kernel::io_uring_ops() {
                emit::unseen(slot, UNSEEN_IO_URING, 255);
            }
            return;
        }
        // What it does to a mount namespace of its own, the walk by identity takes no notice of.
        class::MOUNT => {
            if root::of(slot).is_none_or(|root| root.namespace == kernel::mount_namespace().0) {
                emit::unseen(slot, UNSEEN_MOUNT, 0);
            }
            return;
        }
        // acct names a file that the kernel appends to, fanotify_init hands out descriptors, and bpf can make files.
        class::KERNEL_WRITES => return emit::unseen(slot, UNSEEN_KERNEL, 0),
        class::BPF => {
            if Regs::new(ctx.arg(0)).arg::<0>() == BPF_OBJ_PIN {
                emit::unseen(slot, UNSEEN_KERNEL, 0);
            }
            return;
        }
        class::OPEN..class::RENAME => CONCERN_OPENED,
        class::RENAME..class::SOCKET => CONCERN_NAMED,
        class::SENDMMSG => CONCERN_SENT_MANY,
        class::RECVMSG | class::RECVMMSG => CONCERN_RECEIVED,
        class::PTRACE | class::PROCESS_VM => CONCERN_TRACED,
        _ if attempt => CONCERN_ADDRESSED,
        _ => CONCERN_SOCKET,
    };
    if let Some(handover) = HANDOVER.get_ptr_mut(0) {
        // SAFETY: the pointer comes from a successful lookup; nobody else uses this CPU's value now.
        unsafe {
            *handover = Handover {
                slot,
                class: u32::from(class),
            }
        };
        // SAFETY: the context is the program's own. Returns only when there is no such program.
        unsafe { CONCERNS.tail_call(ctx, concern) };
    }
    emit::attempted::<KIND_FILE>(slot);
    emit::lost::<KIND_FILE>(slot);
}

macro_rules! concerns {
    ($($index:ident = $value:literal, $program:ident($class:ident, $slot:ident, $regs:ident, $ret:ident) $body:block)+) => {
        $(
            const $index: u32 = $value;

            /// One concern of [`sys_exit`], reached by a tail call.
            #[btf_tracepoint(function = "sys_exit")]
            pub fn $program(ctx: BtfTracePointContext) -> i32 {
                if let Some(handover) = HANDOVER.get(0) {
                    let ($class, $slot) = (handover.class as u8, handover.slot);
                    let $regs = Regs::new(ctx.arg(0));
                    let $ret = ctx.arg::<u64>(1) as i64;
                    $body
                }
                0
            }
        )+
    };
}

concerns! {
    CONCERN_OPENED = 0, opened(class, slot, regs, ret) { file::opened(class, slot, regs, ret as u32); }
    CONCERN_NAMED = 1, named(class, slot, regs, _ret) { name::named(class, slot, regs); }
    CONCERN_SOCKET = 2, socket(class, slot, regs, ret) {
        if class == class::SOCKET {
            let (family, sock_type) = (regs.arg::<0>() as u16, regs.arg::<1>() as u32);
            socket::created(slot, family, sock_type, regs.arg::<2>() as u16, ret as i32);
        } else {
            socket::bound(class, slot, regs);
        }
    }
    CONCERN_ADDRESSED = 3, addressed(class, slot, regs, ret) { socket::addressed(class, slot, regs, ret); }
    CONCERN_SENT_MANY = 4, sent_many(_class, slot, regs, ret) { socket::sent_many(slot, regs, ret); }
    CONCERN_RECEIVED = 5, received(class, slot, regs, ret) {
        if class == class::RECVMSG {
            file::received(slot, regs);
        } else {
            file::received_many(slot, regs, ret);
        }
    }
    CONCERN_TRACED = 6, traced(class, slot, regs, _ret) { process::traced(class, slot, regs); }
    CONCERN_REFUSED = 7, refused(class, slot, regs, _ret) { name::refused(class, slot, regs); }
}

/// Kernel: `trace_sched_process_fork(struct task_struct *parent, struct task_struct *child)`.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
    if let Some(slot) = scope::current()
        && !process::forked::<true>(slot, Address(ctx.arg::<u64>(1)))
    {
        warn!(&ctx, "no room to remember the members of job {}", slot);
    }
    0
}

/// Kernel: `trace_cgroup_attach_task(struct cgroup *dst_cgrp, const char *path, struct task_struct *task, bool threadgroup)`.
/// Runs when the task is in its new place, and for moves in v1 hierarchies too.
#[btf_tracepoint(function = "cgroup_attach_task")]
pub fn cgroup_attach_task(ctx: BtfTracePointContext) -> i32 {
    process::moved(Address(ctx.arg::<u64>(0)), Address(ctx.arg::<u64>(2)));
    0
}

/// Kernel (6.3 and later): `trace_io_uring_submit_req(struct io_kiocb *req)`.
#[btf_tracepoint(function = "io_uring_submit_req")]
pub fn io_uring_submit_req(ctx: BtfTracePointContext) -> i32 {
    process::uring_submitted(Address(ctx.arg::<u64>(0)));
    0
}
