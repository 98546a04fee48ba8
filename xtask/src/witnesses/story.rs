//! What a run did, as its system calls tell it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{
    strace::{self, Call},
    tree::{Kind, Tree},
    walk::Walk,
};

/// Devices that hold nothing.
const NOTHING: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/ptmx",
];

/// Terminals hold nothing either.
const TERMINALS: &str = "/dev/pts";

/// As much of a script as the kernel looks at for its interpreter.
const SCRIPT_HEAD: u64 = 256;

/// Everything that a run did.
#[derive(Debug, Default)]
pub struct Story {
    /// Names of files that were made, opened for writing, renamed or removed, with the process that did it first.
    pub files: BTreeMap<PathBuf, u32>,
    /// Names of directories that were made, renamed or removed.
    pub directories: BTreeSet<PathBuf>,
    /// Programs that were run, scripts and their interpreters both.
    pub programs: BTreeSet<PathBuf>,
    /// Internet addresses that were connected to, as strace writes them.
    pub connected: BTreeSet<String>,
    tree: Tree,
    tasks: HashMap<u32, Task>,
    /// The working directories, by [`Task::place`].
    places: HashMap<u32, PathBuf>,
}

/// A thread.
#[derive(Clone, Debug)]
struct Task {
    process: u32,
    /// Which working directory: threads share theirs.
    place: u32,
}

/// A child by the call that made it.
struct Birth<'a> {
    parent: u32,
    flags: &'a str,
}

impl Story {
    /// Follows the calls of a run whose first process began in a directory, among the names of a walk.
    ///
    /// # Errors
    /// At anything that it cannot tell: a witness does not guess.
    pub fn of(calls: &[Call], before: &Walk, began_in: &Path) -> Result<Self, String> {
        let births = births(calls)?;
        let mut story = Self {
            tree: Tree::of(before),
            ..Self::default()
        };
        for call in calls {
            if story.tasks.is_empty() {
                story.begin(call.tid, call.tid);
                story.places.insert(call.tid, began_in.to_owned());
            }
            story.born(&births, call.tid)?;
            let said = story.follow(call, &births);
            said.map_err(|problem| format!("{problem} in {call:?}"))?;
        }
        Ok(story)
    }

    /// Whether a number was that of one of the run's processes or threads.
    pub fn is_process(&self, id: u32) -> bool {
        self.tasks.contains_key(&id)
    }

    fn begin(&mut self, tid: u32, place: u32) {
        let process = tid;
        self.tasks.insert(tid, Task { process, place });
    }

    /// Makes a thread known when it is first heard of: by its own first call, or by the end of the one that made it.
    fn born(&mut self, births: &HashMap<u32, Birth<'_>>, tid: u32) -> Result<(), String> {
        if self.tasks.contains_key(&tid) {
            return Ok(());
        }
        let birth = births.get(&tid);
        let birth = birth.ok_or_else(|| format!("nobody made the process {tid}"))?;
        self.born(births, birth.parent)?;
        let parent = self.task(birth.parent)?.clone();
        if birth.flags.contains("CLONE_FS") {
            self.begin(tid, parent.place);
        } else {
            let place = self.place(birth.parent)?.to_owned();
            self.places.insert(tid, place);
            self.begin(tid, tid);
        }
        if birth.flags.contains("CLONE_THREAD")
            && let Some(task) = self.tasks.get_mut(&tid)
        {
            task.process = parent.process;
        }
        Ok(())
    }

    fn task(&self, tid: u32) -> Result<&Task, String> {
        let task = self.tasks.get(&tid);
        task.ok_or_else(|| format!("there is no process {tid}"))
    }

    /// The working directory of a thread.
    fn place(&self, tid: u32) -> Result<&Path, String> {
        let place = self.places.get(&self.task(tid)?.place);
        let place = place.ok_or_else(|| format!("where is {tid}?"))?;
        Ok(place)
    }

    fn follow(&mut self, call: &Call, births: &HashMap<u32, Birth<'_>>) -> Result<(), String> {
        if call.name == "connect" {
            let address = argument(call, 1)?;
            if !call.result.starts_with('?') && address.contains("sa_family=AF_INET") {
                self.connected.insert(address.to_owned());
            }
            return Ok(());
        }
        if call.failed() {
            return Ok(());
        }
        match &*call.name {
            "open" => self.opened(call, Self::name_here, argument(call, 1)?),
            "openat" => self.opened(call, Self::name_at, argument(call, 2)?),
            "openat2" => self.opened(call, Self::name_at, flags_in(argument(call, 2)?)?),
            "creat" => self.opened(call, Self::name_here, "O_WRONLY|O_CREAT|O_TRUNC"),
            "rename" => self.renamed(call, Self::name_here, [0, 1]),
            "renameat" => self.renamed(call, Self::name_at, [0, 2]),
            "renameat2" if argument(call, 4)?.contains("EXCHANGE") => Err("an exchange".into()),
            "renameat2" => self.renamed(call, Self::name_at, [0, 2]),
            "unlink" => self.removed(call, self.name_here(call, 0)?),
            "rmdir" => self.removed_directory(self.name_here(call, 0)?),
            "unlinkat" if argument(call, 2)?.contains("AT_REMOVEDIR") => {
                self.removed_directory(self.name_at(call, 0)?)
            }
            "unlinkat" => self.removed(call, self.name_at(call, 0)?),
            "mkdir" => self.made_directory(self.name_here(call, 0)?),
            "mkdirat" => self.made_directory(self.name_at(call, 0)?),
            "link" => self.linked(call, &self.name_here(call, 0)?, self.name_here(call, 1)?),
            "linkat" => self.linked(call, &self.name_at(call, 0)?, self.name_at(call, 2)?),
            "symlink" => self.made(call, self.name_here(call, 1)?, Kind::Link(text(call, 0)?)),
            "symlinkat" => self.made(call, self.name_at(call, 1)?, Kind::Link(text(call, 0)?)),
            "mknod" => self.made(call, self.name_here(call, 0)?, Kind::File),
            "mknodat" => self.made(call, self.name_at(call, 0)?, Kind::File),
            "truncate" => {
                let name = self
                    .tree
                    .resolve(self.place(call.tid)?, &text(call, 0)?, true)?;
                self.made(call, name, Kind::File)
            }
            "bind" => self.bound(call),
            "execve" => self.executed(&self.name_here(call, 0)?),
            "execveat" => self.executed(&self.name_at(call, 0)?),
            "chdir" => {
                let to = self
                    .tree
                    .resolve(self.place(call.tid)?, &text(call, 0)?, true)?;
                self.went(call, to)
            }
            "fchdir" => {
                let (to, _) = strace::path(argument(call, 0)?).ok_or("no directory")?;
                self.went(call, to)
            }
            "clone" | "clone3" | "fork" | "vfork" => {
                let child = call.result.parse().map_err(|_| "no child")?;
                self.born(births, child)
            }
            _ => Err("a call that nobody asked for".into()),
        }
    }

    /// The name in an argument, seen from the working directory.
    fn name_here(&self, call: &Call, index: usize) -> Result<PathBuf, String> {
        self.tree
            .resolve(self.place(call.tid)?, &text(call, index)?, false)
    }

    /// The name in the argument after one that says where it is seen from.
    fn name_at(&self, call: &Call, index: usize) -> Result<PathBuf, String> {
        let base = argument(call, index)?;
        let name = text(call, index + 1)?;
        if name.is_absolute() {
            return self.tree.resolve("/".as_ref(), &name, false);
        }
        let (path, _) = strace::path(base).ok_or("no base")?;
        if base.starts_with("AT_FDCWD") && path.is_absolute() && path != self.place(call.tid)? {
            return Err(format!(
                "the working directory is not {}",
                self.place(call.tid)?.display()
            ));
        }
        self.tree.resolve(&path, &name, false)
    }

    fn opened(
        &mut self,
        call: &Call,
        name: fn(&Self, &Call, usize) -> Result<PathBuf, String>,
        flags: &str,
    ) -> Result<(), String> {
        let has = |flag: &str| flags.split('|').any(|it| it == flag);
        let writes = ["O_WRONLY", "O_RDWR", "O_TRUNC"].into_iter().any(has);
        // A file without a name, or a name that was not opened.
        if has("O_TMPFILE") || has("O_PATH") || !(writes || has("O_CREAT")) {
            return Ok(());
        }
        let (path, more) = strace::path(&call.result).ok_or("opened what?")?;
        let path = if more.is_empty() {
            path
        } else {
            // It is gone, and what it was called is known only from the argument.
            let name = name(self, call, 0)?;
            self.tree.resolve("/".as_ref(), &name, true)?
        };
        let holds_nothing =
            NOTHING.iter().any(|it| path == Path::new(it)) || path.starts_with(TERMINALS);
        if !path.is_absolute() || holds_nothing {
            return Ok(());
        }
        if !writes && self.tree.kind(&path).is_some() {
            return Ok(());
        }
        self.made(call, path, Kind::File)
    }

    /// A file is there, or was.
    fn touch(&mut self, call: &Call, name: PathBuf) -> Result<(), String> {
        let process = self.task(call.tid)?.process;
        self.files.entry(name).or_insert(process);
        Ok(())
    }

    fn made(&mut self, call: &Call, name: PathBuf, kind: Kind) -> Result<(), String> {
        self.tree.make(&name, kind);
        self.touch(call, name)
    }

    fn removed(&mut self, call: &Call, name: PathBuf) -> Result<(), String> {
        self.tree.remove(&name);
        self.touch(call, name)
    }

    fn made_directory(&mut self, name: PathBuf) -> Result<(), String> {
        self.tree.make(&name, Kind::Directory);
        self.directories.insert(name);
        Ok(())
    }

    fn removed_directory(&mut self, name: PathBuf) -> Result<(), String> {
        self.tree.remove(&name);
        self.directories.insert(name);
        Ok(())
    }

    fn linked(&mut self, call: &Call, from: &Path, to: PathBuf) -> Result<(), String> {
        let kind = self.tree.kind(from).unwrap_or(Kind::File);
        self.made(call, to, kind)
    }

    /// A file, or a directory with all that calls put into it.
    fn renamed(
        &mut self,
        call: &Call,
        name: fn(&Self, &Call, usize) -> Result<PathBuf, String>,
        [from, to]: [usize; 2],
    ) -> Result<(), String> {
        let (from, to) = (name(self, call, from)?, name(self, call, to)?);
        // What nobody looked at before is what it is now, at its new name.
        let kind = self.tree.kind(&from).or_else(|| Kind::now(&to));
        if kind != Some(Kind::Directory) {
            self.tree.remove(&from);
            self.touch(call, from)?;
            return self.made(call, to, kind.unwrap_or(Kind::File));
        }
        for name in self.tree.rename(&from, &to) {
            self.touch(call, from.join(&name))?;
            self.touch(call, to.join(&name))?;
        }
        self.directories.extend([from, to]);
        Ok(())
    }

    fn bound(&mut self, call: &Call) -> Result<(), String> {
        let Some((_, name)) = argument(call, 1)?.split_once("sun_path=\"") else {
            return Ok(());
        };
        let name = format!("\"{}", name.trim_end_matches('}'));
        let name = strace::string(&name).ok_or("no name of a socket")?;
        let name = self.tree.resolve(self.place(call.tid)?, &name, false)?;
        self.made(call, name, Kind::File)
    }

    fn went(&mut self, call: &Call, to: PathBuf) -> Result<(), String> {
        let place = self.task(call.tid)?.place;
        self.places.insert(place, to);
        Ok(())
    }

    fn executed(&mut self, program: &Path) -> Result<(), String> {
        let mut next = Some(program.to_owned());
        // A script's interpreter may be a script.
        while let Some(program) = next {
            if program.starts_with("/proc") {
                return Err(format!("whose is {}?", program.display()));
            }
            let program = self.tree.resolve("/".as_ref(), &program, true)?;
            next = interpreter(&program);
            if !self.programs.insert(program) {
                break;
            }
        }
        Ok(())
    }
}

/// Who made whom, by thread id.
fn births(calls: &[Call]) -> Result<HashMap<u32, Birth<'_>>, String> {
    let mut births = HashMap::new();
    for call in calls {
        if let ("clone" | "clone3" | "fork" | "vfork", Ok(child)) =
            (&*call.name, call.result.parse::<u32>())
        {
            let flags = call.args.iter().find_map(|arg| flags_in(arg).ok());
            let birth = Birth {
                parent: call.tid,
                flags: flags.unwrap_or(""),
            };
            if births.insert(child, birth).is_some() {
                return Err(format!("process ids were used again: {child}"));
            }
        }
    }
    Ok(births)
}

/// The interpreter that a script names; nothing when it is no script. A program that is not there any more is taken for none:
/// what suites make, run and remove are programs that they compiled.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    let file = File::open(program).ok()?;
    file.take(SCRIPT_HEAD).read_to_end(&mut head).ok()?;
    let line = head
        .strip_prefix(b"#!")?
        .split(|&byte| byte == b'\n')
        .next()?;
    let words = line.split(|byte| byte.is_ascii_whitespace());
    let name = words.into_iter().find(|word| !word.is_empty())?;
    Some(Path::new(std::ffi::OsStr::from_bytes(name)).to_owned())
}

/// The flags in `flags=A|B, …`.
fn flags_in(arg: &str) -> Result<&str, String> {
    let (_, flags) = arg.split_once("flags=").ok_or("no flags")?;
    Ok(flags.split([',', '}']).next().unwrap_or(flags))
}

fn argument(call: &Call, index: usize) -> Result<&str, String> {
    let argument = call.args.get(index);
    Ok(argument.ok_or_else(|| format!("no argument {index}"))?)
}

/// A string argument, as a path.
fn text(call: &Call, index: usize) -> Result<PathBuf, String> {
    strace::string(argument(call, index)?).ok_or_else(|| format!("no string {index}"))
}

#[cfg(test)]
mod tests;
