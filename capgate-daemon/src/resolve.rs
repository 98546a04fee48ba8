//! Base directory + string -> name. The only stage that looks at the file system, through [`Look`].
//!
//! A record of the `tracepoint` set names a file as the call did: a directory that the kernel resolved, and a string that may
//! hold `.`, `..` and symbolic links. The string is walked one component at a time, as the kernel did a moment ago. What a
//! component is comes from what the job itself did ([`Now`](crate::names::Now)), else from the file system, once, and is then
//! remembered until an event changes the name.
//!
//! The file system may be ahead of the events. Hence each answer is remembered with its time, and when an event changes the
//! name, [`Resolver::changed`] tells whether the answer can have been true for the events between. A component that is gone by
//! now is taken for a directory, which the event that removed it then confirms or refutes.

use hashbrown::HashMap;

use crate::{
    event::{FileSystem, KernelPath, Named, Task, Top},
    look::{At, Look},
    mounts::{self, Mounts},
    names::{Full, Kind, NameId, Names, Now, Origin, Presence},
    process::Processes,
};

/// Most symbolic links in one string (`MAXSYMLINKS`, namei.h).
const MOST_LINKS: u32 = 40;

/// Why a name cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The kernel could not read it in full.
    Broken,
    /// The base is in no mount tree: the file has no name.
    Nameless,
    /// The base is in no tree that has names: found by its handle, or its mount is gone.
    Detached,
    /// The base is on a file system that is not mounted where the job began, or that has no name there.
    Foreign,
    /// The base is on a file system in memory that the job has mounted for itself alone.
    Private,
    /// The string goes through a link of `/proc` that only the process itself could follow.
    Magic,
    /// The file system could not say, or what it said does not fit.
    Look,
    /// No room for more names.
    Full,
}

impl From<Full> for Unresolved {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// What was removed from, or put over, a name: what [`Resolver::changed`] compares its memory with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Was {
    /// A directory.
    Directory,
    /// No directory.
    File,
    /// One of the two.
    Unknown,
}

/// An answer of the file system.
struct Looked {
    at_ns: u64,
    answer: Answer,
}

#[derive(Clone)]
enum Answer {
    Directory,
    Link(Vec<u8>),
    /// Not there any more: taken for a directory.
    Assumed,
}

/// What a component turned out to be.
enum Step {
    Directory,
    Link(Vec<u8>),
}

/// The memory of the resolve stage for one job.
pub struct Resolver {
    looked: HashMap<NameId, Looked>,
    places: Places,
    /// Root of the client's tasks.
    slash: NameId,
    proc: NameId,
    own_proc: NameId,
    /// A task of the job has another root than the client. From then on it is not known where an absolute link in a
    /// relative string starts.
    other_root: bool,
}

/// Where paths of the kernel that do not begin at the global root belong.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The job's root directory, as a path of the job's mount tree.
    pub root: Vec<u8>,
    /// The mounts of that tree when the job began.
    pub mounts: Mounts,
}

impl Places {
    /// A path of the job's mount tree for one of a file system.
    fn on(&self, file_system: FileSystem, path: &[u8]) -> Result<Vec<u8>, Unresolved> {
        if let Some(found) = self.mounts.locate(file_system.device, path) {
            return Ok(found);
        }
        match file_system {
            // It is gone with the job's last mount of it, if not before.
            FileSystem {
                magic: TMPFS | RAMFS,
                newer: false,
                ..
            } => Err(Unresolved::Private),
            FileSystem { magic: PROC, .. } => Ok(own_proc(path)),
            FileSystem { .. } => Err(Unresolved::Foreign),
        }
    }

    /// A path of the job's mount tree.
    fn find(&self, path: &KernelPath) -> Result<Vec<u8>, Unresolved> {
        match path.top {
            Top::Namespace => Ok(path.bytes.clone()),
            Top::Root => Ok(mounts::join(&self.root, &path.bytes)),
            Top::Device(file_system) => self.on(file_system, &path.bytes),
            Top::Internal => Err(Unresolved::Nameless),
            Top::Nowhere => Err(Unresolved::Detached),
        }
    }
}

/// `TMPFS_MAGIC`, `RAMFS_MAGIC`, `PROC_SUPER_MAGIC` (include/uapi/linux/magic.h).
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;
const PROC: u32 = 0x9fa0;

/// What one walk needs.
struct Walk<'a> {
    names: &'a mut Names,
    look: &'a dyn Look,
    processes: &'a Processes,
    task: &'a Task,
    /// Where absolute links and `..` end; `None` when it cannot be told.
    root: Option<NameId>,
    links: u32,
}

impl Resolver {
    /// Nothing looked at yet. `slash` is the root directory of the client's tasks, as a path of the job's mount tree.
    ///
    /// # Errors
    /// When the bound on names is too small for any name.
    pub fn new(names: &mut Names, slash: &[u8], places: Places) -> Result<Self, Full> {
        let proc = names.path(b"/proc")?;
        Ok(Self {
            looked: HashMap::new(),
            places,
            slash: names.path(slash)?,
            proc,
            own_proc: names.child(proc, b"self")?,
            other_root: false,
        })
    }

    /// The name at a path that the kernel gave. `/proc/PID` of the job's own processes becomes `/proc/self`.
    ///
    /// # Errors
    /// When the path cannot be used as a name.
    pub fn kernel_path(
        &self,
        names: &mut Names,
        processes: &Processes,
        path: &KernelPath,
    ) -> Result<NameId, Unresolved> {
        if path.broken {
            return Err(Unresolved::Broken);
        }
        let bytes = self.places.find(path)?;
        if let Some(below) = bytes.strip_prefix(b"/proc/") {
            let end = below
                .iter()
                .position(|&byte| byte == b'/')
                .unwrap_or(below.len());
            let (pid, rest) = below.split_at(end);
            if is_member(processes, pid) {
                let mut own = b"/proc/self".to_vec();
                own.extend_from_slice(rest);
                return Ok(names.path(&own)?);
            }
        }
        Ok(names.path(&bytes)?)
    }

    /// The name that a call named. `follow` says whether the call acts on what a last symbolic link points to.
    ///
    /// # Errors
    /// When the name cannot be told.
    pub fn name(
        &mut self,
        names: &mut Names,
        look: &dyn Look,
        processes: &Processes,
        task: &Task,
        named: &Named,
        follow: bool,
    ) -> Result<NameId, Unresolved> {
        if named.broken {
            return Err(Unresolved::Broken);
        }
        let absolute = named.string.starts_with(b"/");
        let base = if absolute && named.base.bytes.is_empty() && !named.base.broken {
            NameId::ROOT
        } else {
            self.kernel_path(names, processes, &named.base)?
        };
        if !named.string.is_empty() && names.now(base).presence == Presence::Unknown {
            // The kernel started there.
            names.set(base, Now::present(Kind::Directory, Origin::Before(base)));
        }
        if absolute && base != self.slash {
            self.other_root = true;
        }
        let root = if absolute {
            Some(base)
        } else {
            (!self.other_root).then_some(self.slash)
        };
        let mut walk = Walk {
            names,
            look,
            processes,
            task,
            root,
            links: 0,
        };
        self.walk(&mut walk, base, &named.string, follow)
    }

    fn walk(
        &mut self,
        walk: &mut Walk<'_>,
        start: NameId,
        string: &[u8],
        follow: bool,
    ) -> Result<NameId, Unresolved> {
        let mut at = start;
        let mut rest = string;
        loop {
            let begin = rest
                .iter()
                .position(|&byte| byte != b'/')
                .unwrap_or(rest.len());
            rest = &rest[begin..];
            if rest.is_empty() {
                return Ok(at);
            }
            let end = rest
                .iter()
                .position(|&byte| byte == b'/')
                .unwrap_or(rest.len());
            let (component, after) = rest.split_at(end);
            rest = after;
            if component == b".." {
                if walk.root != Some(at) {
                    at = walk.names.parent(at);
                }
                continue;
            }
            let name = self.component(walk, at, component)?;
            let last = rest.iter().all(|&byte| byte == b'/');
            if last && !follow {
                return Ok(name);
            }
            at = match self.step(walk, name, last)? {
                Step::Directory => name,
                Step::Link(target) => {
                    walk.links += 1;
                    if walk.links > MOST_LINKS {
                        return Err(Unresolved::Look);
                    }
                    let from = if target.starts_with(b"/") {
                        walk.root.ok_or(Unresolved::Look)?
                    } else {
                        at
                    };
                    self.walk(walk, from, &target, true)?
                }
            };
        }
    }

    /// A component in a directory; in `/proc` what stands for the calling process and the job's other ones.
    fn component(&self, walk: &mut Walk<'_>, at: NameId, component: &[u8]) -> Result<NameId, Full> {
        if at != self.proc {
            return walk.names.child(at, component);
        }
        if component == b"thread-self" {
            let tasks = walk.names.child(self.own_proc, b"task")?;
            return walk
                .names
                .child(tasks, walk.task.tid.to_string().as_bytes());
        }
        if is_member(walk.processes, component) {
            return Ok(self.own_proc);
        }
        walk.names.child(at, component)
    }

    /// What a name is. For the last component a thing that is neither directory nor link is answered as a directory: it is
    /// where the walk ends.
    fn step(&mut self, walk: &mut Walk<'_>, name: NameId, last: bool) -> Result<Step, Unresolved> {
        if name == self.own_proc
            || walk
                .names
                .ancestors(name)
                .any(|above| above == self.own_proc)
        {
            return self.own_process(walk.names, name);
        }
        let now = walk.names.now(name);
        if now.presence == Presence::Present {
            match (now.kind, now.target) {
                (Kind::Directory, _) => return Ok(Step::Directory),
                (Kind::Link, Some(target)) => {
                    return Ok(Step::Link(walk.names.target(target).to_vec()));
                }
                (Kind::Other, _) if last => return Ok(Step::Directory),
                _ => {}
            }
        }
        if let Some(looked) = self.looked.get(&name) {
            return Ok(match &looked.answer {
                Answer::Directory | Answer::Assumed => Step::Directory,
                Answer::Link(target) => Step::Link(target.clone()),
            });
        }
        let answer = match walk.look.at(&walk.names.bytes(name)) {
            At::Directory => Answer::Directory,
            At::Link(target) => Answer::Link(target),
            At::Other { .. } if last => return Ok(Step::Directory),
            // Nothing confirms later what the last component was.
            At::Nothing if last => return Err(Unresolved::Look),
            At::Other { .. } | At::Nothing => Answer::Assumed,
            At::Unknown => return Err(Unresolved::Look),
        };
        let at_ns = walk.look.now_ns();
        self.looked.insert(
            name,
            Looked {
                at_ns,
                answer: answer.clone(),
            },
        );
        Ok(match answer {
            Answer::Directory | Answer::Assumed => Step::Directory,
            Answer::Link(target) => Step::Link(target),
        })
    }

    /// What a name in `/proc/self` is, known without looking: the daemon's own `/proc/self` is another one.
    fn own_process(&self, names: &Names, name: NameId) -> Result<Step, Unresolved> {
        let parent = names.component(names.parent(name));
        let magic = matches!(names.component(name), b"cwd" | b"root" | b"exe")
            || matches!(parent, b"fd" | b"ns" | b"map_files");
        if magic {
            Err(Unresolved::Magic)
        } else {
            Ok(Step::Directory)
        }
    }

    /// An event at `time_ns` changed what is at a name: `was` is what the event says had been there. What the file system said of
    /// the name is forgotten. The answer is whether it can have been wrong for an earlier event.
    #[must_use]
    pub fn changed(&mut self, name: NameId, was: Was, time_ns: u64) -> bool {
        let Some(looked) = self.looked.remove(&name) else {
            return false;
        };
        match (looked.answer, was) {
            (Answer::Directory | Answer::Assumed, Was::Directory) => false,
            (Answer::Directory | Answer::Assumed, Was::File) => true,
            (Answer::Link(_), Was::Directory) => true,
            // Seen before the change: it was what the change took away. Else it is what came after.
            (Answer::Directory | Answer::Link(_), _) => looked.at_ns >= time_ns,
            // See `moved`.
            (Answer::Assumed, Was::Unknown) => false,
        }
    }

    /// Whether the file system showed a link at a name only after `time_ns`, when the directory above it was another one.
    #[must_use]
    pub fn was_late(&self, name: NameId, time_ns: u64) -> bool {
        self.looked.get(&name).is_some_and(|looked| {
            matches!(looked.answer, Answer::Link(_)) && looked.at_ns >= time_ns
        })
    }

    /// An event made something at a name where nothing was: what was remembered of it is over.
    pub fn forget(&mut self, name: NameId) {
        self.looked.remove(&name);
    }

    /// What the file system said is at a name.
    #[must_use]
    pub fn kind(&self, name: NameId) -> Kind {
        match self.looked.get(&name).map(|looked| &looked.answer) {
            Some(Answer::Directory) => Kind::Directory,
            Some(Answer::Link(_)) => Kind::Link,
            Some(Answer::Assumed) | None => Kind::Unknown,
        }
    }

    /// What was assumed to be a directory was renamed: what comes to light at the new name confirms or refutes it.
    pub fn moved(&mut self, from: NameId, to: NameId) {
        if let Some(looked) = self.looked.get(&from)
            && matches!(looked.answer, Answer::Assumed)
            && let Some(looked) = self.looked.remove(&from)
        {
            self.looked.insert(to, looked);
        }
    }

    /// How many names were asked about and are remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.looked.len()
    }

    /// `/proc/self`, whose names cannot be looked at from outside.
    #[must_use]
    pub fn own_proc(&self) -> NameId {
        self.own_proc
    }
}

/// A path of a `/proc` that has numbers of its own for processes: those that are in it are the job's.
fn own_proc(path: &[u8]) -> Vec<u8> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let end = path.iter().position(|&byte| byte == b'/');
    let (first, rest) = path.split_at(end.unwrap_or(path.len()));
    let is_process = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    let first = if is_process { b"self" } else { first };
    [b"/proc/", first, rest].concat()
}

fn is_member(processes: &Processes, pid: &[u8]) -> bool {
    let text = std::str::from_utf8(pid).unwrap_or_default();
    !text.starts_with(['0', '+']) && text.parse().is_ok_and(|pid| processes.is_member(pid))
}

#[cfg(test)]
mod tests;
