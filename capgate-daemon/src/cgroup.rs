//! One job's cgroup: make, enter, list, kill, remove. Every error names its path.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::{
    fs::{Mode, OFlags, XattrFlags},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use crate::proc;

/// The extended attribute that marks a job's cgroup. `trusted.` ones are readable and writable with CAP_SYS_ADMIN only.
const MARK: &str = "trusted.capgate";
/// Where jobs go when neither the client's cgroup nor the daemon's own is root's alone.
const OWN_SUBTREE: &str = "capgate.jobs";
/// What the name of a job's cgroup begins with.
const PREFIX: &str = "capgate-";
/// Files of a cgroup whose writer can move, kill or stop what is below.
const CONTROLS: [&str; 5] = [
    "cgroup.procs",
    "cgroup.threads",
    "cgroup.subtree_control",
    "cgroup.kill",
    "cgroup.freeze",
];
/// How long a cgroup that is empty may refuse to go: its last tasks are still being taken apart.
const REMOVE_PATIENCE: Duration = Duration::from_secs(2);
/// How long killed processes may take to be gone.
pub const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// Why something with a cgroup failed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// An operation on a file or directory failed.
    #[error("cannot {what} {}: {cause}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// Somebody other than root could move processes out.
    #[error("the cgroup {} is delegated", path.display())]
    Delegated {
        /// Which.
        path: PathBuf,
    },
    /// The kernel made a cgroup that cannot hold processes.
    #[error("the cgroup {} cannot hold processes: it is \"{kind}\"", path.display())]
    NotDomain {
        /// Which.
        path: PathBuf,
        /// Its `cgroup.type`.
        kind: String,
    },
    /// No place was left to try.
    #[error("no cgroup for the job could be made: {0}")]
    NoPlace(String),
    /// Killed processes that do not go away, as those in uninterruptible sleep.
    #[error("the cgroup {} still has processes after it was killed", path.display())]
    Stuck {
        /// Which.
        path: PathBuf,
    },
}

/// An [`CgroupError::Io`] from what it takes.
fn io_error(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CgroupError {
    let path = path.into();
    move |cause| CgroupError::Io { what, path, cause }
}

/// What a job's cgroup is marked with, so that a later daemon can tell whose it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The job.
    pub job: String,
    /// Process id of the daemon.
    pub daemon_pid: i32,
    /// When that daemon began, in clock ticks since boot; with the id its identity.
    pub daemon_start: u64,
}

impl Mark {
    /// The mark of this process for a job.
    ///
    /// # Errors
    /// When `/proc` does not tell when this process began.
    pub fn ours(job: &str) -> io::Result<Self> {
        let daemon_pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        Ok(Self {
            job: job.to_owned(),
            daemon_pid,
            daemon_start: proc::start_ticks(daemon_pid)?,
        })
    }

    /// The daemon that made the mark still runs.
    #[must_use]
    pub fn daemon_runs(&self) -> bool {
        proc::start_ticks(self.daemon_pid).is_ok_and(|start| start == self.daemon_start)
    }

    fn to_text(&self) -> String {
        format!("1 {} {} {}", self.job, self.daemon_pid, self.daemon_start)
    }

    fn from_text(text: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(text).ok()?.split(' ');
        let mark = match fields.next()? {
            "1" => Self {
                job: fields.next()?.to_owned(),
                daemon_pid: fields.next()?.parse().ok()?,
                daemon_start: fields.next()?.parse().ok()?,
            },
            _ => return None,
        };
        fields.next().is_none().then_some(mark)
    }
}

/// Whether a directory carries a mark, and which; a mark of an unknown form is there, but says nothing.
fn mark_of(directory: &Path) -> Option<Option<Mark>> {
    let mut text = [0; 256];
    match rustix::fs::lgetxattr(directory, MARK, &mut text) {
        Ok(len) => Some(Mark::from_text(&text[..len])),
        Err(rustix::io::Errno::RANGE) => Some(None),
        Err(_) => None,
    }
}

/// The mounted v2 hierarchy.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    root: PathBuf,
}

/// A cgroup that a crashed daemon left behind.
#[derive(Debug)]
pub struct Orphan {
    /// Its path in the hierarchy.
    pub path: PathBuf,
    /// The job that it was made for, when its mark could be read.
    pub job: Option<String>,
    /// Whether it could be killed and removed.
    pub removed: Result<(), CgroupError>,
}

impl Hierarchy {
    /// The hierarchy mounted at `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of a cgroup, given its path in the hierarchy.
    #[must_use]
    pub fn directory(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The id of a cgroup: the inode number of its directory.
    ///
    /// # Errors
    /// When it is gone.
    pub fn id(&self, path: &Path) -> Result<u64, CgroupError> {
        let directory = self.directory(path);
        let meta = fs::symlink_metadata(&directory).map_err(io_error("look at", directory))?;
        Ok(meta.ino())
    }

    /// Whether a cgroup lies inside a job of this or any other daemon: it or an ancestor carries a mark.
    #[must_use]
    pub fn inside_job(&self, path: &Path) -> bool {
        path.ancestors()
            .any(|ancestor| mark_of(&self.directory(ancestor)).is_some())
    }

    /// The topmost of a cgroup and its ancestors that somebody other than root can write to: from there, that somebody
    /// can move processes out of any cgroup below. `None` when root alone can.
    #[must_use]
    pub fn delegated(&self, path: &Path) -> Option<PathBuf> {
        let mut ancestors: Vec<_> = path.ancestors().collect();
        ancestors.reverse();
        ancestors
            .into_iter()
            .find(|ancestor| !self.roots_alone(ancestor))
            .map(Path::to_owned)
    }

    /// Only root can write to this cgroup's directory and controls. What cannot be looked at is not.
    fn roots_alone(&self, path: &Path) -> bool {
        let directory = self.directory(path);
        let fine = |meta: &fs::Metadata| meta.uid() == 0 && meta.permissions().mode() & 0o022 == 0;
        fs::symlink_metadata(&directory).is_ok_and(|meta| fine(&meta))
            && CONTROLS.iter().all(|control| {
                // The topmost cgroup has no cgroup.kill and no cgroup.freeze.
                match fs::symlink_metadata(directory.join(control)) {
                    Ok(meta) => fine(&meta),
                    Err(error) => error.kind() == io::ErrorKind::NotFound,
                }
            })
    }

    /// Makes a job's cgroup: below the client's own cgroup, so that its limits keep applying; else below the daemon's own;
    /// else in a subtree at the top. A place that is delegated to somebody, or in which the kernel refuses, is passed over.
    ///
    /// # Errors
    /// When no place is left; the sentence says why each was refused.
    pub fn make(&self, client: &Path, mark: &Mark) -> Result<JobCgroup, CgroupError> {
        let mut refusals = Vec::new();
        let own = proc::cgroup(mark.daemon_pid).map_err(io_error("tell the daemon's", "cgroup"))?;
        let top = Path::new("/").join(OWN_SUBTREE);
        let mut tried: Vec<&Path> = Vec::new();
        for parent in [client, &own, &top] {
            // At the top of the hierarchy jobs stand together, not among what is not capgate's.
            let parent = if parent == Path::new("/") && parent != client {
                &top
            } else {
                parent
            };
            if tried.contains(&parent) {
                continue;
            }
            tried.push(parent);
            let made = if parent == top {
                self.make_own_subtree()
                    .and_then(|()| JobCgroup::make(self, parent, true, mark))
            } else {
                JobCgroup::make(self, parent, false, mark)
            };
            match made {
                Ok(made) => return Ok(made),
                Err(error) => refusals.push(error.to_string()),
            }
        }
        Err(CgroupError::NoPlace(refusals.join("; ")))
    }

    /// Makes the subtree at the top, unless it is there.
    fn make_own_subtree(&self) -> Result<(), CgroupError> {
        let directory = self.root.join(OWN_SUBTREE);
        match make_directory(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(io_error("make", directory)(error))
            }
            _ => Ok(()),
        }
    }

    /// Kills and removes every marked cgroup whose daemon does not run any more.
    ///
    /// # Errors
    /// When the hierarchy cannot be walked.
    pub fn clean_up(&self) -> Result<Vec<Orphan>, CgroupError> {
        let mut orphans = Vec::new();
        let mut open = vec![PathBuf::from("/")];
        while let Some(path) = open.pop() {
            let directory = self.directory(&path);
            match mark_of(&directory) {
                Some(Some(mark)) if mark.daemon_runs() => continue,
                Some(mark) => {
                    orphans.push(Orphan {
                        removed: kill_and_remove(&directory),
                        path,
                        job: mark.map(|mark| mark.job),
                    });
                    continue;
                }
                None => {}
            }
            for name in children(&directory)? {
                open.push(path.join(name));
            }
        }
        // Only there when a daemon made it, and only removable when no job is left in it.
        let _kept = fs::remove_dir(self.root.join(OWN_SUBTREE));
        Ok(orphans)
    }
}

/// Makes a cgroup that everybody may look at and root alone may change, whatever the umask.
fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(path)
}

/// Names of the cgroups directly below a directory; none when it is gone.
fn children(directory: &Path) -> Result<Vec<std::ffi::OsString>, CgroupError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(io_error("list", directory)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_error("list", directory))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(entry.file_name());
        }
    }
    Ok(names)
}

/// The error of something that has been removed: ENODEV comes from files that were open meanwhile.
fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

/// A directory and all below it, the deepest first.
fn subtree(directory: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    let mut found = vec![directory.to_owned()];
    let mut next = 0;
    while let Some(current) = found.get(next).cloned() {
        for name in children(&current)? {
            found.push(current.join(name));
        }
        next += 1;
    }
    found.reverse();
    Ok(found)
}

/// The total of `full` in the text of a `cpu.pressure` file.
fn stalled_usec(pressure: &str) -> Option<u64> {
    let full = pressure
        .lines()
        .find_map(|line| line.strip_prefix("full "))?;
    let mut fields = full.split(' ');
    fields
        .find_map(|field| field.strip_prefix("total="))?
        .parse()
        .ok()
}

/// Whether `cgroup.events` says that a process is in the cgroup or below.
fn populated(events: &str) -> bool {
    events.lines().any(|line| line == "populated 1")
}

/// Kills what is in a cgroup that is not this daemon's, waits for it to go, and removes it.
fn kill_and_remove(directory: &Path) -> Result<(), CgroupError> {
    let kill = directory.join("cgroup.kill");
    match fs::write(&kill, "1") {
        Err(error) if !gone(&error) => return Err(io_error("write", kill)(error)),
        _ => {}
    }
    if !wait_empty(directory, KILL_PATIENCE)? {
        return Err(CgroupError::Stuck {
            path: directory.to_owned(),
        });
    }
    remove(directory)
}

/// Waits until a cgroup and all below it is empty; false when that takes longer than `patience`.
fn wait_empty(directory: &Path, patience: Duration) -> Result<bool, CgroupError> {
    let path = directory.join("cgroup.events");
    let deadline = Instant::now() + patience;
    loop {
        // A fresh file each time: the kernel signals a change since the last read of this one.
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if gone(&error) => return Ok(true),
            Err(error) => return Err(io_error("read", path)(error)),
        };
        let mut text = String::new();
        match file.read_to_string(&mut text) {
            Ok(_) => {}
            Err(error) if gone(&error) => return Ok(true),
            Err(error) => return Err(io_error("read", path)(error)),
        }
        if !populated(&text) {
            return Ok(true);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let wait = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        match poll(&mut fds, wait) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(io_error("wait for", path)(errno.into())),
        }
    }
}

/// Removes an empty cgroup and the ones that were made below it.
fn remove(directory: &Path) -> Result<(), CgroupError> {
    let deadline = Instant::now() + REMOVE_PATIENCE;
    loop {
        let mut failed = None;
        for path in subtree(directory)? {
            match fs::remove_dir(&path) {
                Ok(()) => {}
                Err(error) if gone(&error) => {}
                Err(error) => failed = Some((path, error)),
            }
        }
        match failed {
            None => return Ok(()),
            Some((path, error)) => {
                // EBUSY: still populated, or a last task on its way out.
                if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() >= deadline {
                    return Err(io_error("remove", path)(error));
                }
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The cgroup of one job of this daemon.
#[derive(Debug)]
pub struct JobCgroup {
    /// Path in the hierarchy.
    path: PathBuf,
    /// The directory as a path, for listing and removal.
    directory: PathBuf,
    /// The directory itself: a cgroup made later under the same name is another one.
    handle: OwnedFd,
    /// Inode number of the directory.
    id: u64,
    /// Depth below the top.
    level: u32,
    /// It stands in [`OWN_SUBTREE`], which goes when it is empty.
    in_own_subtree: bool,
}

/// A process that is worth a word: in a job's cgroup when it should have been empty, or outside and at work for the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Process id.
    pub pid: i32,
    /// Program, `None` when it could not be told.
    pub exe: Option<PathBuf>,
    /// Arguments, cut after a few thousand bytes.
    pub argv: Vec<Vec<u8>>,
}

impl Member {
    /// The process that has this id now.
    #[must_use]
    pub fn of(pid: i32) -> Self {
        Self {
            pid,
            exe: proc::exe(pid),
            argv: proc::argv(pid),
        }
    }
}

impl JobCgroup {
    /// Makes, marks and checks one.
    fn make(
        hierarchy: &Hierarchy,
        parent: &Path,
        in_own_subtree: bool,
        mark: &Mark,
    ) -> Result<Self, CgroupError> {
        if let Some(path) = hierarchy.delegated(parent) {
            return Err(CgroupError::Delegated { path });
        }
        let path = parent.join(format!("{PREFIX}{}", mark.job));
        let directory = hierarchy.directory(&path);
        make_directory(&directory).map_err(io_error("make", &directory))?;
        Self::adopt(path, &directory, in_own_subtree, mark).inspect_err(|_| {
            // The error that matters is the one that is on its way.
            let _empty = fs::remove_dir(&directory);
        })
    }

    /// Takes over a directory that was just made.
    fn adopt(
        path: PathBuf,
        directory: &Path,
        in_own_subtree: bool,
        mark: &Mark,
    ) -> Result<Self, CgroupError> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(directory, flags, Mode::empty())
            .map_err(|errno| io_error("open", directory)(errno.into()))?;
        let text = mark.to_text();
        rustix::fs::fsetxattr(&handle, MARK, text.as_bytes(), XattrFlags::CREATE)
            .map_err(|errno| io_error("mark", directory)(errno.into()))?;
        let stat = rustix::fs::fstat(&handle)
            .map_err(|errno| io_error("look at", directory)(errno.into()))?;
        let level = path
            .components()
            .filter(|part| matches!(part, std::path::Component::Normal(_)))
            .count();
        let made = Self {
            level: u32::try_from(level).unwrap_or(u32::MAX),
            directory: directory.to_owned(),
            id: stat.st_ino,
            handle,
            in_own_subtree,
            path,
        };
        let kind = made.read("cgroup.type")?;
        if kind.trim_end() != "domain" {
            return Err(CgroupError::NotDomain {
                path: made.directory.clone(),
                kind: kind.trim_end().to_owned(),
            });
        }
        Ok(made)
    }

    /// Its path in the hierarchy.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its id, the inode number of its directory.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its depth: 1 directly below the top.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Opens one of its files, by the directory's handle.
    fn open(&self, name: &str, flags: OFlags) -> Result<File, CgroupError> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.handle, name, flags, Mode::empty())
            .map(File::from)
            .map_err(|errno| io_error("open", self.directory.join(name))(errno.into()))
    }

    fn read(&self, name: &str) -> Result<String, CgroupError> {
        let mut text = String::new();
        self.open(name, OFlags::RDONLY)?
            .read_to_string(&mut text)
            .map_err(io_error("read", self.directory.join(name)))?;
        Ok(text)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), CgroupError> {
        self.open(name, OFlags::WRONLY)?
            .write_all(text.as_bytes())
            .map_err(io_error("write", self.directory.join(name)))
    }

    /// Moves a process, all its threads, into the job.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn admit(&self, pid: i32) -> Result<(), CgroupError> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Whether a cgroup, by its path in the hierarchy, is this one or below it.
    #[must_use]
    pub fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.path)
    }

    /// Waits until no process is left; false when that takes longer than `patience`.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn wait_empty(&self, patience: Duration) -> Result<bool, CgroupError> {
        wait_empty(&self.directory, patience)
    }

    /// The processes in it and below it.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn pids(&self) -> Result<BTreeSet<i32>, CgroupError> {
        let mut pids = BTreeSet::new();
        for directory in subtree(&self.directory)? {
            let path = directory.join("cgroup.procs");
            match fs::read_to_string(&path) {
                // 0 stands for a process outside the reader's pid namespace.
                Ok(text) => pids.extend(
                    text.lines()
                        .filter_map(|line| line.parse::<i32>().ok())
                        .filter(|&pid| pid > 0),
                ),
                Err(error) if gone(&error) => {}
                // The processes of a threaded cgroup are listed by the domain above it.
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                Err(error) => return Err(io_error("read", path)(error)),
            }
        }
        Ok(pids)
    }

    /// Its processes, with what can be said of them.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn members(&self) -> Result<Vec<Member>, CgroupError> {
        let members = self.pids()?.into_iter().map(Member::of);
        // One that ended meanwhile has nothing left to say.
        Ok(members
            .filter(|member| member.exe.is_some() || !member.argv.is_empty())
            .collect())
    }

    /// Sends a signal to every process in it and below. One that has left meanwhile does not get it.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn signal(&self, signal: Signal) -> Result<(), CgroupError> {
        for pid in self.pids()? {
            let Some(raw) = Pid::from_raw(pid) else {
                continue;
            };
            let Ok(pidfd) = pidfd_open(raw, PidfdFlags::empty()) else {
                continue;
            };
            // Between the listing and the pidfd the id may have gone to somebody else.
            if proc::cgroup(pid).is_ok_and(|path| self.contains(&path)) {
                // ESRCH: it has ended, which is as good.
                let _ended = pidfd_send_signal(&pidfd, signal);
            }
        }
        Ok(())
    }

    /// Kills every process in it and below at once, forks on their way included (`cgroup.kill`, Linux 5.14).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self) -> Result<(), CgroupError> {
        match self.write("cgroup.kill", "1") {
            Err(CgroupError::Io { cause, .. }) if gone(&cause) => Ok(()),
            other => other,
        }
    }

    /// User CPU time of all its processes, ended ones included, in microseconds (`cpu.stat`).
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn user_usec(&self) -> Result<u64, CgroupError> {
        let text = self.read("cpu.stat")?;
        text.lines()
            .find_map(|line| line.strip_prefix("user_usec "))
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| {
                io_error("understand", self.directory.join("cpu.stat"))(io::Error::from(
                    io::ErrorKind::InvalidData,
                ))
            })
    }

    /// Time in which processes of it wanted to run and none did, in microseconds (`cpu.pressure`, the total of `full`): others had
    /// the CPUs. `None` where the kernel does not tell.
    #[must_use]
    pub fn stalled_usec(&self) -> Option<u64> {
        stalled_usec(&self.read("cpu.pressure").ok()?)
    }

    /// Kills what is left, waits for it to be gone, and removes the cgroup with the ones that the job made in it.
    ///
    /// # Errors
    /// When processes do not go away, or the kernel refuses.
    pub fn remove(&self) -> Result<(), CgroupError> {
        self.kill()?;
        if !self.wait_empty(KILL_PATIENCE)? {
            return Err(CgroupError::Stuck {
                path: self.directory.clone(),
            });
        }
        remove(&self.directory)?;
        if let (true, Some(parent)) = (self.in_own_subtree, self.directory.parent()) {
            debug_assert_eq!(parent.file_name(), Some(OsStr::new(OWN_SUBTREE)));
            // Other jobs may be in it.
            let _kept = fs::remove_dir(parent);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_as_it_was_written() {
        let mark = Mark {
            job: "1nq8w3k7x2f".to_owned(),
            daemon_pid: 7,
            daemon_start: 4711,
        };
        assert_eq!(Mark::from_text(mark.to_text().as_bytes()), Some(mark));
        for odd in ["", "2 a 1 1", "1 a 1", "1 a 1 1 1", "1 a x 1"] {
            assert_eq!(Mark::from_text(odd.as_bytes()), None, "{odd:?}");
        }
    }

    #[test]
    fn this_process_is_a_running_daemon_and_a_later_one_of_its_id_is_not() -> io::Result<()> {
        let mut mark = Mark::ours("a")?;
        assert!(mark.daemon_runs());
        mark.daemon_start += 1;
        assert!(!mark.daemon_runs());
        Ok(())
    }

    #[test]
    fn the_time_without_a_cpu_is_read_from_its_line() {
        let some = "some avg10=1.00 avg60=0.00 avg300=0.00 total=77";
        let full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=4711";
        assert_eq!(stalled_usec(&format!("{some}\n{full}\n")), Some(4711));
        assert_eq!(stalled_usec(some), None);
        assert_eq!(stalled_usec("full total=x"), None);
    }

    #[test]
    fn populated_is_read_as_a_word() {
        assert!(populated("populated 1\nfrozen 0\n"));
        assert!(!populated("populated 0\nfrozen 1\n"));
        assert!(!populated(""));
    }
}
