//! Programs that start.

use capgate_common::{
    event::{
        EXEC_ARGV_CUT, EXEC_ATTEMPT, EXEC_FIRST, EXEC_SCRIPT, ExecRecord, KIND_EXEC, Named, Walked,
    },
    limits::ARGV_CAP,
};

use crate::{
    emit,
    kernel::{self, Address, offset},
    name::cwd_or_root,
    path::FAULT,
    record::{Draft, Exec, Owner},
    scope,
};

/// The current task runs another program now; it was thread `was`.
#[inline(always)]
pub fn executed(was: u32, program: Address) {
    let Some(slot) = scope::current() else {
        return;
    };
    // A thread that executes takes the number of its process, and its own ends without an exit.
    if was != kernel::ids().0 {
        scope::thread_ended(was);
    }
    emit::attempted::<KIND_EXEC>(slot);
    if try_exec(slot, was, program).is_none() {
        emit::lost::<KIND_EXEC>(slot);
    }
}

/// The kernel is about to look for what runs a file of this `struct linux_binprm`: recorded when that is a script, whose
/// first bytes it has read.
#[inline(always)]
pub fn checked<O: Owner>(program: Address) {
    let Some(slot) = scope::current() else {
        return;
    };
    let begins: [u8; 2] = program.read(offset!(linux_binprm_buf)).unwrap_or_default();
    if begins != *b"#!" {
        return;
    }
    emit::attempted::<KIND_EXEC>(slot);
    if try_check::<O>(slot, program).is_none() {
        emit::lost::<KIND_EXEC>(slot);
    }
}

#[inline(always)]
fn try_check<O: Owner>(slot: u32, program: Address) -> Option<()> {
    let mut draft = Draft::<O, ExecRecord>::new(slot)?;
    let file = program.follow(offset!(linux_binprm_file))?;
    let inode = file.follow(offset!(file_f_inode))?;
    let first = program.follow(offset!(linux_binprm_filename))?
        == program.follow(offset!(linux_binprm_interp))?;
    let exe = draft.walk(file.at(offset!(file_f_path)));
    let record = ExecRecord {
        header: emit::header(KIND_EXEC),
        ino: inode.read(offset!(inode_i_ino))?,
        size: inode.read(offset!(inode_i_size))?,
        dev: inode
            .follow(offset!(inode_i_sb))?
            .read(offset!(super_block_s_dev))?,
        how: EXEC_ATTEMPT | if first { EXEC_FIRST } else { 0 },
        argv_len: 0,
        exe,
        name: Named::default(),
        was: 0,
        cwd: Walked::default(),
        pad: 0,
    };
    draft.send::<KIND_EXEC>(record);
    Some(())
}

#[inline(always)]
fn try_exec(slot: u32, was: u32, program: Address) -> Option<()> {
    let mut draft = Draft::<Exec, ExecRecord>::new(slot)?;
    let task = kernel::current();
    let file = program.follow(offset!(linux_binprm_file))?;
    let inode = file.follow(offset!(file_f_inode))?;
    let filename = program.follow(offset!(linux_binprm_filename))?;
    let interpreter = program.follow(offset!(linux_binprm_interp))?;
    let exe = draft.walk(file.at(offset!(file_f_path)));
    let start = filename.read::<u8>(0)?;
    let base = match cwd_or_root(start) {
        Some(path) => draft.walk(path),
        None => FAULT,
    };
    let (len, flags) = draft.kernel_string(filename.0);
    // Arguments may name files from there.
    let cwd = match cwd_or_root(0) {
        Some(path) if start == b'/' => draft.walk(path),
        _ => Walked::default(),
    };
    let mut how = if interpreter == filename {
        0
    } else {
        EXEC_SCRIPT
    };
    let argv_len = argv(&mut draft, task, &mut how);
    let record = ExecRecord {
        header: emit::header(KIND_EXEC),
        ino: inode.read(offset!(inode_i_ino))?,
        size: inode.read(offset!(inode_i_size))?,
        dev: inode
            .follow(offset!(inode_i_sb))?
            .read(offset!(super_block_s_dev))?,
        how,
        argv_len,
        exe,
        name: Named { base, len, flags },
        was,
        cwd,
        pad: 0,
    };
    draft.send::<KIND_EXEC>(record);
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
