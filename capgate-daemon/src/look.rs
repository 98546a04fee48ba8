//! Everything that a session asks of the machine: what is at a path of the job's mount tree, which addresses and interfaces
//! are local, where a process belongs. [`Look`] is the question, [`JobRoot`] the answer of a real host.
//!
//! Paths are looked at through descriptors that the client handed over, never in the daemon's own name space. Symbolic links
//! are not followed: the caller does that, one at a time.

use std::{
    collections::{BTreeSet, HashSet},
    ffi::OsStr,
    fs::{self, File},
    io::Read as _,
    net::IpAddr,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat},
    libc,
    net::if_::if_indextoname,
    sys::stat::{FileStat, SFlag, fstat, fstatat},
    time::{ClockId, clock_gettime},
};

use crate::{cgroup::Member, mounts::newest, netns, proc};

/// Longest path given to one call: `PATH_MAX` (limits.h) less the closing NUL.
const LONGEST: usize = 4095;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// A directory.
    Directory,
    /// A symbolic link with this text.
    Link(Vec<u8>),
    /// Anything else, with its owner's uid.
    Other {
        /// Owner.
        uid: u32,
    },
    /// Nothing, or nothing that is reached without following a link.
    Nothing,
    /// It cannot be told.
    Unknown,
}

/// What is at a name when the job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing.
    Nothing,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
    /// It cannot be told.
    Unknown,
}

/// What a session asks of the machine.
pub trait Look: Send {
    /// Nanoseconds since boot, suspended time included: the clock of the records.
    fn now_ns(&self) -> u64;

    /// What is at an absolute, normal path of the job's mount tree. Symbolic links are not followed, on the way neither.
    fn at(&self, path: &[u8]) -> At;

    /// What is at names in a directory: an answer for each, in order.
    fn ends(&self, directory: &[u8], names: &[&[u8]]) -> Vec<End>;

    /// Device (`major << 20 | minor`) and inode of the file at a path.
    fn identity(&self, path: &[u8]) -> Option<(u32, u64)>;

    /// The addresses of a network namespace's interfaces, when they can be told.
    fn addresses(&self, netns: u64) -> Vec<IpAddr>;

    /// The name of a network interface in the namespace with this cookie (`SO_NETNS_COOKIE`), when it can be told.
    fn interface(&self, netns: u64, index: u32) -> Option<Vec<u8>>;

    /// The regular file at a path, open for reading. As for [`Look::at`], no link is followed.
    fn file(&self, path: &[u8]) -> Option<File>;

    /// The program that a process runs, open for reading; `None` when the process has ended.
    fn program(&self, pid: u32) -> Option<File>;

    /// Whether `target`, as the process `caller` names it, is outside the job; `None` when that cannot be told.
    fn is_outside(&self, caller: u32, target: u32) -> Option<bool>;

    /// What a process, by its id in the initial pid namespace, is now.
    fn process(&self, pid: u32) -> Option<Member>;

    /// The processes that listen on TCP ports of the network namespace with this cookie, as far as they can be told.
    fn listeners(&self, netns: u64, ports: &BTreeSet<u16>) -> Vec<(u16, Member)>;
}

/// A descriptor that cannot anchor a job.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It cannot be looked at.
    #[error("cannot look at the job's {what}: {cause}")]
    Look {
        /// Which descriptor.
        what: &'static str,
        /// The system's answer.
        cause: std::io::Error,
    },
    /// It is no directory.
    #[error("the job's {0} is not a directory")]
    NotDirectory(&'static str),
    /// It was removed.
    #[error("the job's {0} has been removed")]
    Gone(&'static str),
    /// It is not reached from a file system root.
    #[error("the job's {0} has no path")]
    Detached(&'static str),
}

/// A job's mount tree, as its client handed it over.
#[derive(Debug)]
pub struct JobRoot {
    slash: OwnedFd,
    slash_path: Vec<u8>,
    root_path: Vec<u8>,
    /// Cookie of the job's network namespace; `None` where the kernel has none.
    netns: Option<u64>,
    /// The namespace itself; `None` when it is the daemon's own.
    there: Option<File>,
    /// The job's cgroup, as `/proc/PID/cgroup` writes it.
    cgroup: Option<Vec<u8>>,
    /// Ids of the mounts that there were when the job began, and the newest one; `None`: every mount is trusted.
    mounts: Option<(HashSet<u32>, Option<u64>)>,
}

impl JobRoot {
    /// `root` is the job's root directory and `slash` is `/` as the client sees it.
    ///
    /// # Errors
    /// When a descriptor is no directory that can be reached by a path.
    pub fn new(root: BorrowedFd<'_>, slash: OwnedFd) -> Result<Self, RootError> {
        let root_path = directory_path(root, "root directory")?;
        let slash_path = directory_path(slash.as_fd(), "`/`")?;
        Ok(Self {
            slash,
            slash_path,
            root_path,
            netns: netns::cookie().ok(),
            there: None,
            cgroup: None,
            mounts: None,
        })
    }

    /// Says in which network namespace the job begins: that of a process, with its cookie. Without it, in the daemon's own.
    #[must_use]
    pub fn with_netns(self, cookie: Option<u64>, pid: i32) -> Self {
        match netns::open(pid) {
            Ok(there) => Self {
                netns: cookie,
                there,
                ..self
            },
            // Nothing is known of it then, not even what is local.
            Err(_) => Self {
                netns: None,
                ..self
            },
        }
    }

    /// What can be found out in the job's network namespace; `None` in another one.
    fn in_netns<T: Send>(
        &self,
        netns: u64,
        work: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> Option<T> {
        if self.netns != Some(netns) {
            return None;
        }
        let there = self.there.as_ref().map(File::try_clone).transpose().ok()?;
        netns::within_that(there, work).ok()
    }

    /// Says which mounts there were when the job began, and which was the newest ([`newest::newest`]; `None`: not known). What is in
    /// others covers what the job's names mean.
    #[must_use]
    pub fn with_mounts(self, ids: impl IntoIterator<Item = u32>, newest: Option<u64>) -> Self {
        let mounts = Some((ids.into_iter().collect(), newest));
        Self { mounts, ..self }
    }

    /// Says which cgroup is the job's, as `/proc/PID/cgroup` writes it in its line `0::`. Until then nothing can be told of
    /// where processes belong.
    #[must_use]
    pub fn with_cgroup(self, cgroup: &[u8]) -> Self {
        let cgroup = Some(cgroup.to_vec());
        Self { cgroup, ..self }
    }

    /// Path of the root directory in the job's mount tree, symbolic links resolved.
    #[must_use]
    pub fn root_path(&self) -> &[u8] {
        &self.root_path
    }

    /// Path of the client's `/` in the job's mount tree: `/`, unless the client is in a chroot.
    #[must_use]
    pub fn slash_path(&self) -> &[u8] {
        &self.slash_path
    }

    /// The path in the job's mount tree of an existing file that the client calls `path`, symbolic links resolved.
    #[must_use]
    pub fn real(&self, path: &[u8]) -> Option<Vec<u8>> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let file = openat2(&self.slash, OsStr::from_bytes(path), how).ok()?;
        path_of(file.as_fd()).ok()
    }

    /// At most `limit` first bytes of a regular file that the client calls `path`, symbolic links followed.
    ///
    /// # Errors
    /// When it is not there, no regular file, or cannot be read.
    pub fn read(&self, path: &[u8], limit: u64) -> std::io::Result<Vec<u8>> {
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let file = fs::File::from(openat2(&self.slash, OsStr::from_bytes(path), how)?);
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::other("not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether a file is in a mount that was there when the job began.
    fn is_uncovered(&self, file: BorrowedFd<'_>) -> bool {
        self.mounts.as_ref().is_none_or(|(mounts, newest)| {
            let newer = newest.is_some_and(|newest| newest::of(file) > Some(newest));
            !newer && mount_of(file).is_some_and(|mount| mounts.contains(&mount))
        })
    }

    /// A path of the mount tree relative to `slash`, `.` for that itself; `None` when it is not below.
    fn below<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let rest = match self.slash_path.as_slice() {
            b"/" => path,
            slash => path.strip_prefix(slash)?,
        };
        match rest {
            b"" | b"/" => Some(b"."),
            rest => rest.strip_prefix(b"/"),
        }
    }

    /// Opens what is at a path without following any link; a link itself is opened as such.
    fn open(&self, path: &[u8], flags: OFlag) -> Result<OwnedFd, Errno> {
        let mut rest = self.below(path).ok_or(Errno::EXDEV)?;
        let mut start: Option<OwnedFd> = None;
        loop {
            // A path that was made by relative steps can be longer than one call takes.
            let (now, later) = if rest.len() <= LONGEST {
                (rest, None)
            } else {
                let cut = rest[..LONGEST].iter().rposition(|&byte| byte == b'/');
                let cut = cut.ok_or(Errno::ENAMETOOLONG)?;
                (&rest[..cut], Some(&rest[cut + 1..]))
            };
            let flags = if later.is_some() {
                OFlag::O_DIRECTORY
            } else {
                flags
            };
            let how = OpenHow::new()
                .flags(flags | OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
                .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_IN_ROOT);
            let from = start.as_ref().unwrap_or(&self.slash).as_fd();
            let opened = retry(|| openat2(from, OsStr::from_bytes(now), how))?;
            match later {
                None => return Ok(opened),
                Some(later) => rest = later,
            }
            start = Some(opened);
        }
    }
}

impl Look for JobRoot {
    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |now| {
            i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec())
        });
        u64::try_from(now).unwrap_or(0)
    }

    fn at(&self, path: &[u8]) -> At {
        let file = match self.open(path, OFlag::empty()) {
            Ok(file) => file,
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return At::Nothing,
            Err(_) => return At::Unknown,
        };
        let Ok(stat) = fstat(&file) else {
            return At::Unknown;
        };
        match kind(&stat) {
            SFlag::S_IFDIR => At::Directory,
            SFlag::S_IFLNK => {
                readlinkat(&file, "").map_or(At::Unknown, |text| At::Link(text.into_vec()))
            }
            _ => At::Other { uid: stat.st_uid },
        }
    }

    fn ends(&self, directory: &[u8], names: &[&[u8]]) -> Vec<End> {
        let all = |end| vec![end; names.len()];
        let directory = match self.open(directory, OFlag::O_DIRECTORY) {
            Ok(directory) => directory,
            // A link in the way: the names in it are other names than the ones in question.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return all(End::Nothing),
            Err(_) => return all(End::Unknown),
        };
        if !self.is_uncovered(directory.as_fd()) {
            return all(End::Unknown);
        }
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_NO_AUTOMOUNT;
        let look = |name: &&[u8]| match fstatat(&directory, OsStr::from_bytes(name), flags) {
            Ok(stat) if kind(&stat) == SFlag::S_IFDIR => End::Directory,
            Ok(_) => End::Other,
            Err(Errno::ENOENT | Errno::ENOTDIR) => End::Nothing,
            Err(_) => End::Unknown,
        };
        names.iter().map(look).collect()
    }

    fn identity(&self, path: &[u8]) -> Option<(u32, u64)> {
        let stat = fstat(self.open(path, OFlag::empty()).ok()?).ok()?;
        let (major, minor) = (libc::major(stat.st_dev), libc::minor(stat.st_dev));
        Some((major << 20 | minor, stat.st_ino))
    }

    fn addresses(&self, netns: u64) -> Vec<IpAddr> {
        self.in_netns(netns, netns::addresses).unwrap_or_default()
    }

    fn interface(&self, netns: u64, index: u32) -> Option<Vec<u8>> {
        let name = || Ok(if_indextoname(index)?.into_bytes());
        self.in_netns(netns, name)
    }

    fn process(&self, pid: u32) -> Option<Member> {
        Some(Member::of(i32::try_from(pid).ok()?))
    }

    fn listeners(&self, netns: u64, ports: &BTreeSet<u16>) -> Vec<(u16, Member)> {
        if self.netns != Some(netns) || self.there.is_some() {
            return Vec::new();
        }
        let found = proc::listeners(ports).into_iter();
        found.map(|(port, pid)| (port, Member::of(pid))).collect()
    }

    fn file(&self, path: &[u8]) -> Option<File> {
        let file = self.open(path, OFlag::empty()).ok()?;
        if kind(&fstat(&file).ok()?) != SFlag::S_IFREG {
            return None;
        }
        // Opened as a place first: opening anything but a regular file may do something.
        File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
    }

    fn program(&self, pid: u32) -> Option<File> {
        File::open(format!("/proc/{pid}/exe")).ok()
    }

    fn is_outside(&self, caller: u32, target: u32) -> Option<bool> {
        // In another pid namespace the number means another process.
        if target == 0 || !same_namespace(caller, "pid")? {
            return None;
        }
        let cgroups = fs::read(format!("/proc/{target}/cgroup")).ok()?;
        let own = cgroups
            .split(|&byte| byte == b'\n')
            .find_map(|line| line.strip_prefix(b"0::"))?;
        let below = own.strip_prefix(self.cgroup.as_deref()?);
        Some(!below.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")))
    }
}

/// Repeats a lookup that the kernel gave up because somebody renamed or mounted at the same time.
fn retry<T>(look: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    const TRIES: usize = 16;
    let again = |error: &Errno| matches!(error, Errno::EAGAIN | Errno::EINTR);
    for _ in 1..TRIES {
        match look() {
            Err(error) if again(&error) => {}
            done => return done,
        }
    }
    look()
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Path of an open file in its own mount tree.
fn path_of(file: BorrowedFd<'_>) -> std::io::Result<Vec<u8>> {
    let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(link.into_os_string().into_vec())
}

/// Id of the mount that an open file is in (proc_pid_fdinfo(5)).
fn mount_of(file: BorrowedFd<'_>) -> Option<u32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    id.trim().parse().ok()
}

fn directory_path(file: BorrowedFd<'_>, what: &'static str) -> Result<Vec<u8>, RootError> {
    let look = |cause| RootError::Look { what, cause };
    let stat = fstat(file).map_err(|errno| look(errno.into()))?;
    if kind(&stat) != SFlag::S_IFDIR {
        return Err(RootError::NotDirectory(what));
    }
    if stat.st_nlink == 0 {
        return Err(RootError::Gone(what));
    }
    let path = path_of(file).map_err(look)?;
    if !path.starts_with(b"/") {
        return Err(RootError::Detached(what));
    }
    Ok(path)
}

/// Whether a process is in the daemon's own namespace of a kind.
fn same_namespace(pid: u32, kind: &str) -> Option<bool> {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    Some(of(&pid.to_string())? == of("self")?)
}

#[cfg(test)]
mod tests;
