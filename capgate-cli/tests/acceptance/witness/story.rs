//! What a run did, as its system calls tell it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Component, Path, PathBuf},
};

use super::strace::{self, Call};

/// Devices that hold nothing.
const NOTHING: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/ptmx",
];

/// Everything that a run did.
#[derive(Default)]
pub(super) struct Story {
    /// Names of files that were made, opened for writing, renamed or removed, with the process that did it first.
    pub(super) files: BTreeMap<PathBuf, u32>,
    /// Names of directories that were made, renamed or removed.
    pub(super) directories: BTreeSet<PathBuf>,
    /// Programs that were run, scripts and their interpreters both.
    pub(super) programs: BTreeSet<PathBuf>,
    /// Internet addresses that were connected to, as strace writes them.
    pub(super) connected: BTreeSet<String>,
    /// Names of files that are there now because of a call.
    there: BTreeSet<PathBuf>,
    tasks: HashMap<u32, Task>,
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
    /// Follows the calls of a run whose first process began in a directory.
    ///
    /// # Panics
    /// At anything that it cannot tell.
    pub(super) fn of(calls: &[Call], began_in: &Path) -> Self {
        let mut births = HashMap::new();
        for call in calls {
            if let ("clone" | "clone3" | "fork" | "vfork", Ok(child)) =
                (&*call.name, call.result.parse::<u32>())
            {
                let flags = call.args.iter().find_map(|arg| flags_in(arg));
                let birth = Birth {
                    parent: call.tid,
                    flags: flags.unwrap_or(""),
                };
                let before = births.insert(child, birth);
                assert!(before.is_none(), "process ids were used again: {child}");
            }
        }
        let mut story = Self::default();
        let mut places = HashMap::new();
        for call in calls {
            if story.tasks.is_empty() {
                story.begin(call.tid, call.tid);
                places.insert(call.tid, began_in.to_owned());
            }
            story.born(&births, &mut places, call.tid);
            let place = story.tasks[&call.tid].place;
            story.follow(call, &places[&place]);
            let failed = call.result.starts_with("-1 ") || call.result.starts_with('?');
            match &*call.name {
                _ if failed => {}
                "clone" | "clone3" | "fork" | "vfork" => {
                    story.born(&births, &mut places, call.result.parse().unwrap());
                }
                "chdir" => {
                    let to = Base(&places[&place]).join(&text(call, 0));
                    places.insert(place, to.canonicalize().unwrap_or(to));
                }
                "fchdir" => {
                    let (to, _) = strace::path(&call.args[0]).unwrap();
                    places.insert(place, to.into());
                }
                _ => {}
            }
        }
        story
    }

    fn begin(&mut self, tid: u32, place: u32) {
        self.tasks.insert(
            tid,
            Task {
                process: tid,
                place,
            },
        );
    }

    /// Makes a thread known when it is first heard of: by its own first call, or by the end of the one that made it.
    fn born(
        &mut self,
        births: &HashMap<u32, Birth<'_>>,
        places: &mut HashMap<u32, PathBuf>,
        tid: u32,
    ) {
        if self.tasks.contains_key(&tid) {
            return;
        }
        let birth = births.get(&tid);
        let birth = birth.unwrap_or_else(|| panic!("nobody made the process {tid}"));
        self.born(births, places, birth.parent);
        let parent = self.tasks[&birth.parent].clone();
        if birth.flags.contains("CLONE_FS") {
            self.begin(tid, parent.place);
        } else {
            places.insert(tid, places[&parent.place].clone());
            self.begin(tid, tid);
        }
        if birth.flags.contains("CLONE_THREAD") {
            self.tasks.get_mut(&tid).unwrap().process = parent.process;
        }
    }

    fn follow(&mut self, call: &Call, place: &Path) {
        let Call {
            name, args, result, ..
        } = call;
        if result.starts_with('?') {
            return;
        }
        if name == "connect" && args[1].contains("sa_family=AF_INET") {
            self.connected.insert(args[1].clone());
        }
        if result.starts_with("-1 ") {
            return;
        }
        let at = |index: usize| {
            let base = strace::path(&args[index]);
            let (base, _) = base.unwrap_or_else(|| panic!("no base in {call:?}"));
            if base.starts_with('/') && args[index].starts_with("AT_FDCWD") {
                assert_eq!(Path::new(&base), place, "the working directory in {call:?}");
            }
            Base(Path::new(&base)).join(&text(call, index + 1))
        };
        let from_here = |index: usize| Base(place).join(&text(call, index));
        match &**name {
            "open" => self.opened(call, &args[1]),
            "openat" => self.opened(call, &args[2]),
            "openat2" => self.opened(call, flags_in(&args[2]).unwrap()),
            "creat" => self.opened(call, "O_WRONLY|O_CREAT|O_TRUNC"),
            "rename" => self.renamed(call, from_here(0), from_here(1)),
            "renameat" => self.renamed(call, at(0), at(2)),
            "renameat2" => {
                assert!(!args[4].contains("EXCHANGE"), "{call:?}");
                self.renamed(call, at(0), at(2));
            }
            "unlink" => self.removed(call, from_here(0)),
            "rmdir" => self.directory(from_here(0)),
            "unlinkat" if args[2].contains("AT_REMOVEDIR") => self.directory(at(0)),
            "unlinkat" => self.removed(call, at(0)),
            "mkdir" => self.directory(from_here(0)),
            "mkdirat" => self.directory(at(0)),
            "link" | "symlink" => self.made(call, from_here(1)),
            "linkat" => self.made(call, at(2)),
            "symlinkat" => self.made(call, at(1)),
            "mknod" => self.made(call, from_here(0)),
            "mknodat" => self.made(call, at(0)),
            "truncate" => self.made(call, from_here(0)),
            "bind" => {
                if let Some((_, name)) = args[1].split_once("sun_path=\"") {
                    let name = format!("\"{}", name.trim_end_matches('}'));
                    self.made(call, Base(place).join(&strace::string(&name).unwrap()));
                }
            }
            "execve" => self.executed(&from_here(0)),
            "execveat" => self.executed(&at(0)),
            "chdir" | "fchdir" | "connect" | "clone" | "clone3" | "fork" | "vfork" => {}
            _ => panic!("what does this do? {call:?}"),
        }
    }

    fn opened(&mut self, call: &Call, flags: &str) {
        let has = |flag: &str| flags.split('|').any(|it| it == flag);
        let writes = ["O_WRONLY", "O_RDWR", "O_TRUNC"].into_iter().any(has);
        if has("O_TMPFILE") {
            // A file without a name.
            return;
        }
        if !writes {
            assert!(!has("O_CREAT"), "was it there? {call:?}");
            return;
        }
        let opened = strace::path(&call.result);
        let (path, more) = opened.unwrap_or_else(|| panic!("opened what? {call:?}"));
        assert_eq!(more, "", "a name that is gone: {call:?}");
        let is_nothing = NOTHING.contains(&&*path) || path.starts_with("/dev/pts/");
        if path.starts_with('/') && !is_nothing {
            self.made(call, path.into());
        }
    }

    /// A file is there, or was.
    fn touch(&mut self, call: &Call, name: PathBuf) {
        let process = self.tasks[&call.tid].process;
        self.files.entry(name).or_insert(process);
    }

    fn made(&mut self, call: &Call, name: PathBuf) {
        self.there.insert(name.clone());
        self.touch(call, name);
    }

    fn removed(&mut self, call: &Call, name: PathBuf) {
        self.there.remove(&name);
        self.touch(call, name);
    }

    fn directory(&mut self, name: PathBuf) {
        self.directories.insert(name);
    }

    /// A file, or a directory with all that is known to be in it.
    fn renamed(&mut self, call: &Call, from: PathBuf, to: PathBuf) {
        let inside: Vec<PathBuf> = self
            .there
            .iter()
            .filter_map(|name| Some(name.strip_prefix(&from).ok()?.to_owned()))
            .filter(|name| name != Path::new(""))
            .collect();
        if inside.is_empty() && !self.directories.contains(&from) && !to.is_dir() {
            self.removed(call, from);
            self.made(call, to);
            return;
        }
        for name in inside {
            self.removed(call, from.join(&name));
            self.made(call, to.join(&name));
        }
        self.directory(from);
        self.directory(to);
    }

    fn executed(&mut self, program: &Path) {
        let real = program.canonicalize();
        let real = real.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let head = fs::read(&real).unwrap();
        if let Some(line) = head.strip_prefix(b"#!") {
            let end = line
                .iter()
                .position(|&byte| byte == b'\n')
                .unwrap_or(line.len());
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            let interpreter = line.split_whitespace().next().unwrap();
            self.executed(interpreter.as_ref());
        }
        self.programs.insert(real);
    }
}

/// The flags in `flags=A|B, …`.
fn flags_in(arg: &str) -> Option<&str> {
    let (_, flags) = arg.split_once("flags=")?;
    Some(flags.split([',', '}']).next().unwrap_or(flags))
}

/// A string argument.
fn text(call: &Call, index: usize) -> String {
    strace::string(&call.args[index]).unwrap_or_else(|| panic!("no string {index} in {call:?}"))
}

/// What relative names start from.
struct Base<'a>(&'a Path);

impl Base<'_> {
    /// The name without dots. Its directory is taken through symbolic links as they are now, as far as it is there.
    fn join(&self, name: &str) -> PathBuf {
        let mut path = self.0.to_owned();
        for component in Path::new(name).components() {
            match component {
                Component::RootDir => path = "/".into(),
                Component::CurDir | Component::Prefix(_) => {}
                Component::ParentDir => {
                    path.pop();
                }
                Component::Normal(step) => path.push(step),
            }
        }
        let Some((above, last)) = path.parent().zip(path.file_name()) else {
            return path;
        };
        above
            .canonicalize()
            .map_or_else(|_| path.clone(), |above| above.join(last))
    }
}
