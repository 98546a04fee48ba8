//! Files that come into the job's hands: opened for writing, created, truncated, received.

use aya_ebpf::helpers::generated::bpf_loop;
use capgate_common::event::{
    FILE_OPEN, FILE_RECEIVED, FileRecord, HOW_CREATED, HOW_TRUNCATE, HOW_WRITE, KIND_FILE,
    PTRACE_GETFD, UNSEEN_FD,
};

use crate::{
    arch::class,
    emit,
    kernel::{self, Address, Typed, file_of, mount_of, offset},
    process,
    record::{Draft, Owner, Syscall},
    regs::Regs,
    scope,
};

/// `FMODE_WRITE`, `FMODE_PATH`, `FMODE_CREATED` (include/linux/fs.h).
const FMODE_WRITE: u32 = 1 << 1;
const FMODE_PATH: u32 = 1 << 14;
const FMODE_CREATED: u32 = 1 << 20;
/// `O_TRUNC` (include/uapi/asm-generic/fcntl.h).
pub const O_TRUNC: u64 = 0o1000;

/// A call that returned a descriptor.
#[inline(always)]
pub fn opened(class: u8, slot: u32, regs: Regs, fd: u32) {
    if class == class::GETFD {
        process::reached(slot, PTRACE_GETFD, 0);
    }
    // open(2) drops O_TRUNC from f_flags once it has acted, so the call's own word counts.
    let flags = match class {
        class::OPEN | class::OPEN_BY_HANDLE => regs.arg::<1>(),
        class::OPENAT => regs.arg::<2>(),
        class::OPENAT2 => kernel::user::<u64>(regs.arg::<2>()).unwrap_or(O_TRUNC),
        class::CREAT => O_TRUNC,
        _ => 0,
    };
    let op = if class == class::GETFD {
        FILE_RECEIVED
    } else {
        FILE_OPEN
    };
    match file_of(fd) {
        Some(file) => record_here(slot, file, flags, op),
        // Another thread closed it already, or the tables cannot be read: which file it was is not known.
        None => {
            emit::attempted::<KIND_FILE>(slot);
            emit::lost::<KIND_FILE>(slot);
        }
    }
}

#[inline(never)]
fn record_here(slot: u32, file: Address, open_flags: u64, op: u16) {
    record::<Syscall>(slot, file, open_flags, op);
}

/// The kernel is about to open a file, for the current task's job if it has one. Once for each open: what overlayfs opens
/// below, for itself, is left out.
#[inline(always)]
pub fn opening<O: Owner>(file: Typed) {
    let mode: u32 = file.load(offset!(file_f_mode));
    let flags: u32 = file.load(offset!(file_f_flags));
    if mode & (FMODE_WRITE | FMODE_CREATED) == 0 && u64::from(flags) & O_TRUNC == 0 {
        return;
    }
    let Some(slot) = scope::current() else {
        return;
    };
    let file = Address::of(file);
    if is_of_a_layer(file) != Some(true) {
        record::<O>(slot, file, u64::from(flags), FILE_OPEN);
    }
}

/// Whether overlayfs opens a file of a layer: through a mount of no namespace, or on kernels before 6.5 by its own name with the layer's inode.
#[inline(always)]
fn is_of_a_layer(file: Address) -> Option<bool> {
    let [mount, dentry] = file.read::<[Address; 2]>(offset!(file_f_path))?;
    let mount = mount_of(mount);
    let namespace: Address = mount.read(offset!(mount_mnt_ns))?;
    let inode: Address = dentry.read(offset!(dentry_d_inode))?;
    Some(namespace.is_error() || inode != file.read::<Address>(offset!(file_f_inode))?)
}

/// The current task gets a file from another process.
#[inline(always)]
pub fn receiving<O: Owner>(file: Address) {
    if let Some(slot) = scope::current() {
        record::<O>(slot, file, 0, FILE_RECEIVED);
    }
}

/// Records a file when the job may change it.
#[inline(always)]
fn record<O: Owner>(slot: u32, file: Address, open_flags: u64, op: u16) {
    let Some(mode) = file.read::<u32>(offset!(file_f_mode)) else {
        emit::attempted::<KIND_FILE>(slot);
        emit::lost::<KIND_FILE>(slot);
        return;
    };
    if mode & FMODE_PATH != 0 {
        return;
    }
    let mut how = 0;
    if mode & FMODE_WRITE != 0 {
        how |= HOW_WRITE;
    }
    if op == FILE_OPEN {
        if mode & FMODE_CREATED != 0 {
            how |= HOW_CREATED;
        }
        if open_flags & O_TRUNC != 0 {
            how |= HOW_TRUNCATE;
        }
    }
    if how == 0 {
        return;
    }
    emit::attempted::<KIND_FILE>(slot);
    if try_record::<O>(slot, file, op, how).is_none() {
        emit::lost::<KIND_FILE>(slot);
    }
}

#[inline(always)]
fn try_record<O: Owner>(slot: u32, file: Address, op: u16, how: u16) -> Option<()> {
    let mut draft = Draft::<O, FileRecord>::new(slot)?;
    let inode = file.follow(offset!(file_f_inode))?;
    let path = draft.walk(file.at(offset!(file_f_path)));
    let front = draft.front(inode)?;
    let record = FileRecord {
        header: emit::header(KIND_FILE),
        ino: front.member(offset!(inode_i_ino))?,
        dev: front
            .member::<Address>(offset!(inode_i_sb))?
            .read(offset!(super_block_s_dev))?,
        generation: inode.read(offset!(inode_i_generation))?,
        mode: u32::from(front.member::<u16>(offset!(inode_i_mode))?),
        nlink: front.member(offset!(inode_i_nlink))?,
        path,
        op,
        how,
        rdev: front.member(offset!(inode_i_rdev))?,
        pad: 0,
    };
    draft.send::<KIND_FILE>(record);
    Some(())
}

/// `SOL_SOCKET`, `SCM_RIGHTS`, `AF_UNIX` (include/linux/socket.h).
const SOL_SOCKET: u32 = 1;
const SCM_RIGHTS: u32 = 1;
const AF_UNIX: u16 = 1;
/// Most descriptors of one message (include/net/scm.h).
const SCM_MAX_FD: u32 = 253;
/// Control headers that are looked at: credentials, security and pidfd may come before the descriptors.
const HEADERS: u32 = 4;

/// `struct user_msghdr` (include/linux/socket.h) and `struct cmsghdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MessageHeader {
    pub name: u64,
    pub name_len: u32,
    pad: u32,
    iov: u64,
    iov_len: u64,
    control: u64,
    control_len: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ControlHeader {
    len: u64,
    level: u32,
    kind: u32,
}

/// The descriptors of one control message.
#[repr(C)]
struct Received {
    list: u64,
    slot: u32,
    count: u32,
}

extern "C" fn receive_one(index: u64, received: *mut Received) -> i64 {
    // SAFETY: bpf_loop passes the pointer that `received` gave it, to a value that outlives the loop.
    let received = unsafe { &*received };
    if index >= u64::from(received.count) {
        return 1;
    }
    match kernel::user::<u32>(received.list + index * 4).and_then(file_of) {
        Some(file) => record_here(received.slot, file, 0, FILE_RECEIVED),
        None => emit::unseen(received.slot, UNSEEN_FD, 1),
    }
    0
}

/// recvmsg: descriptors that came along.
#[inline(always)]
pub fn received(slot: u32, regs: Regs) {
    let Some(sock) = kernel::sock_of(regs.arg::<0>() as u32) else {
        return;
    };
    if sock.family() != Some(AF_UNIX) {
        return;
    }
    let Some(message) = kernel::user::<MessageHeader>(regs.arg::<1>()) else {
        emit::unseen(slot, UNSEEN_FD, 0);
        return;
    };
    let mut at = message.control;
    let end = message.control.wrapping_add(message.control_len);
    let mut received = Received {
        list: 0,
        slot,
        count: 0,
    };
    for _ in 0..HEADERS {
        if end < at || end - at < 20 {
            break;
        }
        let Some(control) = kernel::user::<ControlHeader>(at) else {
            emit::unseen(slot, UNSEEN_FD, 0);
            return;
        };
        if control.level == SOL_SOCKET && control.kind == SCM_RIGHTS {
            received.list = at + 16;
            received.count = (control.len.wrapping_sub(16) / 4) as u32;
            break;
        }
        at = at.wrapping_add((control.len + 7) & !7);
    }
    if received.count == 0 {
        return;
    }
    if received.count > SCM_MAX_FD {
        emit::unseen(slot, UNSEEN_FD, u64::from(received.count));
    }
    // SAFETY: `receive_one` matches the callback that bpf_loop expects, `received` outlives the call.
    unsafe {
        bpf_loop(
            SCM_MAX_FD,
            receive_one as *mut _,
            (&raw mut received).cast(),
            0,
        );
    }
}

/// recvmmsg: control data is not followed through a list; that some came is said.
#[inline(always)]
pub fn received_many(slot: u32, regs: Regs, ret: i64) {
    let Some(sock) = kernel::sock_of(regs.arg::<0>() as u32) else {
        return;
    };
    if sock.family() == Some(AF_UNIX)
        && kernel::user::<MessageHeader>(regs.arg::<1>())
            .is_none_or(|message| message.control_len > 0)
    {
        emit::unseen(slot, UNSEEN_FD, ret as u64);
    }
}
