//! The directory of one scenario. It is at the same place on every machine, since ledgers show paths.

use std::{
    cell::RefCell,
    fs,
    io::ErrorKind,
    os::unix::fs::{chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::programs::BIN;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Where all directories of scenarios are.
pub(crate) const SCRATCH: &str = "/tmp/capgate-scenario";

/// One scenario's directory.
pub(crate) struct Site {
    dir: PathBuf,
    uid: u32,
    mounts: RefCell<Vec<PathBuf>>,
    words: RefCell<Vec<(String, String)>>,
}

impl Site {
    /// A fresh one, with an empty `repo`.
    pub(crate) fn new(name: &str, uid: u32) -> Self {
        let dir = Path::new(SCRATCH).join(name);
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                panic!("cannot remove {}: {error}", dir.display())
            }
            _ => {}
        }
        let site = Self {
            dir,
            uid,
            mounts: RefCell::default(),
            words: RefCell::default(),
        };
        site.set("bin", BIN);
        site.set(
            "site",
            site.path("").to_str().unwrap().trim_end_matches('/'),
        );
        fs::create_dir(&site.dir).unwrap();
        chown(&site.dir, Some(uid), Some(uid)).unwrap();
        site.directory("repo");
        site
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes a directory of the job's user, and those above it.
    pub(crate) fn directory(&self, name: &str) {
        let mut at = self.dir.clone();
        for component in Path::new(name) {
            at.push(component);
            if !at.exists() {
                fs::create_dir(&at).unwrap();
                chown(&at, Some(self.uid), Some(self.uid)).unwrap();
            }
        }
    }

    /// Makes a file of the job's user that holds a line.
    pub(crate) fn file(&self, name: &str) {
        self.directory(Path::new(name).parent().unwrap().to_str().unwrap());
        fs::write(self.path(name), "given\n").unwrap();
        chown(self.path(name), Some(self.uid), Some(self.uid)).unwrap();
    }

    /// Makes what a row has in its root: see [`crate::row::Row::given`].
    pub(crate) fn give(&self, names: &str) {
        for name in names.split_whitespace() {
            if let Some((link, target)) = name.split_once("->") {
                symlink(target, self.path("repo").join(link)).unwrap();
            } else if let Some(directory) = name.strip_suffix('/') {
                self.directory(&format!("repo/{directory}"));
            } else {
                self.file(&format!("repo/{name}"));
            }
        }
    }

    /// Mounts something until the job has ended.
    pub(crate) fn mount(&self, kind: &str, source: &Path, target: &str, options: &str) {
        self.directory(target);
        let at = self.path(target);
        let options = (!options.is_empty()).then_some(options);
        mount(Some(source), &at, Some(kind), MsFlags::empty(), options)
            .unwrap_or_else(|error| panic!("cannot mount {kind} at {}: {error}", at.display()));
        self.mounted(target);
    }

    /// Notes a mount that was made by a program: it goes with the others.
    pub(crate) fn mounted(&self, target: &str) {
        let target = self.path(target);
        chown(&target, Some(self.uid), Some(self.uid)).unwrap();
        self.mounts.borrow_mut().push(target);
    }

    /// Lets `{word}` stand for something in the command and in the answer.
    pub(crate) fn set(&self, word: &str, value: &str) {
        let mut words = self.words.borrow_mut();
        words.push((format!("{{{word}}}"), value.to_owned()));
    }

    /// A text with everything filled in.
    pub(crate) fn fill(&self, text: &str) -> String {
        let words = self.words.borrow();
        words.iter().fold(text.to_owned(), |text, (word, value)| {
            text.replace(word, value)
        })
    }

    /// Removes it. Only what succeeded is removed: the rest is there to be looked at.
    pub(crate) fn remove(self) {
        let dir = self.dir.clone();
        drop(self);
        fs::remove_dir_all(&dir)
            .unwrap_or_else(|error| panic!("cannot remove {}: {error}", dir.display()));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for target in self.mounts.borrow().iter().rev() {
            let _gone = umount2(target, MntFlags::MNT_DETACH);
        }
    }
}

/// Unmounts what a suite that was killed left behind.
pub(crate) fn sweep() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let left = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    for target in left.filter(|it| it.starts_with(&format!("{SCRATCH}/"))) {
        umount2(target, MntFlags::MNT_DETACH)
            .unwrap_or_else(|error| panic!("cannot unmount {target}: {error}"));
    }
}

/// Runs a command that a scenario needs done.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
