//! Programs that start.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use capgate_common::{
    event::{EXEC_ARGV_CUT, EXEC_SCRIPT, ExecRecord, KIND_EXEC, Named, PATH_FAULT, Walked},
    limits::ARGV_CAP,
};

use crate::{
    emit,
    kernel::{self, Address, offset},
    name::cwd_or_root,
    record::{Draft, Exec},
    scope,
};

/// Kernel: `trace_sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn sched_process_exec(ctx: BtfTracePointContext) -> i32 {
    if let Some(slot) = scope::current() {
        // A thread that executes takes the number of its process, and its own ends without an exit.
        let was = ctx.arg::<u64>(1) as u32;
        if was != kernel::ids().0 {
            scope::thread_ended(was);
        }
        emit::attempted::<KIND_EXEC>(slot);
        if try_exec(slot, Address(ctx.arg::<u64>(2))).is_none() {
            emit::lost::<KIND_EXEC>(slot);
        }
    }
    0
}

#[inline(always)]
fn try_exec(slot: u32, program: Address) -> Option<()> {
    let mut draft = Draft::<Exec, ExecRecord>::new()?;
    let task = kernel::current();
    let file = program.follow(offset!(linux_binprm_file))?;
    let inode = file.follow(offset!(file_f_inode))?;
    let filename = program.follow(offset!(linux_binprm_filename))?;
    let interpreter = program.follow(offset!(linux_binprm_interp))?;
    let exe = draft.walk(file.at(offset!(file_f_path)));
    let base = match cwd_or_root(filename.read::<u8>(0)?) {
        Some(path) => draft.walk(path),
        None => Walked {
            len: 0,
            flags: PATH_FAULT,
        },
    };
    let (len, flags) = draft.kernel_string(filename.0);
    let mut how = if interpreter == filename {
        0
    } else {
        EXEC_SCRIPT
    };
    let argv_len = argv(&mut draft, task, &mut how);
    let record = ExecRecord {
        header: emit::header(KIND_EXEC),
        ino: inode.read(offset!(inode_i_ino))?,
        dev: inode
            .follow(offset!(inode_i_sb))?
            .read(offset!(super_block_s_dev))?,
        how,
        argv_len,
        exe,
        name: Named { base, len, flags },
        pad: 0,
    };
    // SAFETY: scratch memory is larger than any record and aligned for it.
    unsafe { draft.fixed().write(record) };
    draft.send::<KIND_EXEC>(slot);
    Some(())
}

/// Appends the arguments from the new program's memory, where the kernel has just put them.
#[inline(always)]
fn argv(draft: &mut Draft<Exec, ExecRecord>, task: Address, how: &mut u16) -> u16 {
    const MOST: u64 = ARGV_CAP as u64 - 1;
    let bounds = || {
        let mm = task.follow(offset!(task_struct_mm))?;
        Some((
            mm.read::<u64>(offset!(mm_struct_arg_start))?,
            mm.read::<u64>(offset!(mm_struct_arg_end))?,
        ))
    };
    let Some((start, end)) = bounds() else {
        *how |= EXEC_ARGV_CUT;
        return 0;
    };
    let mut len = end.wrapping_sub(start);
    if len > MOST {
        len = MOST;
        *how |= EXEC_ARGV_CUT;
    }
    match draft.user_bytes::<MOST>(start, len) {
        Some(len) => len,
        None => {
            *how |= EXEC_ARGV_CUT;
            0
        }
    }
}
