//! Rows whose right answer the recorder does not give yet. A row that passes must leave this list: its passing is an error.

use capgate_common::ledger::ProbeSet;

/// A row that fails for now.
pub(crate) struct Awaited {
    pub(crate) name: &'static str,
    /// The set that falls short; `None`: both.
    pub(crate) probe_set: Option<ProbeSet>,
    /// What is missing.
    pub(crate) why: &'static str,
}

/// What lies below names that changed places is not followed.
const EXCHANGE: &str = "names that change places are a blind spot";
/// A path through a mount of another namespace, or one that the job made, is not mapped back.
const MOUNTS: &str = "mounts that the job makes are a blind spot";

/// All of them.
pub(crate) const AWAITED: [Awaited; 9] = [
    both("two_files_change_places", EXCHANGE),
    both("two_directories_change_places", EXCHANGE),
    both("the_repository_mounted_elsewhere", MOUNTS),
    both("a_user_mounts_the_repository_elsewhere", MOUNTS),
    both("a_part_of_the_repository_mounted_elsewhere", MOUNTS),
    both(
        "a_directory_mounted_in_the_repository_is_no_part_of_it",
        MOUNTS,
    ),
    both(
        "roots_directory_mounted_in_the_repository_is_no_part_of_it",
        MOUNTS,
    ),
    both("a_container_with_the_repository_in_it", MOUNTS),
    both("a_mount_that_is_mounted_nowhere", MOUNTS),
];

const fn both(name: &'static str, why: &'static str) -> Awaited {
    Awaited {
        name,
        probe_set: None,
        why,
    }
}
