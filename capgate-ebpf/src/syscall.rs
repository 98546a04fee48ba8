//! The end of every system call: filter on the number, then on the job, then to the concern.

use aya_ebpf::{helpers::bpf_get_current_task_btf, macros::btf_tracepoint, programs::BtfTracePointContext};
use capgate_common::event::{UNSEEN_COMPAT, UNSEEN_IO_URING, UNSEEN_MOUNT};

use crate::{
    arch::{CLASSES, NUMBERS, REGS_ARGS, REGS_NR, STATUS_COMPAT, class},
    emit, file,
    kernel::{self, offset},
    name, process, scope, socket,
};

/// `struct pt_regs` of the call that ends.
#[derive(Clone, Copy)]
pub(crate) struct Regs(*const u8);

impl Regs {
    #[inline(always)]
    fn load(self, offset: usize) -> u64 {
        // SAFETY: a BTF-typed argument of the tracepoint: the verifier checks that the load lies inside pt_regs.
        unsafe { core::ptr::read_volatile(self.0.add(offset).cast()) }
    }

    /// An argument of the call, 0 to 5.
    #[inline(always)]
    pub(crate) fn arg<const N: usize>(self) -> u64 {
        self.load(REGS_ARGS[N])
    }
}

/// Kernel: `trace_sys_exit(struct pt_regs *regs, long ret)`.
#[btf_tracepoint(function = "sys_exit")]
pub fn sys_exit(ctx: BtfTracePointContext) -> i32 {
    try_sys_exit(&ctx);
    0
}

#[inline(always)]
fn try_sys_exit(ctx: &BtfTracePointContext) {
    let regs = Regs(ctx.arg(0));
    let number = regs.load(REGS_NR);
    let at = offset!(task_struct_thread_info_status);
    // SAFETY: the helper has no preconditions; the verifier checks that the load lies inside task_struct.
    let status: u32 = unsafe {
        let task: *const u8 = bpf_get_current_task_btf().cast();
        core::ptr::read_volatile(task.add(at).cast())
    };
    // Numbers of 32-bit and x32 calls mean other calls than ours.
    if status & STATUS_COMPAT != 0 || number >= NUMBERS as u64 {
        // Numbers that the kernel does not know come back as -ENOSYS; -1 is a call that seccomp or ptrace skipped.
        if let Some(slot) = scope::current() {
            let ret: i64 = ctx.arg::<u64>(1) as i64;
            if ret != -38 && number as i64 != -1 {
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
    dispatch(class, slot, regs, ret);
}

#[inline(always)]
fn dispatch(class: u8, slot: u32, regs: Regs, ret: i64) {
    if class == class::CONNECT || class == class::SENDTO || class == class::SENDMSG {
        // Attempts count, whatever came of them.
        socket::addressed(class, slot, regs, ret);
        return;
    }
    if ret < 0 {
        return;
    }
    if class < class::RENAME {
        file::opened(class, slot, regs, ret as u32);
    } else if class < class::SOCKET {
        name::named(class, slot, regs);
    } else {
        match class {
            class::SOCKET => socket::created(slot, regs, ret),
            class::BIND | class::LISTEN => socket::bound(class, slot, regs),
            class::SENDMMSG => socket::many(slot, regs, ret),
            class::RECVMSG => file::received(slot, regs),
            class::RECVMMSG => file::received_many(slot, regs, ret),
            class::PTRACE | class::PROCESS_VM => process::traced(class, slot, regs),
            class::IO_URING_SETUP => {
                if !kernel::io_uring_ops() {
                    emit::unseen(slot, UNSEEN_IO_URING, 255);
                }
            }
            class::MOUNT => emit::unseen(slot, UNSEEN_MOUNT, u64::from(class)),
            _ => {}
        }
    }
}
