//! `cargo xtask install`: the binaries and what makes them a service, where an administrator's own programs live.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{build, workspace};

/// A file to install.
struct Item {
    /// Where it comes from.
    source: PathBuf,
    /// Where it goes, relative to the root.
    target: &'static str,
    /// Its permission bits.
    mode: u32,
    /// The administrator edits it: one that is there stays.
    is_configuration: bool,
}

/// Where the completions of each shell go, relative to the root.
const COMPLETIONS: [(&str, &str); 3] = [
    (
        "bash",
        "usr/local/share/bash-completion/completions/capgate",
    ),
    (
        "fish",
        "usr/local/share/fish/vendor_completions.d/capgate.fish",
    ),
    ("zsh", "usr/local/share/zsh/site-functions/_capgate"),
];

/// Where the manual pages go, relative to the root.
const MANUAL: &str = "usr/local/share/man/man1";

/// Builds and installs below `root`. On the running system the group and the directories are made too.
pub(crate) fn service(root: &Path) -> Result<()> {
    build::binaries()?;
    let target = workspace::target().join("release");
    copy(&items(&target), root)?;
    generate(&target.join("capgate"), root)?;
    if root != Path::new("/") {
        return Ok(());
    }
    workspace::run(Command::new("systemd-sysusers").arg("/usr/local/lib/sysusers.d/capgate.conf"))?;
    workspace::run(
        Command::new("systemd-tmpfiles")
            .args(["--create", "/usr/local/lib/tmpfiles.d/capgate.conf"]),
    )?;
    // Where systemd manages the system, and only there.
    if Path::new("/run/systemd/system").exists() {
        workspace::run(Command::new("systemctl").arg("daemon-reload"))?;
    }
    eprintln!(
        "xtask: installed; start the service with `systemctl enable --now capgated` and let users record with `usermod -aG capgate USER`"
    );
    Ok(())
}

/// Everything that is installed, with the binaries from `binaries`.
fn items(binaries: &Path) -> Vec<Item> {
    let dist = workspace::root().join("capgate-daemon/dist");
    let program = |name, target| Item {
        source: binaries.join(name),
        target,
        mode: 0o755,
        is_configuration: false,
    };
    let file = |name, target| Item {
        source: dist.join(name),
        target,
        mode: 0o644,
        is_configuration: false,
    };
    vec![
        program("capgate", "usr/local/bin/capgate"),
        program("capgated", "usr/local/bin/capgated"),
        file(
            "capgated.service",
            "usr/local/lib/systemd/system/capgated.service",
        ),
        file("capgate.sysusers", "usr/local/lib/sysusers.d/capgate.conf"),
        file("capgate.tmpfiles", "usr/local/lib/tmpfiles.d/capgate.conf"),
        Item {
            is_configuration: true,
            ..file("capgated.toml", "etc/capgate/capgated.toml")
        },
    ]
}

/// Copies each item and says where to.
fn copy(items: &[Item], root: &Path) -> Result<()> {
    for item in items {
        let target = root.join(item.target);
        if item.is_configuration && target.exists() {
            eprintln!("xtask: kept {}", target.display());
            continue;
        }
        install(&item.source, &target, item.mode)
            .with_context(|| format!("cannot install {}", target.display()))?;
        eprintln!("xtask: installed {}", target.display());
    }
    Ok(())
}

/// Has capgate write its manual pages and completions.
fn generate(capgate: &Path, root: &Path) -> Result<()> {
    let manual = root.join(MANUAL);
    make_dir(&manual)?;
    workspace::run(Command::new(capgate).args(["man", "--dir"]).arg(&manual))?;
    for (shell, target) in COMPLETIONS {
        let target = root.join(target);
        target.parent().map_or(Ok(()), make_dir)?;
        let script =
            File::create(&target).with_context(|| format!("cannot write {}", target.display()))?;
        workspace::run(
            Command::new(capgate)
                .args(["completions", shell])
                .stdout(script),
        )?;
    }
    eprintln!(
        "xtask: installed manual pages and completions below {}",
        root.join("usr/local/share").display()
    );
    Ok(())
}

/// Makes a directory and those above it.
fn make_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}

/// Copies one file by way of a new one: a program that runs cannot be overwritten, and a reader sees either all or nothing.
fn install(source: &Path, target: &Path, mode: u32) -> Result<()> {
    target.parent().map_or(Ok(()), make_dir)?;
    let new = target.with_extension("new");
    fs::copy(source, &new).with_context(|| format!("cannot copy {}", source.display()))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(mode)).context("cannot set its mode")?;
    fs::rename(&new, target).context("cannot put it in place")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Installs programs that are scripts into a fresh directory.
    fn installed() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in build::BINARIES {
            fs::write(dir.path().join(name), "#!/bin/sh\n").unwrap();
        }
        copy(&items(dir.path()), &dir.path().join("root")).unwrap();
        dir
    }

    #[test]
    fn everything_is_in_its_place_with_its_mode() {
        let dir = installed();
        let mode = |path: &str| {
            fs::metadata(dir.path().join("root").join(path))
                .unwrap()
                .permissions()
                .mode()
                & 0o7777
        };
        for item in items(dir.path()) {
            assert_eq!(mode(item.target), item.mode, "{}", item.target);
        }
        assert_eq!(mode("usr/local/bin/capgated"), 0o755);
        assert!(!dir.path().join("root/usr/local/bin/capgate.new").exists());
    }

    #[test]
    fn manual_pages_and_completions_come_from_the_client() {
        let dir = tempfile::tempdir().unwrap();
        generate(Path::new("/bin/echo"), dir.path()).unwrap();
        assert!(dir.path().join(MANUAL).is_dir());
        for (shell, target) in COMPLETIONS {
            let script = fs::read_to_string(dir.path().join(target)).unwrap();
            assert_eq!(script, format!("completions {shell}\n"));
        }
    }

    #[test]
    fn an_edited_configuration_stays_and_a_program_is_replaced() {
        let dir = installed();
        let root = dir.path().join("root");
        fs::write(root.join("etc/capgate/capgated.toml"), "# mine\n").unwrap();
        fs::write(dir.path().join("capgate"), "#!/bin/sh\n# newer\n").unwrap();
        copy(&items(dir.path()), &root).unwrap();
        assert_eq!(
            fs::read_to_string(root.join("etc/capgate/capgated.toml")).unwrap(),
            "# mine\n"
        );
        assert_eq!(
            fs::read_to_string(root.join("usr/local/bin/capgate")).unwrap(),
            "#!/bin/sh\n# newer\n"
        );
    }

    #[test]
    fn systemd_accepts_the_unit() {
        let dir = installed();
        let unit = dir
            .path()
            .join("root/usr/local/lib/systemd/system/capgated.service");
        // systemd-analyze wants the program to exist, and it is not installed on the machine of a test.
        let program = dir.path().join("root/usr/local/bin/capgated");
        let text = fs::read_to_string(&unit).unwrap();
        assert!(
            text.contains("ExecStart=/usr/local/bin/capgated\n"),
            "{text}"
        );
        fs::write(
            &unit,
            text.replace("/usr/local/bin/capgated", program.to_str().unwrap()),
        )
        .unwrap();
        let verify = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&unit)
            .output()
            .unwrap();
        let talk = String::from_utf8_lossy(&verify.stderr);
        assert!(verify.status.success() && talk.is_empty(), "{talk}");
    }

    #[test]
    fn the_unit_leaves_the_daemon_in_the_hosts_namespaces_and_its_cgroup_without_limits() {
        let unit =
            fs::read_to_string(workspace::root().join("capgate-daemon/dist/capgated.service"))
                .unwrap();
        let refused = [
            "Private",
            "Protect",
            "ReadOnlyPaths",
            "ReadWritePaths",
            "InaccessiblePaths",
            "ExecPaths",
            "NoExecPaths",
            "Bind",
            "Root",
            "Mount",
            "Temporary",
            "DynamicUser",
            "ProcSubset",
            "IPAddress",
            "IPIngress",
            "IPEgress",
            "Device",
            "Memory",
            "CPU",
            "IO",
            "AllowedCPUs",
            "NetworkNamespacePath",
        ];
        for line in unit
            .lines()
            .filter(|line| line.contains('=') && !line.starts_with('#'))
        {
            let allowed = line.starts_with("MemoryDenyWriteExecute=");
            assert!(
                allowed || !refused.iter().any(|setting| line.starts_with(setting)),
                "{line}"
            );
        }
    }

    #[test]
    fn sysusers_and_tmpfiles_entries_make_the_group_and_the_directories() {
        let dir = installed();
        let root = dir.path().join("root");
        let option = format!("--root={}", root.display());
        for arguments in [
            ["systemd-sysusers", &option, "capgate.conf"],
            ["systemd-tmpfiles", &option, "--create"],
        ] {
            let status = Command::new(arguments[0])
                .args(&arguments[1..])
                .status()
                .unwrap();
            assert!(status.success(), "{arguments:?}");
        }
        assert!(
            fs::read_to_string(root.join("etc/group"))
                .unwrap()
                .contains("capgate:")
        );
        let mode = fs::metadata(root.join("var/lib/capgate"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o700);
    }
}
