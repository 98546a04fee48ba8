//! Kernels, a shell and a user space from Debian's packages, kept below the target directory.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::machine::Machine;
use crate::{packages, workspace};

/// The packages of the cell with a distribution's user space, beside what they depend on.
const PACKAGED: [&str; 9] = [
    "btrfs-progs",
    "coreutils",
    "iputils-ping",
    "libc-bin",
    "python3-minimal",
    "sudo",
    // Else something depends on what turns a system into one like that, which needs Perl.
    "usr-is-merged",
    "util-linux",
    "xfsprogs",
];

/// What no program of a package reads, and most of what there is to copy.
const UNREAD: [&str; 4] = ["doc", "info", "locale", "man"];

/// Python's own library, in the packaged cell.
const PYTHON: &str = "/usr/lib/python3.11";

/// A kernel as its package holds it.
pub(crate) struct Kernel {
    /// The image that boots.
    pub(crate) image: PathBuf,
    /// The directory above `lib/modules`.
    pub(crate) root: PathBuf,
    /// Its release, as `uname -r` says it.
    pub(crate) release: String,
}

/// The kernel that a package stands for, from the cache or the archive.
pub(crate) fn kernel(package: &str, machine: Machine) -> Result<Kernel> {
    let root = cached(package, |into| {
        let package = qualified(package, machine);
        let mut depends = Command::new("apt-cache");
        depends.args(["depends", "--important", &package]);
        let listed = workspace::said(&mut depends)?;
        let Some(versioned) = versioned_kernel(&listed) else {
            bail!("{package} depends on no kernel: {listed}");
        };
        download(&qualified(versioned, machine), into)
    })?;
    let boot = root.join("boot");
    let release = names_in(&root.join("lib/modules"))?
        .pop()
        .with_context(|| format!("{} holds no modules", root.display()))?;
    let image = boot.join(format!("vmlinuz-{release}"));
    Ok(Kernel {
        image,
        root,
        release,
    })
}

/// A busybox that needs no library.
pub(crate) fn busybox(machine: Machine) -> Result<PathBuf> {
    let name = format!("busybox-static-{}", machine.debian());
    let root = cached(&name, |into| {
        download(&qualified("busybox-static", machine), into)
    })?;
    Ok(root.join("bin/busybox"))
}

/// Where the user space of the packaged cell is: its packages, unpacked to a system where `/bin` is `/usr/bin`.
pub(crate) fn user_space() -> Result<PathBuf> {
    let kept = cached("user-space", |into| {
        let archives = into.join("archives");
        fs::create_dir_all(archives.join("partial"))?;
        // As if nothing were installed: everything that they depend on comes along.
        fs::write(archives.join("status"), "")?;
        let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
        let mut fetch = Command::new("apt-get");
        fetch
            .args(["-qq", "-y", "--download-only", "--no-install-recommends"])
            .args(["-oAPT::Sandbox::User=root", "-oDebug::NoLocking=1"])
            .arg(option("Dir::State::status", &archives.join("status")))
            .arg(option("Dir::Cache::archives", &archives))
            .arg("install")
            .args(PACKAGED);
        workspace::said(&mut fetch)?;
        let root = into.join("root");
        merged_directories(&root)?;
        for archive in names_in(&archives)? {
            if archive.ends_with(".deb") {
                unpack(&archives.join(archive), &root)?;
            }
        }
        fs::remove_dir_all(archives)?;
        // As its package does when it is installed; otherwise a job that runs Python writes there. What is compiled stays good when
        // the files are copied and their times are not.
        let mut compile = Command::new("chroot");
        compile
            .arg(&root)
            .args(["/usr/bin/python3", "-m", "compileall", "-q"])
            .args(["--invalidation-mode", "unchecked-hash", PYTHON]);
        workspace::said(&mut compile).map(drop)
    })?;
    Ok(kept.join("root"))
}

/// Makes the directories of programs and libraries, of which there is one each on a merged system.
pub(crate) fn merged_directories(root: &Path) -> std::io::Result<()> {
    for dir in ["bin", "lib", "lib64", "sbin"] {
        fs::create_dir_all(root.join("usr").join(dir))?;
        symlink(format!("usr/{dir}"), root.join(dir))?;
    }
    Ok(())
}

/// What `make` puts into a directory of this name, once. A directory that is there is complete.
fn cached(name: &str, make: impl Fn(&Path) -> Result<()>) -> Result<PathBuf> {
    let done = super::directory().join("debian").join(name);
    if done.exists() {
        return Ok(done);
    }
    eprintln!("xtask: fetching {name} from Debian's archive");
    let fresh = done.with_file_name(format!("{name}.part"));
    let attempt = || {
        if fresh.exists() {
            fs::remove_dir_all(&fresh)?;
        }
        fs::create_dir_all(&fresh)?;
        make(&fresh)
    };
    // Package lists that are old or missing are the usual reason.
    attempt().or_else(|_| {
        packages::refresh_lists();
        attempt().with_context(|| {
            format!("cannot fetch {name}: the kernel matrix takes its machines from Debian 12's packages")
        })
    })?;
    fs::rename(&fresh, &done)
        .with_context(|| format!("cannot put {} in its place", done.display()))?;
    Ok(done)
}

/// Fetches one package and unpacks it.
fn download(package: &str, into: &Path) -> Result<()> {
    let mut fetch = Command::new("apt-get");
    fetch
        .args(["-qq", "-oAPT::Sandbox::User=root", "download", package])
        .current_dir(into);
    workspace::said(&mut fetch)?;
    for name in names_in(into)? {
        if name.ends_with(".deb") {
            let archive = into.join(name);
            unpack(&archive, into)?;
            fs::remove_file(archive)?;
        }
    }
    Ok(())
}

/// Unpacks a package, through the links that stand for directories, and runs nothing of it.
fn unpack(archive: &Path, into: &Path) -> Result<()> {
    let mut read = Command::new("dpkg-deb");
    read.arg("--fsys-tarfile").arg(archive);
    let mut reader = read
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", workspace::show(&read)))?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "-p", "--keep-directory-symlink", "-C"])
        .arg(into)
        .args(UNREAD.map(|dir| format!("--exclude=./usr/share/{dir}")));
    if let Some(files) = reader.stdout.take() {
        tar.stdin(files);
    }
    let unpacked = workspace::said(&mut tar);
    let status = reader.wait()?;
    if !status.success() {
        bail!("{} ended with {status}", workspace::show(&read));
    }
    unpacked.map(drop)
}

/// A package of one architecture.
fn qualified(package: &str, machine: Machine) -> String {
    format!("{package}:{}", machine.debian())
}

/// The kernel with a release in its name among what `apt-cache depends` lists.
fn versioned_kernel(listed: &str) -> Option<&str> {
    listed.lines().find_map(|line| {
        let name = line.trim().strip_prefix("Depends: ")?;
        // Those of another architecture carry it.
        let name = name.split(':').next()?;
        name.starts_with("linux-image-").then_some(name)
    })
}

/// The names in a directory, sorted.
fn names_in(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut names: Vec<_> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listed: &str, expect: Option<&str>) {
        assert_eq!(versioned_kernel(listed), expect, "{listed}");
    }

    #[test]
    fn the_newest_kernel_is_what_its_package_depends_on() {
        check(
            "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-57-cloud-amd64\n",
            Some("linux-image-6.1.0-57-cloud-amd64"),
        );
        check(
            "linux-image-6.12-cloud-arm64:arm64\n  Depends: linux-image-6.12.117+deb12-cloud-arm64:arm64\n",
            Some("linux-image-6.12.117+deb12-cloud-arm64"),
        );
        check("linux-image-cloud-amd64\n  Depends: kmod\n", None);
    }
}
