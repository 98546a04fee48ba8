//! The dentry and mount walk: from a `struct path` to components, leaf first, as the kernel has them now.
//!
//! It ends where the job's root directory is met, by identity, whatever mounts lead there. Else it climbs to the global root
//! through mounts that were there when the job began, or in any other mount to the top of the file system.
//!
//! Nothing is locked. A rename in another task at the same moment can make a walk see both sides of it.

use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_kernel};
use capgate_common::{
    event::{
        PATH_ABSOLUTE, PATH_DEVICE, PATH_FAULT, PATH_INTERNAL, PATH_NEWER, PATH_ROOTED,
        PATH_TRUNCATED, PATH_UNHASHED, Walked,
    },
    limits::{WALK_CAP, WALK_STEPS},
};

use crate::{
    kernel::{Address, mount_of, offset},
    record::{Draft, LAST, Owner, Scratch, opaque},
    root::{self, Question},
};

/// State between steps.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Walk {
    dentry: Address,
    /// `struct mount`; null for a dentry that is looked at without one.
    mount: Address,
    mount_root: Address,
    /// The job's root directory (`struct dentry`) and mount namespace.
    root: u64,
    namespace: u64,
    mounted: Question,
    /// What the dentry is linked by.
    link: Link,
    /// The first byte that this walk must not fill.
    limit: u64,
    /// Where the components ended at the top of a mount that shows a part of its file system: the root may be above. 0: no such.
    mark: u64,
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

extern "C" fn step<O: Owner>(_index: u64, place: *const u32) -> i64 {
    // SAFETY: bpf_loop passes the pointer that `walk_from` gave it, to a value that outlives the loop.
    let Some(scratch) = O::at(unsafe { *place }) else {
        return STOP;
    };
    // SAFETY: the pointer comes from a successful lookup, and the place is this program's.
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
    if dentry.0 == scratch.walk.root {
        scratch.walk.flags |= u64::from(PATH_ROOTED);
        return Some(STOP);
    }
    // Into the walk's memory: its stack is scarce.
    let from = Address(dentry.0.wrapping_add(offset!(dentry_d_parent) as u64));
    // SAFETY: the helper checks the address, and fills the field.
    let read = unsafe {
        bpf_probe_read_kernel(
            (&raw mut scratch.walk.link).cast(),
            size_of::<Link>() as u32,
            from.0 as *const _,
        )
    };
    if read < 0 {
        return None;
    }
    let link = &scratch.walk.link;
    let (parent, name, length) = (link.parent, link.name, link.len);
    let end = scratch.end;
    if dentry == scratch.walk.mount_root {
        if parent == dentry {
            return cross(scratch);
        }
        scratch.walk.mark = end;
    } else if parent == dentry && (scratch.walk.mark != 0 || scratch.walk.mount == Address::NULL) {
        return cross(scratch);
    }
    if end + 256 > scratch.walk.limit || end > LAST {
        scratch.walk.flags |= u64::from(PATH_TRUNCATED);
        return Some(STOP);
    }
    if length > 255 {
        return None;
    }
    let len = length & 0xff;
    let to = append(scratch, end);
    // SAFETY: `end` is at most LAST, with more than 256 bytes of room behind it.
    unsafe {
        *to = len as u8;
        if bpf_probe_read_kernel(to.add(1).cast(), len, name as *const _) < 0 {
            return None;
        }
    }
    scratch.end = end + u64::from(len) + 1;
    if parent == dentry {
        // The top of a tree that is not mounted here: an internal file, or one that the kernel found by its handle.
        let namespace: Address = scratch.walk.mount.read(offset!(mount_mnt_ns))?;
        if namespace.is_error() {
            scratch.walk.flags |= u64::from(PATH_INTERNAL);
        }
        return Some(STOP);
    }
    scratch.walk.dentry = parent;
    Some(GO_ON)
}

/// Where the next component goes, once there is known to be room at `end`.
#[inline(always)]
fn append(scratch: &mut Scratch, end: u64) -> *mut u8 {
    // SAFETY: at most LAST, which is inside `bytes`.
    unsafe {
        scratch
            .bytes
            .as_mut_ptr()
            .add((opaque(end) & LAST) as usize)
    }
}

/// At the top of a file system: goes on where it is mounted, when it was mounted there before the job began.
#[inline(always)]
fn cross(scratch: &mut Scratch) -> Option<i64> {
    let mount = scratch.walk.mount;
    if mount == Address::NULL {
        return device(scratch);
    }
    let namespace: Address = mount.read(offset!(mount_mnt_ns))?;
    // MNT_NS_INTERNAL is ERR_PTR(-EINVAL) (fs/mount.h).
    if namespace.is_error() {
        scratch.walk.flags |= u64::from(PATH_INTERNAL);
        return Some(STOP);
    }
    let parent = mount.follow(offset!(mount_mnt_parent))?;
    // The mount below all others, which nobody is shown, is known by its namespace.
    let known = if parent == mount {
        namespace.0 == scratch.walk.namespace
    } else {
        scratch.walk.mounted.is_known(mount, parent)?
    };
    if !known {
        if namespace.0 == scratch.walk.namespace {
            scratch.walk.flags |= u64::from(PATH_NEWER);
        }
        return device(scratch);
    }
    if scratch.walk.mark != 0 {
        // The root was not above. What leads from the mount's top to the file system's is no part of the path.
        scratch.end = scratch.walk.mark;
        scratch.walk.mark = 0;
    }
    if parent == mount {
        scratch.walk.flags |= u64::from(PATH_ABSOLUTE);
        return Some(STOP);
    }
    scratch.walk.dentry = mount.follow(offset!(mount_mnt_mountpoint))?;
    scratch.walk.mount = parent;
    scratch.walk.mount_root = parent.follow(offset!(mount_mnt) + offset!(vfsmount_mnt_root))?;
    Some(GO_ON)
}

/// Ends with what tells the file system.
#[inline(always)]
fn device(scratch: &mut Scratch) -> Option<i64> {
    let block = scratch.walk.dentry.follow(offset!(dentry_d_sb))?;
    let device: u32 = block.read(offset!(super_block_s_dev))?;
    let magic: u64 = block.read(offset!(super_block_s_magic))?;
    let end = scratch.end;
    if end + 256 > scratch.walk.limit || end > LAST {
        scratch.walk.flags |= u64::from(PATH_TRUNCATED);
        return Some(STOP);
    }
    let to = append(scratch, end);
    // SAFETY: as where components are appended. BPF stores need no alignment here.
    unsafe {
        *to = 2 * size_of::<u32>() as u8;
        to.add(1).cast::<u32>().write_unaligned(device);
        to.add(5).cast::<u32>().write_unaligned(magic as u32);
    }
    scratch.end = end + 1 + 2 * size_of::<u32>() as u64;
    scratch.walk.flags |= u64::from(PATH_DEVICE);
    Some(STOP)
}

/// A path that could not be read.
pub const FAULT: Walked = Walked {
    len: 0,
    flags: PATH_FAULT,
};

impl<O: Owner, T> Draft<O, T> {
    /// Appends the walked path of the `struct path` at `path`.
    #[inline(always)]
    pub fn walk(&mut self, path: Address) -> Walked {
        // struct path is these two pointers (checked when offsets are read).
        match path.read::<[Address; 2]>(0) {
            Some([mount, dentry]) => self.walk_in(mount, dentry),
            None => FAULT,
        }
    }

    /// Appends the walked path of a dentry in a mount (`struct vfsmount`).
    #[inline(always)]
    pub fn walk_in(&mut self, mount: Address, dentry: Address) -> Walked {
        self.try_walk_in(mount, dentry).unwrap_or(FAULT)
    }

    #[inline(always)]
    fn try_walk_in(&mut self, mount: Address, dentry: Address) -> Option<Walked> {
        let mount_root = mount.follow(offset!(vfsmount_mnt_root))?;
        let hashed = dentry == mount_root || dentry.read::<u64>(offset!(dentry_d_pprev))? != 0;
        let mount = mount_of(mount);
        self.walk_from(mount, mount_root, dentry, hashed)
    }

    /// Appends the path of a dentry, for which no mount is known, in its file system.
    #[inline(always)]
    pub fn walk_dentry(&mut self, dentry: Address) -> Walked {
        self.walk_from(Address::NULL, Address::NULL, dentry, true)
            .unwrap_or(FAULT)
    }

    #[inline(always)]
    fn walk_from(
        &mut self,
        mount: Address,
        mount_root: Address,
        dentry: Address,
        hashed: bool,
    ) -> Option<Walked> {
        let root = root::of(self.slot)?;
        let start = self.end();
        // Member by member: a whole one would be made on the stack first. What a call that follows may read, the compiler writes.
        // SAFETY: the pointer comes from a successful lookup.
        let walk = unsafe { &mut (*self.scratch).walk };
        walk.dentry = dentry;
        walk.mount = mount;
        walk.mount_root = mount_root;
        walk.root = root.dentry;
        walk.namespace = root.namespace;
        walk.mounted.begin(self.slot, root.newest_mount);
        walk.limit = start + WALK_CAP as u64;
        walk.mark = 0;
        walk.flags = if hashed { 0 } else { u64::from(PATH_UNHASHED) };
        let mut place = self.place;
        // SAFETY: `step` matches the callback that bpf_loop expects, `place` outlives the call.
        let steps =
            unsafe { bpf_loop(WALK_STEPS, step::<O> as *mut _, (&raw mut place).cast(), 0) };
        // SAFETY: as above; volatile, since the callback wrote it.
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
