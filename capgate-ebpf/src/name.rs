//! Changes of names.
//!
//! A call that has ended names files by string: a base directory from the kernel and the string from user memory. A thread that
//! rewrites it in between is believed; that is what `race_free: false` says. A change that is about to happen has the kernel's own
//! directory and entry; whether it happened is told later.

use capgate_common::event::{
    DoneRecord, KIND_DONE, KIND_NAME, NAME_ATTEMPT, NAME_CHMOD, NAME_CHOWN, NAME_EXEC, NAME_LINK,
    NAME_MKDIR, NAME_MKNOD, NAME_OPEN, NAME_REFUSED, NAME_RENAME, NAME_RMDIR, NAME_SYMLINK,
    NAME_TRUNCATE, NAME_UNLINK, NAME_XATTR, NameRecord, Named, PATH_TRUNCATED, Walked,
};

use crate::{
    arch::class,
    emit,
    file::O_TRUNC,
    kernel::{self, Address, Typed, file_of, offset},
    path::FAULT,
    record::{Draft, Owner, Syscall},
    regs::Regs,
    scope,
};

/// `AT_` values (include/uapi/linux/fcntl.h).
const AT_FDCWD: i32 = -100;
const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
const AT_REMOVEDIR: u64 = 0x200;

/// One call's names: string addresses and the descriptors that they start from.
struct Call {
    op: u16,
    arg: u32,
    first: (i32, u64),
    second: Option<(i32, u64)>,
}

#[inline(always)]
fn one(op: u16, dir: i32, string: u64, arg: u32) -> Call {
    Call {
        op,
        arg,
        first: (dir, string),
        second: None,
    }
}

#[inline(always)]
fn two(op: u16, first: (i32, u64), second: (i32, u64), arg: u32) -> Call {
    Call {
        op,
        arg,
        first,
        second: Some(second),
    }
}

#[inline(always)]
fn call(class: u8, regs: Regs) -> Option<Call> {
    let cwd = AT_FDCWD;
    let (a0, a1, a2, a3) = (
        regs.arg::<0>(),
        regs.arg::<1>(),
        regs.arg::<2>(),
        regs.arg::<3>(),
    );
    let a4 = regs.arg::<4>() as u32;
    let (d0, d1, d2) = (a0 as i32, a1 as i32, a2 as i32);
    Some(match class {
        class::RENAME => two(NAME_RENAME, (cwd, a0), (cwd, a1), 0),
        class::RENAMEAT => two(NAME_RENAME, (d0, a1), (d2, a3), 0),
        class::RENAMEAT2 => two(NAME_RENAME, (d0, a1), (d2, a3), a4),
        class::UNLINK => one(NAME_UNLINK, cwd, a0, 0),
        class::UNLINKAT if a2 & AT_REMOVEDIR != 0 => one(NAME_RMDIR, d0, a1, 0),
        class::UNLINKAT => one(NAME_UNLINK, d0, a1, 0),
        class::RMDIR => one(NAME_RMDIR, cwd, a0, 0),
        class::LINK => two(NAME_LINK, (cwd, a0), (cwd, a1), 0),
        class::LINKAT => two(NAME_LINK, (d0, a1), (d2, a3), a4),
        class::SYMLINK => two(NAME_SYMLINK, (cwd, a0), (cwd, a1), 0),
        class::SYMLINKAT => two(NAME_SYMLINK, (cwd, a0), (d1, a2), 0),
        class::MKNOD => one(NAME_MKNOD, cwd, a0, a1 as u32),
        class::MKNODAT => one(NAME_MKNOD, d0, a1, a2 as u32),
        class::MKDIR => one(NAME_MKDIR, cwd, a0, a1 as u32),
        class::MKDIRAT => one(NAME_MKDIR, d0, a1, a2 as u32),
        class::TRUNCATE => one(NAME_TRUNCATE, cwd, a0, 0),
        class::CHMOD => one(NAME_CHMOD, cwd, a0, a1 as u32),
        class::FCHMODAT => one(NAME_CHMOD, d0, a1, a2 as u32),
        class::CHOWN => one(NAME_CHOWN, cwd, a0, 0),
        class::LCHOWN => one(NAME_CHOWN, cwd, a0, AT_SYMLINK_NOFOLLOW),
        class::FCHOWNAT => one(NAME_CHOWN, d0, a1, a4),
        class::XATTR => one(NAME_XATTR, cwd, a0, 0),
        class::LXATTR => one(NAME_XATTR, cwd, a0, AT_SYMLINK_NOFOLLOW),
        _ => return None,
    })
}

/// `EPERM`, `ENOEXEC`, `EACCES`, `ETXTBSY`, `EROFS`, `ELIBBAD` (include/uapi/asm-generic/errno-base.h, errno.h).
const EPERM: i64 = 1;
const ENOEXEC: i64 = 8;
const EACCES: i64 = 13;
const ETXTBSY: i64 = 26;
const EROFS: i64 = 30;
const ELIBBAD: i64 = 80;

/// Whether a call executes a program.
#[inline(always)]
pub fn is_exec(class: u8) -> bool {
    class == class::EXECVE || class == class::EXECVEAT
}

/// Whether a call that failed was refused what it named, and not just mistaken about it: a search through `PATH` names much that is
/// not there.
#[inline(always)]
pub fn is_refused(class: u8, ret: i64) -> bool {
    let denied = ret == -EACCES || ret == -EPERM;
    match class {
        class::EXECVE | class::EXECVEAT => {
            denied || ret == -ENOEXEC || ret == -ETXTBSY || ret == -ELIBBAD
        }
        class::OPEN..=class::CREAT | class::RENAME..=class::TRUNCATE => denied || ret == -EROFS,
        _ => false,
    }
}

/// `O_ACCMODE`, `O_CREAT` (include/uapi/asm-generic/fcntl.h).
const O_ACCMODE: u64 = 0o3;
const O_CREAT: u64 = 0o100;

/// A call that named files and was refused: a change of names, an open for writing, an exec.
#[inline(always)]
pub fn refused(class: u8, slot: u32, regs: Regs) {
    let (a0, a1, a2) = (regs.arg::<0>(), regs.arg::<1>(), regs.arg::<2>());
    let (op, dir, string, flags) = match class {
        class::OPEN => (NAME_OPEN, AT_FDCWD, a0, a1),
        class::OPENAT => (NAME_OPEN, a0 as i32, a1, a2),
        class::OPENAT2 => {
            let flags = kernel::user::<u64>(a2).unwrap_or(O_TRUNC);
            (NAME_OPEN, a0 as i32, a1, flags)
        }
        class::CREAT => (NAME_OPEN, AT_FDCWD, a0, O_TRUNC),
        class::EXECVE => (NAME_EXEC, AT_FDCWD, a0, O_TRUNC),
        class::EXECVEAT => (NAME_EXEC, a0 as i32, a1, O_TRUNC),
        _ => {
            if let Some(call) = call(class, regs) {
                record(slot, &call, NAME_REFUSED);
            }
            return;
        }
    };
    if flags & (O_ACCMODE | O_CREAT | O_TRUNC) != 0 {
        record(slot, &one(op, dir, string, 0), NAME_REFUSED);
    }
}

/// `MAY_EXEC` (include/linux/fs.h).
const MAY_EXEC: u32 = 1;
/// `FMODE_EXEC` among the flags of an open (`__FMODE_EXEC`, include/linux/fs.h).
const FMODE_EXEC: u32 = 1 << 5;

/// A file was not opened for the current task: `ret` is the error, `name` a `struct filename` that starts from a descriptor, `how` a
/// `struct open_flags`. Recorded when it was refused, and was to be written or executed.
#[inline(always)]
pub fn open_refused<O: Owner>(ret: i64, dir: i32, name: Address, how: Address) {
    if !is_refused(class::EXECVE, ret) && ret != -EROFS {
        return;
    }
    let Some(slot) = scope::current() else {
        return;
    };
    let flags: u32 = how.read(offset!(open_flags_open_flag)).unwrap_or(u32::MAX);
    let access: u32 = how.read(offset!(open_flags_acc_mode)).unwrap_or(MAY_EXEC);
    let op = if flags & FMODE_EXEC != 0 && access & MAY_EXEC != 0 {
        NAME_EXEC
    } else if u64::from(flags) & (O_ACCMODE | O_CREAT | O_TRUNC) != 0 {
        NAME_OPEN
    } else {
        return;
    };
    emit::attempted::<KIND_NAME>(slot);
    if try_open_refused::<O>(slot, op, dir, name).is_none() {
        emit::lost::<KIND_NAME>(slot);
    }
}

#[inline(always)]
fn try_open_refused<O: Owner>(slot: u32, op: u16, dir: i32, name: Address) -> Option<()> {
    let mut draft = Draft::<O, NameRecord>::new(slot)?;
    let text: Address = name.read(offset!(filename_name))?;
    let base = match base_of(dir, text.read::<u8>(0)?) {
        Some(path) => draft.walk(path),
        None => FAULT,
    };
    let (len, flags) = draft.kernel_string(text.0);
    let record = NameRecord {
        header: emit::header(KIND_NAME),
        op,
        how: NAME_REFUSED,
        arg: 0,
        first: Named { base, len, flags },
        second: Named::default(),
    };
    draft.send::<KIND_NAME>(record);
    Some(())
}

/// A call that named files and succeeded.
#[inline(always)]
pub fn named(class: u8, slot: u32, regs: Regs) {
    if let Some(call) = call(class, regs) {
        record(slot, &call, 0);
    }
}

#[inline(always)]
fn record(slot: u32, call: &Call, how: u16) {
    emit::attempted::<KIND_NAME>(slot);
    if try_named(slot, call, how).is_none() {
        emit::lost::<KIND_NAME>(slot);
    }
}

#[inline(always)]
fn try_named(slot: u32, call: &Call, how: u16) -> Option<()> {
    let mut draft = Draft::<Syscall, NameRecord>::new(slot)?;
    let first = if call.op == NAME_SYMLINK {
        // The text of a symlink is data, not a name: it has no base.
        let (len, flags) = draft.user_string(call.first.1);
        Named {
            base: Walked::default(),
            len,
            flags,
        }
    } else {
        name(&mut draft, call.first.0, call.first.1)
    };
    let second = match call.second {
        Some((dir, string)) => name(&mut draft, dir, string),
        None => Named::default(),
    };
    let record = NameRecord {
        header: emit::header(KIND_NAME),
        op: call.op,
        how,
        arg: call.arg,
        first,
        second,
    };
    draft.send::<KIND_NAME>(record);
    Some(())
}

/// Appends the base that a string starts from, and the string.
#[inline(always)]
fn name<O: Owner, T>(draft: &mut Draft<O, T>, dir: i32, string: u64) -> Named {
    let start = kernel::user::<u8>(string).unwrap_or(0);
    let base = match base_of(dir, start) {
        Some(path) => draft.walk(path),
        None => FAULT,
    };
    let (len, flags) = draft.user_string(string);
    Named { base, len, flags }
}

/// The `struct path` that a name starts from, by its first byte and its directory descriptor.
#[inline(always)]
pub fn base_of(dir: i32, start: u8) -> Option<Address> {
    if start != b'/' && dir != AT_FDCWD {
        return Some(file_of(dir as u32)?.at(offset!(file_f_path)));
    }
    let fs = Typed::current().load::<Address>(offset!(task_struct_fs));
    Some(fs.at(if start == b'/' {
        offset!(fs_struct_root)
    } else {
        offset!(fs_struct_pwd)
    }))
}

/// The base of a name that starts at the working directory.
#[inline(always)]
pub fn cwd_or_root(start: u8) -> Option<Address> {
    base_of(AT_FDCWD, start)
}

/// A name in the kernel's hands: an entry (`struct dentry`) of a directory (`struct path`).
#[derive(Clone, Copy)]
pub struct Entry {
    pub dir: Address,
    pub dentry: Address,
}

/// What a change of names has beside the name itself.
#[derive(Clone, Copy)]
pub enum With {
    Nothing,
    /// The name that it is renamed to.
    Entry(Entry),
    /// The existing file that it becomes a link to, in the same mount.
    Source(Address),
    /// The text of the symbolic link.
    Text(Address),
}

/// The kernel is about to change a name for the current task.
#[inline(always)]
pub fn attempted<O: Owner>(op: u16, arg: u32, name: Entry, with: With) {
    let Some(slot) = scope::current() else {
        return;
    };
    emit::attempted::<KIND_NAME>(slot);
    if try_attempt::<O>(slot, op, arg, name, with).is_none() {
        emit::lost::<KIND_NAME>(slot);
    }
}

#[inline(always)]
fn try_attempt<O: Owner>(slot: u32, op: u16, arg: u32, name: Entry, with: With) -> Option<()> {
    let mut draft = Draft::<O, NameRecord>::new(slot)?;
    let (first, second) = match with {
        With::Nothing => (entry(&mut draft, name)?, Named::default()),
        With::Entry(second) => (entry(&mut draft, name)?, entry(&mut draft, second)?),
        With::Source(source) => {
            let mount = name.dir.follow(offset!(path_mnt))?;
            let base = draft.walk_in(mount, source);
            let source = Named {
                base,
                len: 0,
                flags: 0,
            };
            (source, entry(&mut draft, name)?)
        }
        With::Text(text) => {
            let (len, flags) = draft.kernel_string(text.0);
            let text = Named {
                base: Walked::default(),
                len,
                flags,
            };
            (text, entry(&mut draft, name)?)
        }
    };
    let record = NameRecord {
        header: emit::header(KIND_NAME),
        op,
        how: NAME_ATTEMPT,
        arg,
        first,
        second,
    };
    draft.send::<KIND_NAME>(record);
    Some(())
}

/// Appends a directory's path and an entry's name.
#[inline(always)]
fn entry<O: Owner>(draft: &mut Draft<O, NameRecord>, name: Entry) -> Option<Named> {
    /// `NAME_MAX` (limits.h).
    const MOST: u64 = 255;
    let base = draft.walk(name.dir);
    let len: u32 = name.dentry.read(offset!(dentry_d_name_len))?;
    let text: u64 = name.dentry.read(offset!(dentry_d_name_name))?;
    let whole = u64::from(len) <= MOST;
    let read = draft.kernel_bytes::<MOST>(text, u64::from(len));
    Some(Named {
        base,
        len: read.unwrap_or(0),
        flags: if whole && read.is_some() {
            0
        } else {
            PATH_TRUNCATED
        },
    })
}

/// A change of names could not be looked at.
#[inline(always)]
pub fn overlooked(slot: u32) {
    emit::attempted::<KIND_NAME>(slot);
    emit::lost::<KIND_NAME>(slot);
}

/// The change that the current task attempted last has succeeded.
#[inline(always)]
pub fn done(op: u16) {
    let Some(slot) = scope::current() else {
        return;
    };
    let record = DoneRecord {
        header: emit::header(KIND_DONE),
        op,
        pad: [0; 3],
    };
    emit::send_fixed::<_, KIND_DONE>(slot, &record);
}

/// Where a file is that was changed: its `struct path`, or its entry alone.
#[derive(Clone, Copy)]
pub enum Place {
    Path(Address),
    Dentry(Address),
}

/// A file was changed by its name, or its mode, owner or attributes were.
#[inline(always)]
pub fn changed<O: Owner>(op: u16, arg: u32, place: Place) {
    let Some(slot) = scope::current() else {
        return;
    };
    emit::attempted::<KIND_NAME>(slot);
    if try_change::<O>(slot, op, arg, place).is_none() {
        emit::lost::<KIND_NAME>(slot);
    }
}

#[inline(always)]
fn try_change<O: Owner>(slot: u32, op: u16, arg: u32, place: Place) -> Option<()> {
    let mut draft = Draft::<O, NameRecord>::new(slot)?;
    let base = match place {
        Place::Path(path) => draft.walk(path),
        Place::Dentry(dentry) => draft.walk_dentry(dentry),
    };
    let record = NameRecord {
        header: emit::header(KIND_NAME),
        op,
        how: 0,
        arg,
        first: Named {
            base,
            len: 0,
            flags: 0,
        },
        second: Named::default(),
    };
    draft.send::<KIND_NAME>(record);
    Some(())
}
