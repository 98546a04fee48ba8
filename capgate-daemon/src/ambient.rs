//! Two short lists of unix sockets that the design names: host plumbing that every program touches, and services that start
//! processes for others. `docs/ledger-format.md` repeats them.

/// Plumbing: the name service cache, user database and identity lookups of the C library, and the system log. A path that ends
/// with a slash covers what lies below.
const AMBIENT: [&str; 9] = [
    "/dev/log",
    "/run/nscd/socket",
    "/run/systemd/journal/dev-log",
    "/run/systemd/journal/socket",
    "/run/systemd/journal/stdout",
    "/run/systemd/userdb/",
    "/var/lib/sss/pipes/",
    "/var/run/nscd/socket",
    "/var/run/systemd/userdb/",
];

/// Services that start processes for others, by how the path of their socket ends.
/// cron and at have no socket; they are reached by their spool directories, which are ordinary writes.
const DELEGATES: [(&str, &str); 7] = [
    ("/docker.sock", "docker"),
    ("/containerd.sock", "containerd"),
    ("/crio.sock", "containerd"),
    ("/buildkitd.sock", "containerd"),
    ("/podman.sock", "podman"),
    ("/systemd/private", "systemd"),
    ("/dbus/system_bus_socket", "dbus"),
];

/// How the abstract names of session buses begin (`dbus-daemon --session`).
const ABSTRACT_BUS: &[u8] = b"/tmp/dbus-";

/// Whether a socket's path is on the list of plumbing.
#[must_use]
pub fn is_ambient(path: &[u8]) -> bool {
    AMBIENT.iter().map(|entry| entry.as_bytes()).any(|entry| {
        if entry.ends_with(b"/") {
            path.starts_with(entry)
        } else {
            path == entry
        }
    })
}

/// The service behind a socket's path, if it starts processes for others.
#[must_use]
pub fn delegate(path: &[u8]) -> Option<&'static str> {
    let listed = DELEGATES
        .iter()
        .find(|(end, _)| path.ends_with(end.as_bytes()));
    if let Some((_, name)) = listed {
        return Some(name);
    }
    is_bus(path).then_some("dbus")
}

/// The service behind an abstract name, if it starts processes for others.
#[must_use]
pub fn abstract_delegate(name: &[u8]) -> Option<&'static str> {
    name.starts_with(ABSTRACT_BUS).then_some("dbus")
}

/// A session bus: `/run/user/UID/bus`, and the socket in `/tmp` that a bus without systemd has.
fn is_bus(path: &[u8]) -> bool {
    let user = path
        .strip_prefix(b"/run/user/")
        .and_then(|rest| rest.strip_suffix(b"/bus"));
    user.is_some_and(|uid| uid.iter().all(u8::is_ascii_digit)) || path.starts_with(ABSTRACT_BUS)
}

#[cfg(test)]
mod tests {
    use super::{ABSTRACT_BUS, AMBIENT, DELEGATES, abstract_delegate, delegate, is_ambient};

    #[test]
    fn plumbing_is_listed() {
        for path in [
            "/run/nscd/socket",
            "/run/systemd/userdb/io.systemd.DynamicUser",
            "/dev/log",
        ] {
            assert!(is_ambient(path.as_bytes()), "{path}");
        }
        for path in [
            "/run/nscd/socket2",
            "/run/systemd/userdb",
            "/tmp/run/nscd/socket",
            "/run/systemd/notify",
        ] {
            assert!(!is_ambient(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn services_are_known_by_their_sockets() {
        for (path, name) in [
            ("/run/docker.sock", Some("docker")),
            ("/home/u/.docker/run/docker.sock", Some("docker")),
            ("/run/user/1000/podman/podman.sock", Some("podman")),
            ("/run/containerd/containerd.sock", Some("containerd")),
            ("/run/systemd/private", Some("systemd")),
            ("/run/user/1000/systemd/private", Some("systemd")),
            ("/run/dbus/system_bus_socket", Some("dbus")),
            ("/run/user/1000/bus", Some("dbus")),
            ("/tmp/dbus-Xy12", Some("dbus")),
            ("/run/user/x/bus", None),
            ("/run/postgresql/.s.PGSQL.5432", None),
            ("/tmp/mydocker.sock", None),
        ] {
            assert_eq!(delegate(path.as_bytes()), name, "{path}");
        }
        assert_eq!(abstract_delegate(b"/tmp/dbus-Xy12"), Some("dbus"));
        assert_eq!(abstract_delegate(b"x"), None);
    }

    #[test]
    fn the_lists_are_documented() {
        let page = include_str!("../../docs/ledger-format.md");
        let bus = std::str::from_utf8(ABSTRACT_BUS).expect("text");
        let delegates = DELEGATES.iter().map(|(end, _)| *end);
        for entry in AMBIENT.into_iter().chain(delegates).chain([bus]) {
            assert!(
                page.contains(&format!("`{entry}`")),
                "{entry} is not documented"
            );
        }
    }
}
