//! The mounts of the namespace that a job began in, as they were then: only they are crossed on the way to a name, and where a file system that the job reaches through mounts of
//! its own stands in the names that everybody else sees.

use capgate_common::event::{MOUNT_NAME, Mounted};

pub mod newest;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// Its id, which no other mount of any namespace has at the same time.
    id: u32,
    /// The id of the mount that it is mounted in.
    parent: u32,
    /// `super_block.s_dev`.
    device: u32,
    /// Which directory of the file system it shows; `/` for all.
    root: Vec<u8>,
    /// Where.
    point: Vec<u8>,
}

/// The mounts, in the order in which they cover each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads `/proc/PID/mountinfo` (proc(5)) of a process whose root directory is at `slash`. A line that cannot be read is left out:
    /// its file system then is not found, which nobody takes for anything else.
    #[must_use]
    pub fn read(mountinfo: &[u8], slash: &[u8]) -> Self {
        let lines = mountinfo.split(|&byte| byte == b'\n');
        Self(lines.filter_map(|line| mount(line, slash)).collect())
    }

    /// The ids of all.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|mount| mount.id)
    }

    /// What the probes know each by: its id, and what must be the same with it.
    #[must_use]
    pub fn known(&self) -> Vec<(u32, Mounted)> {
        let name = |point: &[u8]| {
            let last = point.rsplit(|&byte| byte == b'/').next();
            // The root of everything is the only name with a slash.
            let last = last.filter(|it| !it.is_empty()).unwrap_or(b"/");
            let mut name = [0; MOUNT_NAME];
            let length = last.len().min(MOUNT_NAME - 1);
            name[..length].copy_from_slice(&last[..length]);
            name
        };
        let mounts = self.0.iter().map(|mount| {
            let mounted = Mounted {
                parent: mount.parent,
                name: name(&mount.point),
            };
            (mount.id, mounted)
        });
        mounts.collect()
    }

    /// The path of what is at `path` of a file system; `None` when it is not mounted there, or something covers it.
    #[must_use]
    pub fn locate(&self, device: u32, path: &[u8]) -> Option<Vec<u8>> {
        let found = self.0.iter().enumerate().filter_map(|(index, mount)| {
            if mount.device != device {
                return None;
            }
            let here = join(&mount.point, below(&mount.root, path)?);
            let covered = self.0.iter().skip(index + 1).any(|later| {
                below(&later.point, &here).is_some() && below(&mount.point, &later.point).is_some()
            });
            (!covered).then_some(here)
        });
        // A file system that is mounted twice has two names for everything; the shorter one is the more usual.
        found.min_by_key(Vec::len)
    }
}

fn mount(line: &[u8], slash: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(Mount {
        id,
        parent,
        // MKDEV (include/linux/kdev_t.h).
        device: major << 20 | minor,
        root: unescape(fields.next()?),
        point: join(slash, &unescape(fields.next()?)),
    })
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        if let (
            b'\\',
            [
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ],
        ) = (byte, tail)
        {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = after;
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    bytes
}

/// What follows a directory in a path: nothing, or begins with `/`.
fn below<'a>(directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let rest = path.strip_prefix(directory)?;
    let rest = if rest == b"/" { b"" } else { rest };
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// A directory and what follows it.
#[must_use]
pub fn join(directory: &[u8], rest: &[u8]) -> Vec<u8> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let rest = if rest == b"/" { b"" } else { rest };
    let path = [directory, rest].concat();
    if path.is_empty() { b"/".to_vec() } else { path }
}

#[cfg(test)]
mod tests {
    use super::Mounts;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /proc rw - proc proc rw
24 22 0:30 / /tmp rw - tmpfs tmpfs rw
25 22 8:1 /srv/code /home/ci/code rw - ext4 /dev/sda1 rw
26 22 0:31 / /mnt/a\\040b rw - tmpfs tmpfs rw
27 24 0:32 / /tmp/covered rw - tmpfs tmpfs rw
28 22 8:2 /only/this /data rw - ext4 /dev/sdb1 rw
29 22 8:9 / /a-rather-long-name rw - ext4 /dev/sdb1 rw
";

    fn check(major: u32, minor: u32, path: &str, expect: Option<&str>) {
        let mounts = Mounts::read(TABLE.as_bytes(), b"/");
        let found = mounts.locate(major << 20 | minor, path.as_bytes());
        let found = found.map(|path| String::from_utf8(path).expect("text"));
        assert_eq!(found.as_deref(), expect, "{path}");
    }

    #[test]
    fn a_file_system_is_found_where_it_is_mounted() {
        check(8, 1, "/etc/f", Some("/etc/f"));
        check(8, 1, "/", Some("/"));
        check(0, 30, "/x/y", Some("/tmp/x/y"));
        check(0, 30, "/", Some("/tmp"));
        check(0, 31, "/f", Some("/mnt/a b/f"));
    }

    #[test]
    fn a_part_of_a_file_system_has_the_names_of_that_part_only() {
        check(8, 2, "/only/this/f", Some("/data/f"));
        check(8, 2, "/only/this", Some("/data"));
        check(8, 2, "/only/thisnot", None);
        check(8, 2, "/else", None);
    }

    #[test]
    fn of_two_names_the_shorter_one_is_taken() {
        check(8, 1, "/srv/code/f", Some("/srv/code/f"));
    }

    #[test]
    fn what_something_else_covers_has_no_name() {
        check(0, 30, "/covered/f", None);
        check(0, 30, "/covered", None);
        check(0, 32, "/f", Some("/tmp/covered/f"));
        check(0, 99, "/f", None);
    }

    #[test]
    fn a_mount_is_recognised_by_where_it_is() {
        let mounts = Mounts::read(TABLE.as_bytes(), b"/");
        let known = mounts.known();
        let check = |id: u32, parent: u32, name: &[u8; 16]| {
            let found = known.iter().find(|(known, _)| *known == id);
            let found = found.map(|(_, mounted)| (mounted.parent, mounted.name));
            assert_eq!(found, Some((parent, *name)));
        };
        check(22, 1, b"/\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        check(26, 22, b"a b\0\0\0\0\0\0\0\0\0\0\0\0\0");
        check(29, 22, b"a-rather-long-n\0");
    }

    #[test]
    fn a_client_in_a_chroot_names_mounts_from_there() {
        let mounts = Mounts::read(b"1 1 8:1 /jail / rw - ext4 /dev/sda1 rw", b"/jail");
        assert_eq!(
            mounts.locate(8 << 20 | 1, b"/jail/f"),
            Some(b"/jail/f".to_vec())
        );
        assert_eq!(
            Mounts::read(b"nonsense\n1 2 x:y / /", b"/"),
            Mounts::default()
        );
        assert!(mounts.ids().eq([1]));
    }
}
