//! The v2 hierarchy of this machine.

use std::{fs, path::PathBuf};

/// Where cgroup2 is mounted.
pub(crate) fn cgroup_root() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .and_then(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .unwrap()
}
