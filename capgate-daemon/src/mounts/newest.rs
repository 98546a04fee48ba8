//! Which mount is the newest one. The kernel gives the id of a mount that is gone to the next one; the number that this is about it never gives twice, and
//! always gives in order (`mount.mnt_id_unique`, since 6.8).

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// Not in the `libc` crate (include/uapi/asm-generic/unistd.h, the same on x86-64 and arm64).
const SYS_LISTMOUNT: libc::c_long = 458;
/// All mounts of the namespace (include/uapi/linux/mount.h).
const LSMT_ROOT: u64 = u64::MAX;
/// Mounts that are asked for at once.
const AT_ONCE: usize = 512;

/// `struct mnt_id_req` of its first version (include/uapi/linux/mount.h).
#[repr(C)]
struct Request {
    size: u32,
    spare: u32,
    mount: u64,
    /// The last mount that was answered; the next ones follow.
    after: u64,
}

/// The newest mount of the daemon's own mount namespace; `None` where the kernel cannot tell.
#[must_use]
pub fn newest() -> Option<u64> {
    let mut newest = 0;
    loop {
        let request = Request {
            size: u32::try_from(size_of::<Request>()).ok()?,
            spare: 0,
            mount: LSMT_ROOT,
            after: newest,
        };
        let mut mounts = [0u64; AT_ONCE];
        // SAFETY: both pointers are to live locals, of the sizes that are given; no crate has this call.
        let count = unsafe {
            libc::syscall(
                SYS_LISTMOUNT,
                &raw const request,
                mounts.as_mut_ptr(),
                AT_ONCE,
                0,
            )
        };
        let listed = mounts.get(..usize::try_from(count).ok()?)?;
        // They come in order.
        match listed.last() {
            Some(&last) => newest = last,
            None => return (newest != 0).then_some(newest),
        }
    }
}

/// The number of the mount that an open file is in; `None` where the kernel cannot tell.
#[must_use]
pub fn of(file: BorrowedFd<'_>) -> Option<u64> {
    /// Not in the `rustix` crate (include/uapi/linux/stat.h).
    const MNT_ID_UNIQUE: u32 = 0x4000;

    let mask = StatxFlags::from_bits_retain(MNT_ID_UNIQUE);
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(file, c"", flags, mask).ok()?;
    (stat.stx_mask & MNT_ID_UNIQUE != 0).then_some(stat.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd as _};

    use super::{newest, of};

    #[test]
    fn no_mount_of_this_namespace_is_newer_than_the_newest() {
        // Where the kernel has no such numbers, it has none for files either.
        let here = of(File::open("/proc").unwrap().as_fd());
        assert_eq!(newest().is_some(), here.is_some());
        assert!(here <= newest(), "{here:?}");
    }
}
