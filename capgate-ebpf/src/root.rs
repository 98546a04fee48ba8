//! Where each job began: its root directory and the mounts that there were, by identity.

use aya_ebpf::{
    btf_maps::{Array, HashMap},
    helpers::generated::bpf_probe_read_kernel_str,
    macros::btf_map,
};
use capgate_common::{
    event::{MOUNT_NAME, MountKey, Mounted, Root},
    limits::{MAX_JOBS, MAX_MOUNTS},
};

use crate::kernel::{Address, file_of, mount_of, offset};

#[btf_map]
static ROOTS: Array<Root, { MAX_JOBS as usize }> = Array::new();

/// The mounts that there were when each job began. Allocated as needed (BPF_F_NO_PREALLOC).
#[btf_map]
static MOUNTS: HashMap<MountKey, Mounted, { MAX_MOUNTS as usize }, 1> = HashMap::new();

/// A mount that a walk asks for. In the walk's memory, as its stack is scarce.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Question {
    key: MountKey,
    /// The name of the directory that it is on.
    name: [u8; MOUNT_NAME],
    /// See [`Root::newest_mount`].
    newest: u64,
}

impl Question {
    /// For the job in `slot`.
    #[inline(always)]
    pub fn begin(&mut self, slot: u32, newest: u64) {
        self.key.slot = slot;
        self.newest = newest;
    }

    /// Whether a mount in `parent` (both `struct mount`) was there when the job began.
    #[inline(always)]
    pub fn is_known(&mut self, mount: Address, parent: Address) -> Option<bool> {
        // The kernel gives the id of a mount that is gone to the next one.
        let unique = offset!(mount_mnt_id_unique);
        if self.newest != 0 && unique != 0 && mount.read::<u64>(unique)? > self.newest {
            return Some(false);
        }
        self.key.mount = mount.read(offset!(mount_mnt_id))?;
        #[expect(
            clippy::needless_borrows_for_generic_args,
            reason = "a copy of the key would be on the stack"
        )]
        // SAFETY: values are written before the job has a task, and removed when it has none.
        let Some(known) = (unsafe { MOUNTS.get(&self.key) }) else {
            return Some(false);
        };
        let name: Address = mount
            .follow(offset!(mount_mnt_mountpoint))?
            .follow(offset!(dentry_d_name_name))?;
        self.name = [0; MOUNT_NAME];
        // SAFETY: the helper checks the address, and fills at most the field.
        let copied = unsafe {
            bpf_probe_read_kernel_str(
                self.name.as_mut_ptr().cast(),
                MOUNT_NAME as u32,
                name.0 as *const _,
            )
        };
        if copied < 0 {
            return None;
        }
        let parent: u32 = parent.read(offset!(mount_mnt_id))?;
        Some(parent == known.parent && self.name == known.name)
    }
}

/// A job's beginning, written before the job has a task.
#[inline(always)]
pub fn of(slot: u32) -> Option<&'static Root> {
    ROOTS.get(slot)
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
