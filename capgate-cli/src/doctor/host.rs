//! Facts about the host that a recorder depends on.

use std::fs;

use nix::sys::{
    resource::{Resource, getrlimit},
    utsname::uname,
};

use super::Fact;
use crate::shown::harmless;

/// The oldest kernel that has what the probes use: cgroup ids of ancestors in tracing programs.
const OLDEST_KERNEL: (u32, u32) = (6, 1);
/// Since this version programs and maps are charged to the memory cgroup, not to RLIMIT_MEMLOCK.
const NO_MEMLOCK: (u32, u32) = (5, 11);
/// Capabilities that load programs and read other processes, by number (capability.h) and name.
const NEEDED: [(u32, &str); 5] = [
    (12, "NET_ADMIN"),
    (19, "SYS_PTRACE"),
    (21, "SYS_ADMIN"),
    (38, "PERFMON"),
    (39, "BPF"),
];

/// Everything but the daemon.
pub(super) fn facts() -> Vec<Fact> {
    let release = uname().map_or_else(
        |_| String::new(),
        |it| it.release().to_string_lossy().into_owned(),
    );
    let version = version(&release);
    vec![
        kernel(&release, version),
        types(fs::metadata("/sys/kernel/btf/vmlinux").is_ok()),
        cgroup2(&read("/proc/self/mountinfo")),
        lockdown(&read("/sys/kernel/security/lockdown")),
        memlock(version),
        lsm(&read("/sys/kernel/security/lsm")),
    ]
}

/// A file that may be missing.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Major and minor of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|it: char| !it.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(release: &str, version: Option<(u32, u32)>) -> Fact {
    let name = "kernel";
    let (major, minor) = OLDEST_KERNEL;
    let hint = format!("Linux {major}.{minor} or newer is needed");
    match version {
        Some(version) if version >= OLDEST_KERNEL => Fact::ok(name, harmless(release)),
        Some(_) => Fact::bad(name, harmless(release), hint),
        None => Fact::bad(
            name,
            format!("unknown version `{}`", harmless(release)),
            hint,
        ),
    }
}

fn types(present: bool) -> Fact {
    let name = "BTF";
    if present {
        Fact::ok(name, "/sys/kernel/btf/vmlinux")
    } else {
        Fact::bad(
            name,
            "the kernel does not describe its types",
            "use a kernel built with CONFIG_DEBUG_INFO_BTF: there has to be a /sys/kernel/btf/vmlinux",
        )
    }
}

/// Where the whole cgroup2 hierarchy is mounted, from the text of mountinfo (proc_pid_mountinfo(5)).
fn cgroup2(mountinfo: &str) -> Fact {
    let name = "cgroup2";
    let found = mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            (root == "/" && kind.starts_with("cgroup2 ")).then_some(point)
        })
        .next_back();
    match found {
        Some(point) => {
            let mode = if point == "/sys/fs/cgroup" {
                "unified"
            } else {
                "hybrid"
            };
            Fact::ok(name, format!("{mode}, at {}", harmless(point)))
        }
        None => Fact::bad(
            name,
            "the cgroup2 hierarchy is not mounted",
            "boot with systemd.unified_cgroup_hierarchy=1, or mount it: mount -t cgroup2 none /sys/fs/cgroup/unified",
        ),
    }
}

fn lockdown(text: &str) -> Fact {
    let name = "lockdown";
    let active = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match active {
        None if text.is_empty() => Fact::note(name, "unknown: securityfs is not mounted"),
        None => Fact::ok(name, "none"),
        Some("confidentiality") => Fact::bad(
            name,
            "confidentiality: programs may not read kernel memory",
            "boot with lockdown=integrity or less",
        ),
        Some(other) => Fact::ok(name, harmless(other)),
    }
}

fn memlock(version: Option<(u32, u32)>) -> Fact {
    let name = "memlock";
    let shown = match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((limit, _)) if limit == libc::RLIM_INFINITY => "unlimited".to_owned(),
        Ok((limit, _)) => format!("{} KiB", limit / 1024),
        Err(cause) => return Fact::note(name, format!("unknown: {cause}")),
    };
    if version.is_some_and(|version| version >= NO_MEMLOCK) {
        Fact::ok(
            name,
            format!("{shown}; this kernel does not charge programs to it"),
        )
    } else {
        Fact::note(name, shown).but("raise it for the daemon: LimitMEMLOCK=infinity")
    }
}

fn lsm(text: &str) -> Fact {
    let name = "LSMs";
    match text.trim() {
        "" => Fact::note(name, "unknown: securityfs is not mounted"),
        list => Fact::ok(name, harmless(list)),
    }
}

/// Whether root here is the root that a private daemon needs: in a container it often is not.
pub(super) fn capabilities() -> Fact {
    let name = "root";
    let status = read("/proc/self/status");
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(number, _)| effective & (1 << number) == 0)
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        Fact::ok(
            name,
            "root, with the capabilities that a private daemon needs",
        )
    } else {
        Fact::bad(
            name,
            format!("root without CAP_{}", missing.join(", CAP_")),
            "run on the host, or give the container these capabilities",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{cgroup2, kernel, lockdown, version};
    use crate::doctor::Level;

    #[test]
    fn releases_are_compared_by_number() {
        for (release, level) in [
            ("6.1.0-13-cloud-amd64", Level::Ok),
            ("6.18.44", Level::Ok),
            ("10.0", Level::Ok),
            ("5.15.0-generic", Level::Bad),
            ("odd", Level::Bad),
        ] {
            assert_eq!(kernel(release, version(release)).level, level, "{release}");
        }
    }

    #[test]
    fn hierarchies_are_told_apart() {
        for (mountinfo, level, found) in [
            (
                "29 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw",
                Level::Ok,
                "unified, at /sys/fs/cgroup",
            ),
            (
                "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
                Level::Ok,
                "hybrid, at /sys/fs/cgroup/unified",
            ),
            (
                "50 1 0:38 /part /mnt rw - cgroup2 cgroup2 rw\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
                Level::Bad,
                "the cgroup2 hierarchy is not mounted",
            ),
        ] {
            let fact = cgroup2(mountinfo);
            assert_eq!((fact.level, fact.found.as_str()), (level, found));
        }
    }

    #[test]
    fn only_the_strictest_lockdown_forbids_recording() {
        for (text, level) in [
            ("[none] integrity confidentiality", Level::Ok),
            ("none [integrity] confidentiality", Level::Ok),
            ("none integrity [confidentiality]", Level::Bad),
            ("", Level::Note),
        ] {
            assert_eq!(lockdown(text).level, level, "{text}");
        }
    }
}
