//! Installs what a task needs and the machine lacks, or says what to install.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};

use crate::workspace::{self, show};

/// The system's name and release.
const OS_RELEASE: &str = "/etc/os-release";

/// The system's own Python, which every user can run; a version manager's shim would add its own work to every start.
pub(crate) const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// A Debian package that a task needs.
pub(crate) struct Package {
    /// What Debian calls it.
    pub(crate) name: &'static str,
    /// What shows that it is there, whoever installed it: a program's name, or an absolute path.
    pub(crate) provides: &'static str,
    /// What needs it.
    pub(crate) why: &'static str,
}

impl Package {
    /// Whether the machine has what the package provides.
    fn is_present(&self) -> bool {
        if self.provides.starts_with('/') {
            Path::new(self.provides).exists()
        } else {
            workspace::which(self.provides).is_some()
        }
    }
}

/// Makes sure that every package of a table is there.
pub(crate) fn ensure(table: &[Package]) -> Result<()> {
    let missing: Vec<_> = table
        .iter()
        .filter(|package| !package.is_present())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if workspace::which("apt-get").is_none() {
        let wanted: Vec<_> = missing
            .iter()
            .map(|p| format!("{} ({})", p.provides, p.why))
            .collect();
        bail!("install what provides {}", wanted.join(", "));
    }
    for package in &missing {
        eprintln!("xtask: installing {}: {}", package.name, package.why);
    }
    apt_install(
        &missing
            .iter()
            .map(|package| package.name)
            .collect::<Vec<_>>(),
    )?;
    // A package that lacks what the table promises would otherwise be installed again on each run.
    match missing.iter().find(|package| !package.is_present()) {
        Some(package) => bail!(
            "{} is installed and {} is still missing",
            package.name,
            package.provides
        ),
        None => Ok(()),
    }
}

/// Makes packages of another architecture available.
pub(crate) fn ensure_architecture(name: &str) -> Result<()> {
    let known = workspace::said(Command::new("dpkg").arg("--print-foreign-architectures"))?;
    if known.lines().any(|line| line == name) {
        return Ok(());
    }
    eprintln!("xtask: adding {name} to the architectures of packages");
    let mut add = as_root("dpkg");
    add.args(["--add-architecture", name]);
    workspace::run(&mut add).with_context(|| format!("as root, run `{}`", show(&add)))?;
    refresh_lists();
    Ok(())
}

/// Fetches the lists of packages. Lists that are old or come from an image's build may know an older release only, or one
/// that is gone; where they cannot be refreshed they may still do.
pub(crate) fn refresh_lists() {
    if let Err(e) = workspace::run(apt_get().arg("update")) {
        eprintln!("xtask: going on with the package lists that are here: {e:#}");
    }
}

/// Installs Debian packages, as root or by a sudo that does not ask.
pub(crate) fn apt_install(names: &[&str]) -> Result<()> {
    refresh_lists();
    let mut install = apt_get();
    install
        .args(["install", "-y", "--no-install-recommends"])
        .args(names);
    workspace::run(&mut install).with_context(|| {
        format!(
            "as root, run `apt-get install --no-install-recommends {}`",
            names.join(" ")
        )
    })
}

/// `cargo install` of one release of a program, locked to the dependencies that its authors tested.
pub(crate) fn cargo_install(name: &str, version: &str) -> Result<()> {
    let mut install = workspace::cargo(["install", name, "--version", version, "--locked"]);
    workspace::run(&mut install).with_context(|| format!("run `{}`", show(&install)))
}

/// pip of the system's interpreter, in a directory.
pub(crate) fn pip(into: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(SYSTEM_PYTHON);
    command.args([
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]);
    command
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .stdout(std::io::stderr());
    workspace::run(command.current_dir(into).args(arguments))
}

/// Whether this is the Debian release whose own compiler builds the eBPF object.
pub(crate) fn is_debian_12() -> bool {
    let release = fs::read_to_string(OS_RELEASE).unwrap_or_default();
    let says = |key: &str, value: &str| {
        release.lines().any(|line| {
            line.strip_prefix(key)
                .and_then(|rest| rest.strip_prefix('='))
                .is_some_and(|found| found.trim_matches('"') == value)
        })
    };
    says("ID", "debian") && says("VERSION_ID", "12")
}

/// A program as root, by a sudo that does not ask; its talk goes to stderr, since a task's stdout may be data.
fn as_root(program: &str) -> Command {
    let mut command = if nix::unistd::geteuid().is_root() {
        Command::new(program)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", program]);
        sudo
    };
    command.stdout(std::io::stderr());
    command
}

/// apt-get that asks nothing.
fn apt_get() -> Command {
    let mut command = as_root("env");
    command.args([
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "-qq",
        "-o",
        "Dpkg::Use-Pty=0",
    ]);
    command
}
