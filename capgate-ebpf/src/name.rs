//! Changes of names.
//!
//! A call that has ended names files by string: a base directory from the kernel and the string from user memory. A thread that
//! rewrites it in between is believed; that is what `race_free: false` says. A change that is about to happen has the kernel's own
//! directory and entry; whether it happened is told later.

use capgate_common::event::{
    DoneRecord, KIND_DONE, KIND_NAME, NAME_ATTEMPT, NAME_CHMOD, NAME_CHOWN, NAME_LINK, NAME_MKDIR,
    NAME_MKNOD, NAME_RENAME, NAME_RMDIR, NAME_SYMLINK, NAME_TRUNCATE, NAME_UNLINK, NAME_XATTR,
    NameRecord, Named, PATH_TRUNCATED, Walked,
};

use crate::{
    arch::class,
    emit,
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

/// A call that named files and succeeded.
#[inline(always)]
pub fn named(class: u8, slot: u32, regs: Regs) {
    let Some(call) = call(class, regs) else {
        return;
    };
    emit::attempted::<KIND_NAME>(slot);
    if try_named(slot, &call).is_none() {
        emit::lost::<KIND_NAME>(slot);
    }
}

#[inline(always)]
fn try_named(slot: u32, call: &Call) -> Option<()> {
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
        how: 0,
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
