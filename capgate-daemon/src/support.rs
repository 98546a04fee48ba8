//! Facts about this host, no decisions.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

/// What the daemon needs to know about the machine that it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Kernel release (`uname -r`).
    pub kernel: String,
    /// Where the cgroup v2 hierarchy is mounted: `/sys/fs/cgroup`, or `/sys/fs/cgroup/unified` on a hybrid
    /// host; `None` when there is only v1.
    pub cgroup2: Option<PathBuf>,
    /// The daemon is in the machine's own cgroup namespace, so that depths and paths of cgroups are true.
    pub initial_cgroup_ns: bool,
    /// The daemon is in the machine's own pid namespace, so that its process ids are those of the probes.
    pub initial_pid_ns: bool,
}

/// Inode number of the initial cgroup namespace (`PROC_CGROUP_INIT_INO`, proc_ns.h).
const INITIAL_CGROUP_NS: u64 = 0xEFFF_FFFB;
/// Inode number of the initial pid namespace (`PROC_PID_INIT_INO`, proc_ns.h).
const INITIAL_PID_NS: u64 = 0xEFFF_FFFC;

impl Host {
    /// Looks at this host.
    ///
    /// # Errors
    /// When `/proc` is not what it should be.
    pub fn look() -> io::Result<Self> {
        let uname = nix::sys::utsname::uname()?;
        let mountinfo = fs::read("/proc/self/mountinfo")?;
        Ok(Self {
            kernel: uname.release().to_string_lossy().into_owned(),
            cgroup2: cgroup2_mount(&mountinfo),
            initial_cgroup_ns: fs::metadata("/proc/self/ns/cgroup")?.ino() == INITIAL_CGROUP_NS,
            initial_pid_ns: fs::metadata("/proc/self/ns/pid")?.ino() == INITIAL_PID_NS,
        })
    }
}

/// The mount point of a whole cgroup2 file system in the text of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
/// The last one wins: it lies on top when several share a mount point.
fn cgroup2_mount(mountinfo: &[u8]) -> Option<PathBuf> {
    mountinfo
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|&byte| byte == b' ');
            let root = fields.by_ref().nth(3)?;
            let mount_point = fields.next()?;
            let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
            (kind == b"cgroup2" && root == b"/").then(|| PathBuf::from(unescape(mount_point)))
        })
        .next_back()
}

/// Undoes the octal escapes of mountinfo: `\040` for a space, also tab, newline, backslash.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = octal {
            bytes.push(byte);
            rest = &tail[3..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    OsString::from_vec(bytes)
}

/// Resident memory of this process in bytes (`VmRSS`), 0 when `/proc` does not tell.
#[must_use]
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|value| value.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// The directory of a path, `.` for a bare name.
#[must_use]
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().as_bytes().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mountinfo: &str, expect: Option<&str>) {
        assert_eq!(
            cgroup2_mount(mountinfo.as_bytes()),
            expect.map(PathBuf::from)
        );
    }

    #[test]
    fn unified_hybrid_and_v1_hosts_are_told_apart() {
        check(
            "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            Some("/sys/fs/cgroup"),
        );
        check(
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 master:1 - cgroup2 cgroup2 rw\n",
            Some("/sys/fs/cgroup/unified"),
        );
        check(
            "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
            None,
        );
    }

    #[test]
    fn a_bind_mount_of_a_part_is_not_the_hierarchy() {
        check("50 1 0:38 /a /mnt rw - cgroup2 cgroup2 rw\n", None);
    }

    #[test]
    fn escapes_in_mount_points_are_undone() {
        check(
            "50 1 0:38 / /my\\040c\\134 rw - cgroup2 none rw\n",
            Some("/my c\\"),
        );
        check(
            "50 1 0:38 / /odd\\0 rw - cgroup2 none rw\n",
            Some("/odd\\0"),
        );
    }

    #[test]
    fn this_process_has_resident_memory() {
        assert!(resident_bytes() > 0);
    }
}
