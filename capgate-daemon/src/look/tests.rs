use std::{
    fs::{self, File},
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::symlink},
    },
    path::Path,
};

use nix::sys::stat::{Mode, mkdirat};

use super::{At, End, JobRoot, Look as _, RootError, mount_of};

fn open(path: &Path) -> OwnedFd {
    File::open(path).expect("a directory").into()
}

/// A job whose root is a fresh directory.
fn job(root: &Path) -> JobRoot {
    JobRoot::new(open(root).as_fd(), open(Path::new("/"))).expect("a root")
}

fn at(job: &JobRoot, path: &Path) -> At {
    job.at(path.as_os_str().as_bytes())
}

#[test]
fn what_is_at_a_path_is_told_without_following_links() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().canonicalize().expect("a path");
    fs::write(dir.join("file"), "").expect("a file");
    fs::create_dir(dir.join("sub")).expect("a directory");
    symlink("sub/x", dir.join("link")).expect("a link");
    let job = job(&dir);
    assert_eq!(at(&job, &dir.join("sub")), At::Directory);
    assert_eq!(at(&job, &dir.join("link")), At::Link(b"sub/x".to_vec()));
    assert!(matches!(at(&job, &dir.join("file")), At::Other { .. }));
    for gone in ["none", "none/x", "file/x", "link/x"] {
        assert_eq!(at(&job, &dir.join(gone)), At::Nothing, "{gone}");
    }
    assert_eq!(job.at(b"/"), At::Directory);
}

#[test]
fn a_magic_link_is_not_followed() {
    let job = job(Path::new("/"));
    assert!(matches!(job.at(b"/proc/self"), At::Link(_)));
    assert_eq!(job.at(b"/proc/self/cwd"), At::Nothing);
    let own = format!("/proc/{}/cwd", std::process::id());
    assert!(matches!(job.at(own.as_bytes()), At::Link(_)));
}

#[test]
fn the_end_of_names_is_told_by_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().canonicalize().expect("a path");
    fs::write(dir.join("file"), "").expect("a file");
    fs::create_dir(dir.join("sub")).expect("a directory");
    symlink("nowhere", dir.join("dangling")).expect("a link");
    symlink("sub", dir.join("alias")).expect("a link");
    fs::write(dir.join("sub/x"), "").expect("a file");
    let job = job(&dir);
    let ends = |sub: &str, names: &[&[u8]]| job.ends(dir.join(sub).as_os_str().as_bytes(), names);
    assert_eq!(
        ends("", &[b"file", b"sub", b"dangling", b"none"]),
        [End::Other, End::Directory, End::Other, End::Nothing]
    );
    // The name `alias/x` is no name of a file: `sub/x` is.
    assert_eq!(ends("alias", &[b"x"]), [End::Nothing]);
    assert_eq!(ends("file", &[b"x"]), [End::Nothing]);
    assert_eq!(ends("none", &[b"x", b"y"]), [End::Nothing, End::Nothing]);
    assert_eq!(job.ends(b"/", &[b"proc"]), [End::Directory]);
}

#[test]
fn a_path_beyond_the_limit_of_one_call_is_reached() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().canonicalize().expect("a path");
    let mut path = dir.as_os_str().as_bytes().to_vec();
    let mut at = open(&dir);
    let name = "n".repeat(200);
    for _ in 0..45 {
        mkdirat(&at, name.as_str(), Mode::S_IRWXU).expect("a directory");
        let flags = nix::fcntl::OFlag::O_DIRECTORY;
        at = nix::fcntl::openat(&at, name.as_str(), flags, Mode::empty()).expect("a directory");
        path.push(b'/');
        path.extend_from_slice(name.as_bytes());
    }
    assert!(path.len() > 9000);
    let job = job(&dir);
    assert_eq!(job.at(&path), At::Directory);
    assert_eq!(job.ends(&path, &[b"x"]), [End::Nothing]);
    path.extend_from_slice(b"/none/x");
    assert_eq!(job.at(&path), At::Nothing);
}

#[test]
fn a_client_in_a_chroot_has_its_own_slash() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().canonicalize().expect("a path");
    fs::create_dir_all(dir.join("jail/repo")).expect("a directory");
    symlink("/repo", dir.join("jail/link")).expect("a link");
    let jail = dir.join("jail");
    let job = JobRoot::new(open(&jail.join("repo")).as_fd(), open(&jail)).expect("a root");
    assert_eq!(job.slash_path(), jail.as_os_str().as_bytes());
    assert_eq!(job.root_path(), jail.join("repo").as_os_str().as_bytes());
    assert_eq!(
        job.real(b"/link"),
        Some(jail.join("repo").into_os_string().into_encoded_bytes())
    );
    assert_eq!(at(&job, &jail.join("repo")), At::Directory);
    assert_eq!(at(&job, &jail), At::Directory);
    assert_eq!(at(&job, &dir), At::Unknown, "beyond the client's sight");
}

#[test]
fn identities_are_those_of_the_kernel() {
    use std::os::unix::fs::MetadataExt as _;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().canonicalize().expect("a path");
    let meta = path.metadata().expect("a file");
    let job = job(Path::new("/"));
    let (dev, ino) = job
        .identity(path.as_os_str().as_bytes())
        .expect("an identity");
    assert_eq!(ino, meta.ino());
    let (major, minor) = (nix::libc::major(meta.dev()), nix::libc::minor(meta.dev()));
    assert_eq!((dev >> 20, dev & 0xf_ffff), (major, minor));
    assert_eq!(job.identity(b"/none"), None);
}

#[test]
fn a_root_must_be_a_directory_that_is_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    fs::write(&file, "").expect("a file");
    let refuse =
        |root: &OwnedFd| JobRoot::new(root.as_fd(), open(Path::new("/"))).expect_err("no root");
    assert!(matches!(
        refuse(&open(&file)),
        RootError::NotDirectory("root directory")
    ));
    let gone = dir.path().join("gone");
    fs::create_dir(&gone).expect("a directory");
    let held = open(&gone);
    fs::remove_dir(&gone).expect("removed");
    assert!(matches!(refuse(&held), RootError::Gone("root directory")));
}

#[test]
fn local_facts_are_those_of_the_own_namespaces() {
    let job = job(Path::new("/"));
    let own = job.netns.expect("a kernel with network namespace cookies");
    let addresses = job.addresses(own);
    assert!(
        addresses.iter().any(std::net::IpAddr::is_loopback),
        "{addresses:?}"
    );
    assert!(job.addresses(own + 1).is_empty());
    assert_eq!(job.interface(own, 1), Some(b"lo".to_vec()));
    assert_eq!(job.interface(own + 1, 1), None);
}

#[test]
fn where_a_process_belongs_is_told_by_its_cgroup() {
    let own = std::process::id();
    assert_eq!(
        job(Path::new("/")).is_outside(own, own),
        None,
        "the job has no cgroup yet"
    );
    let cgroups = fs::read_to_string("/proc/self/cgroup").expect("cgroups");
    let path = cgroups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .expect("a v2 hierarchy");
    let inside = job(Path::new("/")).with_cgroup(path.as_bytes());
    assert_eq!(inside.is_outside(own, own), Some(false));
    let outside = job(Path::new("/")).with_cgroup(b"/none");
    assert_eq!(outside.is_outside(own, own), Some(true));
    assert_eq!(outside.is_outside(own, 0), None);
    assert_eq!(outside.is_outside(own, u32::MAX), None);
}

#[test]
fn descriptors_are_closed() {
    let before = open(Path::new("/")).as_raw_fd();
    let job = job(Path::new("/"));
    for _ in 0..10 {
        job.at(b"/etc/passwd");
        job.ends(b"/etc", &[b"passwd"]);
    }
    drop(job);
    let after = open(Path::new("/")).as_raw_fd();
    assert!(after < before + 10, "{before} {after}");
}

#[test]
fn what_a_later_mount_covers_cannot_be_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().canonicalize().expect("a path");
    let ends = |job: &JobRoot| job.ends(path.as_os_str().as_bytes(), &[b"f"]);
    let own = mount_of(open(&path).as_fd()).expect("an id");
    assert_eq!(ends(&job(&path).with_mounts([own], None)), [End::Nothing]);
    assert_eq!(
        ends(&job(&path).with_mounts([own + 1], None)),
        [End::Unknown]
    );
}
