//! The dentry and mount walk: from a `struct path` to components, leaf first, as the kernel has them now.
//!
//! Nothing is locked. A rename in another task at the same moment can make a walk see both sides of it.

use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_kernel};
use capgate_common::{
    event::{
        PATH_ABSOLUTE, PATH_FAULT, PATH_FOREIGN, PATH_INTERNAL, PATH_TRUNCATED, PATH_UNHASHED,
        Walked,
    },
    limits::{WALK_CAP, WALK_STEPS},
};

use crate::{
    kernel::{Address, mount_namespace, offset},
    record::{Draft, LAST, Owner, Scratch},
};

/// State between steps.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    dentry: Address,
    mount: Address,
    mount_root: Address,
    /// The first byte that this walk must not fill.
    limit: u64,
    flags: u64,
}

/// `d_parent` and `d_name` of a dentry, which stand side by side (checked when offsets are read).
#[repr(C)]
#[derive(Clone, Copy)]
struct Link {
    parent: Address,
    hash: u32,
    len: u32,
    name: u64,
}

const GO_ON: i64 = 0;
const STOP: i64 = 1;

extern "C" fn step<O: Owner>(_index: u64, _context: u64) -> i64 {
    let Some(scratch) = O::scratch() else {
        return STOP;
    };
    // SAFETY: the pointer comes from a successful lookup, and the programs that own it are not interrupted by
    // each other.
    let scratch = unsafe { &mut *scratch };
    match try_step(scratch) {
        Some(next) => next,
        None => {
            scratch.walk.flags |= u64::from(PATH_FAULT);
            STOP
        }
    }
}

#[inline(always)]
fn try_step(scratch: &mut Scratch) -> Option<i64> {
    let dentry = scratch.walk.dentry;
    if dentry == scratch.walk.mount_root {
        let mount = scratch.walk.mount;
        let parent = mount.follow(offset!(mount_mnt_parent))?;
        if parent == mount {
            scratch.walk.flags |= top(mount.read(offset!(mount_mnt_ns))?);
            return Some(STOP);
        }
        scratch.walk.dentry = mount.follow(offset!(mount_mnt_mountpoint))?;
        scratch.walk.mount = parent;
        scratch.walk.mount_root = parent.follow(offset!(mount_mnt) + offset!(vfsmount_mnt_root))?;
        return Some(GO_ON);
    }
    let link = dentry.read::<Link>(offset!(dentry_d_parent))?;
    let end = scratch.end;
    if end + 256 > scratch.walk.limit || end > LAST {
        scratch.walk.flags |= u64::from(PATH_TRUNCATED);
        return Some(STOP);
    }
    if link.len > 255 {
        return None;
    }
    let len = link.len & 0xff;
    // SAFETY: `end` is at most LAST, with more than 256 bytes of room behind it.
    unsafe {
        let to = scratch.bytes.as_mut_ptr().add((end & LAST) as usize);
        *to = len as u8;
        if bpf_probe_read_kernel(to.add(1).cast(), len, link.name as *const _) < 0 {
            return None;
        }
    }
    scratch.end = end + u64::from(len) + 1;
    if link.parent == dentry {
        // The top of a tree that is not mounted here: an internal file, or a mount that was left behind.
        let top = top(scratch.walk.mount.read(offset!(mount_mnt_ns))?);
        scratch.walk.flags |= top & u64::from(PATH_INTERNAL);
        return Some(STOP);
    }
    scratch.walk.dentry = link.parent;
    Some(GO_ON)
}

/// What the namespace of the topmost mount says of a path (fs/mount.h): MNT_NS_INTERNAL is ERR_PTR(-EINVAL), a detached mount
/// has none, and one that open_tree cloned has one of its own.
#[inline(always)]
fn top(namespace: u64) -> u64 {
    let mut flags = 0;
    if namespace >= ERR_PTR {
        flags |= PATH_INTERNAL;
    } else if namespace != 0 {
        flags |= PATH_ABSOLUTE;
        if namespace != mount_namespace() {
            flags |= PATH_FOREIGN;
        }
    }
    u64::from(flags)
}

/// Pointers from here on are error numbers (`IS_ERR_VALUE`, include/linux/err.h).
const ERR_PTR: u64 = -4095i64 as u64;

impl<O: Owner, T> Draft<O, T> {
    /// Appends the walked path of the `struct path` at `path`.
    #[inline(always)]
    pub(crate) fn walk(&mut self, path: Address) -> Walked {
        match self.try_walk(path) {
            Some(walked) => walked,
            None => Walked {
                len: 0,
                flags: PATH_FAULT,
            },
        }
    }

    #[inline(always)]
    fn try_walk(&mut self, path: Address) -> Option<Walked> {
        // struct path is these two pointers (checked when offsets are read).
        let [mount, dentry] = path.read::<[Address; 2]>(0)?;
        let mount_root = mount.follow(offset!(vfsmount_mnt_root))?;
        let hashed = dentry == mount_root || dentry.read::<u64>(offset!(dentry_d_pprev))? != 0;
        let start = self.end();
        let mount = Address(mount.0.wrapping_sub(offset!(mount_mnt) as u64));
        // SAFETY: the pointer comes from a successful lookup; volatile, since the callback reads it.
        unsafe {
            core::ptr::write_volatile(
                &raw mut (*self.scratch).walk,
                Walk {
                    dentry,
                    mount,
                    mount_root,
                    limit: start + WALK_CAP as u64,
                    flags: if hashed { 0 } else { u64::from(PATH_UNHASHED) },
                },
            );
        }
        // SAFETY: `step` matches the callback that bpf_loop expects and takes no context.
        let steps = unsafe { bpf_loop(WALK_STEPS, step::<O> as *mut _, core::ptr::null_mut(), 0) };
        // SAFETY: as above.
        let mut flags =
            unsafe { core::ptr::read_volatile(&raw const (*self.scratch).walk.flags) } as u16;
        if steps >= i64::from(WALK_STEPS) {
            flags |= PATH_TRUNCATED;
        }
        Some(Walked {
            len: self.end().wrapping_sub(start) as u16,
            flags,
        })
    }
}
