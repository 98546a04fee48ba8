//! The dentry and mount walk: from a `struct path` to components, leaf first, as the kernel has them now.
//!
//! Nothing is locked. A rename in another task at the same moment can make a walk see both sides of it.

use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_kernel};
use capgate_common::{
    event::{PATH_ABSOLUTE, PATH_FAULT, PATH_INTERNAL, PATH_TRUNCATED, PATH_UNHASHED, Walked},
    limits::{WALK_CAP, WALK_STEPS},
};

use crate::{
    kernel::{Address, offset},
    record::{Draft, LAST, Owner},
};

/// State between steps.
#[repr(C)]
struct Walk {
    dentry: Address,
    mount: Address,
    mount_root: Address,
    end: u64,
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

extern "C" fn step<O: Owner>(_index: u64, walk: *mut Walk) -> i64 {
    // SAFETY: bpf_loop passes the pointer that `append` gave it, to a value that outlives the loop.
    let walk = unsafe { &mut *walk };
    match try_step::<O>(walk) {
        Some(next) => next,
        None => {
            walk.flags |= u64::from(PATH_FAULT);
            STOP
        }
    }
}

#[inline(always)]
fn try_step<O: Owner>(walk: &mut Walk) -> Option<i64> {
    if walk.dentry == walk.mount_root {
        let parent = walk.mount.follow(offset!(mount_mnt_parent))?;
        if parent == walk.mount {
            let namespace = walk.mount.read::<i64>(offset!(mount_mnt_ns))?;
            // MNT_NS_INTERNAL is ERR_PTR(-EINVAL); null: detached (fs/mount.h).
            if (-4095..0).contains(&namespace) {
                walk.flags |= u64::from(PATH_INTERNAL);
            } else if namespace != 0 {
                walk.flags |= u64::from(PATH_ABSOLUTE);
            }
            return Some(STOP);
        }
        walk.dentry = walk.mount.follow(offset!(mount_mnt_mountpoint))?;
        walk.mount = parent;
        walk.mount_root = parent.follow(offset!(mount_mnt) + offset!(vfsmount_mnt_root))?;
        return Some(GO_ON);
    }
    let link = walk.dentry.read::<Link>(offset!(dentry_d_parent))?;
    let end = walk.end;
    if end + 256 > walk.limit || end > LAST {
        walk.flags |= u64::from(PATH_TRUNCATED);
        return Some(STOP);
    }
    if link.len > 255 {
        return None;
    }
    let scratch = O::scratch()?;
    let len = link.len & 0xff;
    // SAFETY: `end` is at most LAST, with more than 256 bytes of room behind it.
    unsafe {
        let to = (*scratch).bytes.as_mut_ptr().add((end & LAST) as usize);
        *to = len as u8;
        if bpf_probe_read_kernel(to.add(1).cast(), len, link.name as *const _) < 0 {
            return None;
        }
    }
    walk.end = end + u64::from(len) + 1;
    if link.parent == walk.dentry {
        // The top of a tree that is not mounted here: an internal file, or a mount that was left behind.
        return Some(STOP);
    }
    walk.dentry = link.parent;
    Some(GO_ON)
}

impl<O: Owner, T> Draft<O, T> {
    /// Appends the walked path of the `struct path` at `path`.
    #[inline(always)]
    pub(crate) fn walk(&mut self, path: Address) -> Walked {
        match self.try_walk(path) {
            Some(walked) => walked,
            None => Walked { len: 0, flags: PATH_FAULT },
        }
    }

    #[inline(always)]
    fn try_walk(&mut self, path: Address) -> Option<Walked> {
        let dentry = path.follow(offset!(path_dentry))?;
        let mount = path.follow(offset!(path_mnt))?;
        let mount_root = mount.follow(offset!(vfsmount_mnt_root))?;
        let mut flags = 0;
        if dentry != mount_root && dentry.read::<u64>(offset!(dentry_d_pprev))? == 0 {
            flags |= u64::from(PATH_UNHASHED);
        }
        let mut walk = Walk {
            dentry,
            mount: Address(mount.0.wrapping_sub(offset!(mount_mnt) as u64)),
            mount_root,
            end: self.end,
            limit: self.end + WALK_CAP as u64,
            flags,
        };
        // SAFETY: `step` matches the callback that bpf_loop expects, `walk` outlives the call.
        let steps = unsafe {
            bpf_loop(
                WALK_STEPS,
                step::<O> as *mut _,
                (&raw mut walk).cast(),
                0,
            )
        };
        if steps >= i64::from(WALK_STEPS) {
            walk.flags |= u64::from(PATH_TRUNCATED);
        }
        let len = walk.end - self.end;
        self.end = walk.end;
        Some(Walked { len: len as u16, flags: walk.flags as u16 })
    }
}
