//! The file system with which a machine boots.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{
    cell::PROBE_SETS,
    debian::{self, Kernel},
    machine::Machine,
    modules,
    suite::Suite,
};
use crate::workspace;

/// What runs as PID 1.
const INIT: &str = include_str!("init.sh");

/// Shared libraries that the suite and the binaries are linked with.
const LIBRARIES: [&str; 3] = ["libc.so.6", "libgcc_s.so.1", "libm.so.6"];

/// Who is known, as on every Debian: user and group of one name and number, and the home.
const USERS: [(&str, u32, &str); 4] = [
    ("root", 0, "/root"),
    ("daemon", 1, "/usr/sbin"),
    ("alice", 1000, "/home/alice"),
    ("nobody", 65534, "/nonexistent"),
];

/// What PAM's own package leaves to be made at its installation: whoever asks may.
const PAM: [&str; 4] = ["account", "auth", "password", "session"];

/// What an archive is made for.
pub(crate) struct Plan {
    /// The cell's name.
    pub(crate) cell: &'static str,
    /// Its architecture.
    pub(crate) machine: Machine,
    /// Whether it has a distribution's user space.
    pub(crate) packaged: bool,
}

impl Plan {
    /// Makes the archive in `dir` and says where it is.
    pub(crate) fn make(&self, kernel: &Kernel, suite: &Suite, dir: &Path) -> Result<PathBuf> {
        let root = super::fresh(dir.join("root"))?;
        let failed = || format!("cannot lay out {}", root.display());
        if self.packaged {
            let mut copy = Command::new("cp");
            copy.arg("-a")
                .arg(debian::user_space()?.join("."))
                .arg(&root);
            workspace::said(&mut copy)?;
            settle_packages(&root).with_context(failed)?;
        } else {
            debian::merged_directories(&root).with_context(failed)?;
            libraries(self.machine, &root)?;
        }
        accounts(&root).with_context(failed)?;
        let shell = debian::busybox(self.machine)?;
        install(&shell, &root.join("usr/bin/busybox"), 0o755)?;
        suite.install(self.machine, &root.join("suite"))?;
        modules::install(kernel, &root.join("modules"))?;
        let init = format!(
            "#!/bin/busybox sh\nexport CAPGATE_SCENARIO_CELL={} CAPGATE_PROBE_SETS='{}'\n{INIT}",
            self.cell,
            PROBE_SETS.join(" ")
        );
        write(&root.join("init"), &init, 0o755)?;
        let archive = dir.join("initramfs");
        pack(&root, &archive)?;
        Ok(archive)
    }
}

/// Who there is, and what is looked up in files.
fn accounts(root: &Path) -> std::io::Result<()> {
    for dir in ["etc", "var", "root", "home"] {
        fs::create_dir_all(root.join(dir))?;
    }
    let mut passwd = String::new();
    let mut group = String::new();
    for (name, id, home) in USERS {
        passwd += &format!("{name}:x:{id}:{id}::{home}:/bin/sh\n");
        group += &format!("{name}:x:{id}:\n");
    }
    fs::write(root.join("etc/passwd"), passwd)?;
    fs::write(root.join("etc/group"), group)?;
    fs::write(
        root.join("etc/hosts"),
        "127.0.0.1 localhost capgate\n::1 localhost\n",
    )?;
    fs::write(
        root.join("etc/nsswitch.conf"),
        "passwd: files\ngroup: files\nhosts: files\n",
    )
}

/// What packages leave to be done at their installation, where a scenario needs it.
fn settle_packages(root: &Path) -> std::io::Result<()> {
    for kind in PAM {
        let file = match kind {
            "session" => "etc/pam.d/common-session-noninteractive".to_owned(),
            kind => format!("etc/pam.d/common-{kind}"),
        };
        fs::write(root.join(file), format!("{kind} required pam_permit.so\n"))?;
    }
    // Debian's package gives it a capability, which its archive cannot carry; set-user-ID is the other way.
    fs::set_permissions(
        root.join("usr/bin/ping"),
        fs::Permissions::from_mode(0o4755),
    )
}

/// The C library of the architecture, from this host.
fn libraries(machine: Machine, root: &Path) -> Result<()> {
    let loader = machine.loader();
    let loader_name = loader.rsplit('/').next().unwrap_or(loader);
    let Some((_, place)) = loader.split_once('/') else {
        bail!("{loader} is no absolute path");
    };
    for name in LIBRARIES {
        install(
            &library(machine, name)?,
            &root.join("usr/lib").join(name),
            0o755,
        )?;
    }
    install(&library(machine, loader_name)?, &root.join(place), 0o755)
}

/// Where this host has one library of the architecture.
fn library(machine: Machine, name: &str) -> Result<PathBuf> {
    let places = machine.libraries();
    places
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.exists())
        .with_context(|| format!("{name} is not in {}", places.join(" or ")))
}

/// Copies a file and makes the directory for it.
pub(crate) fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let copy = || {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        fs::copy(from, to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(mode))
    };
    copy().with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// Writes a file.
fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Packs a directory as the kernel unpacks it: everything belongs to root, and nothing is compressed, since that would have
/// to be undone in emulation.
fn pack(root: &Path, archive: &Path) -> Result<()> {
    let failed = || format!("cannot pack {}", archive.display());
    let mut names = Vec::new();
    list(root, Path::new("."), &mut names).with_context(failed)?;
    let listing = archive.with_file_name("names");
    fs::write(&listing, names.join(&b"\0"[..])).with_context(failed)?;
    let stdin = fs::File::open(&listing).with_context(failed)?;
    let mut cpio = Command::new("cpio");
    cpio.args([
        "--create",
        "--null",
        "--format=newc",
        "--owner=0:0",
        "--quiet",
    ])
    .arg("--file")
    .arg(archive)
    .current_dir(root)
    .stdin(stdin);
    workspace::said(&mut cpio).map(drop).with_context(failed)
}

/// Everything below a directory, each behind the directory that holds it.
fn list(root: &Path, dir: &Path, names: &mut Vec<Vec<u8>>) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;

    for entry in fs::read_dir(root.join(dir))? {
        let entry = entry?;
        let path = dir.join(entry.file_name());
        names.push(path.as_os_str().as_bytes().to_vec());
        if entry.file_type()?.is_dir() {
            list(root, &path, names)?;
        }
    }
    Ok(())
}
