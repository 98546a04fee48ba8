//! Other views of the file system: names map back to the repository by its identity, and nothing else becomes a name in it.

use std::{os::unix::fs::symlink, process::Command};

use crate::{
    row::{Row, Tracepoint, incomplete, incomplete_and},
    site::succeed,
};

/// What `unshare --map-root-user` writes.
const MAPS: &str = "/proc/self/setgroups /proc/self/uid_map /proc/self/gid_map";
/// A user that needs no entry anywhere.
const USER: u32 = 64_121;

/// The set has names as strings, which mean something else in another mount namespace.
fn strings() -> Tracepoint {
    incomplete("mount_namespace")
}

/// A script in another mount namespace.
fn unshared(name: &'static str, script: &str) -> Row {
    Row::sh(name, &format!("unshare -m sh -ec '{script}'")).tracepoint(strings())
}

/// A script in another mount namespace of a user, who is root there.
fn mapped(name: &'static str, script: &str, writes: &str) -> Row {
    Row::sh(name, &format!("unshare -rm sh -ec '{script}'"))
        .user(USER)
        .writes(&format!("{MAPS} {writes}"))
        .tracepoint(strings())
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        unshared(
            "the_repository_mounted_elsewhere",
            "mount --bind {site}/repo {site}/mnt; echo x > {site}/mnt/f; rm {site}/mnt/a; mv {site}/mnt/b {site}/mnt/c",
        )
        .given("a b")
        .outside(|site| site.directory("mnt"))
        .writes("f a b c"),
        mapped(
            "a_user_mounts_the_repository_elsewhere",
            "mount --bind {site}/repo {site}/mnt; echo x > {site}/mnt/f; rm {site}/mnt/a",
            "f a",
        )
        .given("a")
        .outside(|site| site.directory("mnt")),
        unshared(
            "a_part_of_the_repository_mounted_elsewhere",
            "mount --bind sub {site}/mnt; echo x > {site}/mnt/f; rm {site}/mnt/a",
        )
        .given("sub/a")
        .outside(|site| site.directory("mnt"))
        .writes("sub/f sub/a"),
        mapped(
            "a_directory_mounted_in_the_repository_is_no_part_of_it",
            "mount --bind {site}/out b; echo x > b/f; rm b/a",
            "{site}/out/f {site}/out/a",
        )
        .given("b/")
        .outside(|site| site.file("out/a")),
        unshared(
            "roots_directory_mounted_in_the_repository_is_no_part_of_it",
            "mount --bind {site}/out b; echo x > b/f; rm b/a",
        )
        .given("b/")
        .outside(|site| site.file("out/a"))
        .writes("{site}/out/f {site}/out/a"),
        Row::sh(
            "a_mount_in_the_jobs_own_namespace",
            "mount --bind {site}/repo {site}/mnt; echo x > {site}/mnt/f; rm {site}/mnt/a; umount {site}/mnt",
        )
        .given("a")
        .outside(|site| site.directory("mnt"))
        .writes("f a")
        // The name that the call had, below a mount that the set does not follow.
        .tracepoint(incomplete_and("mount", "{site}/mnt/a")),
        Row::sh(
            "a_mount_in_the_jobs_own_namespace_over_the_repository",
            "mount --bind {site}/out b; echo x > b/f; umount b",
        )
        .given("b/")
        .outside(|site| site.directory("out"))
        .writes("{site}/out/f")
        .tracepoint(incomplete("mount")),
        // The kernel gives its number to the next one.
        Row::sh(
            "a_mount_that_was_there_makes_room_for_one_over_the_repository",
            "umount {site}/old; mount --bind {site}/out b; echo x > b/f; umount b",
        )
        .given("b/")
        .outside(|site| {
            site.directory("out");
            site.directory("old");
            // The job takes it away.
            let (from, to) = (site.path("out"), site.path("old"));
            succeed(Command::new("mount").arg("--bind").args([from, to]));
        })
        .writes("{site}/out/f")
        .tracepoint(incomplete("mount")),
        Row::program("a_container_with_the_repository_in_it", "container {site}/box {site}/repo")
            .given("sub/ a gone")
            .outside(|site| site.directory("box"))
            .writes("f sub/g a sub/b gone")
            // What lies in the container's own root goes with it.
            .tracepoint(strings()),
        Row::program("another_root_inside_the_repository", "jail jail")
            .given("jail/d/gone jail/link->/d")
            .writes("jail/f jail/g jail/d/made jail/d/gone"),
        Row::program("another_root_outside_the_repository", "jail {site}/jail")
            .outside(|site| {
                site.file("jail/d/gone");
                symlink("/d", site.path("jail/link")).unwrap();
            })
            .writes("{site}/jail/f {site}/jail/g {site}/jail/d/made {site}/jail/d/gone"),
        Row::program("a_mount_that_is_mounted_nowhere", "tree .")
            .given("a")
            .writes("f a"),
        Row::sh("proc_leads_to_the_working_directory", "echo x > /proc/self/cwd/f").writes("f"),
        Row::sh("proc_leads_to_what_is_removed", "rm /proc/self/cwd/a")
            .given("a")
            .writes("a")
            // Only the process itself can follow these links.
            .tracepoint(incomplete("unresolved")),
    ]
}
