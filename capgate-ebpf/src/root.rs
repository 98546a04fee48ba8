//! Where each job began: its root directory and the mounts that there were, by identity.

use aya_ebpf::{
    btf_maps::{Array, HashMap},
    macros::btf_map,
};
use capgate_common::{
    event::{MountKey, Root},
    limits::{MAX_JOBS, MAX_MOUNTS},
};

use crate::kernel::{Address, file_of, mount_of, offset};

#[btf_map]
static ROOTS: Array<Root, { MAX_JOBS as usize }> = Array::new();

/// The mounts that there were when each job began. Allocated as needed (BPF_F_NO_PREALLOC).
#[btf_map]
static MOUNTS: HashMap<MountKey, u8, { MAX_MOUNTS as usize }, 1> = HashMap::new();

/// Whether a mount (`struct mount`) was there when a job began, of which `newest` was the newest then.
#[inline(always)]
pub fn has(slot: u32, newest: u64, mount: Address) -> Option<bool> {
    // The kernel gives the id of a mount that is gone to the next one.
    let unique = offset!(mount_mnt_id_unique);
    if newest != 0 && unique != 0 && mount.read::<u64>(unique)? > newest {
        return Some(false);
    }
    let mount = mount.read(offset!(mount_mnt_id))?;
    // SAFETY: only the presence counts.
    Some(unsafe { MOUNTS.get(MountKey { slot, mount }) }.is_some())
}

/// A job's beginning, written before the job has a task.
#[inline(always)]
pub fn of(slot: u32) -> Option<Root> {
    ROOTS.get(slot).copied()
}

/// Remembers the directories that the current task holds open: the root of the job in `slot`, and the client's `/`; and which mount was the newest.
#[inline(always)]
pub fn adopt(slot: u32, root: u32, slash: u32, newest_mount: u64) -> Option<()> {
    let dentry = file_of(root)?.follow(offset!(file_f_path) + offset!(path_dentry))?;
    let mount = file_of(slash)?.follow(offset!(file_f_path) + offset!(path_mnt))?;
    let mount = mount_of(mount);
    let namespace = mount.follow(offset!(mount_mnt_ns))?;
    let place = ROOTS.get_ptr_mut(slot)?;
    // SAFETY: the pointer comes from a successful lookup; no task is in the job yet.
    unsafe {
        *place = Root {
            dentry: dentry.0,
            namespace: namespace.0,
            newest_mount,
        };
    }
    Some(())
}
