//! The third look: the names of a file system before and after.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::tree::Kind;

/// Others may write into a directory with this bit of its mode.
const WRITTEN_BY_ALL: u32 = 0o002;

/// A name that a walk found, and what a write would have changed of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// Inode, size in bytes and time of the last change in nanoseconds; nothing for a directory, whose content has names of its own.
    pub state: (u64, u64, i128),
}

/// The names that were found.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Directories of which every name was looked at.
    pub whole: Vec<PathBuf>,
    /// What was found.
    pub names: BTreeMap<PathBuf, Found>,
}

impl Walk {
    /// Looks at every name in `whole`, and in the directories of `shared`, where everybody may write, at those that belong to `uid`.
    /// Both are paths without links.
    ///
    /// # Errors
    /// When something in `whole` cannot be read.
    pub fn of(whole: &[PathBuf], shared: &[PathBuf], uid: u32) -> io::Result<Self> {
        let mut walk = Self {
            whole: whole.to_vec(),
            names: BTreeMap::new(),
        };
        for dir in whole {
            walk.look(dir, None)?;
        }
        for dir in shared {
            walk.look(dir, Some(uid))?;
        }
        Ok(walk)
    }

    /// Takes the names in a directory, or those of one owner.
    fn look(&mut self, dir: &Path, owner: Option<u32>) -> io::Result<()> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            // What others keep may be closed, or gone by now.
            Err(_) if owner.is_some() => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            let (kind, about) = match (Kind::now(&path), path.symlink_metadata()) {
                (Some(kind), Ok(about)) => (kind, about),
                _ if owner.is_some() => continue,
                (_, Err(error)) => return Err(error),
                (None, Ok(_)) => return Err(io::Error::other("a name changed during the walk")),
            };
            let is_directory = kind == Kind::Directory;
            let is_ours = owner.is_none_or(|uid| about.uid() == uid);
            if is_ours {
                let modified =
                    i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec());
                let state = if is_directory {
                    (0, 0, 0)
                } else {
                    (about.ino(), about.size(), modified)
                };
                self.names.insert(path.clone(), Found { kind, state });
            }
            let is_open = is_ours || about.mode() & WRITTEN_BY_ALL != 0;
            if is_directory && is_open && !self.whole.contains(&path) {
                self.look(&path, owner)?;
            }
        }
        Ok(())
    }

    /// Whether every name in this one's directory was looked at.
    pub fn covers(&self, path: &Path) -> bool {
        self.whole.iter().any(|dir| path.starts_with(dir))
    }

    /// Whether a name is there, and no directory.
    pub fn has_file(&self, path: &Path) -> bool {
        self.names
            .get(path)
            .is_some_and(|found| found.kind != Kind::Directory)
    }

    /// Whether a directory is there.
    pub fn has_directory(&self, path: &Path) -> bool {
        self.names
            .get(path)
            .is_some_and(|found| found.kind == Kind::Directory)
    }
}

/// What two walks differ in.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Files and links that came, went or were written.
    pub files: BTreeSet<PathBuf>,
    /// Directories that went, or are something else now.
    pub directories: BTreeSet<PathBuf>,
}

impl Changes {
    /// From one walk to a later one.
    pub fn between(before: &Walk, after: &Walk) -> Self {
        let mut changes = Self::default();
        for (name, was) in &before.names {
            let is = after.names.get(name);
            if is == Some(was) {
                continue;
            }
            if was.kind == Kind::Directory {
                changes.directories.insert(name.clone());
            } else {
                changes.files.insert(name.clone());
            }
        }
        for (name, is) in &after.names {
            if is.kind != Kind::Directory && before.names.get(name) != Some(is) {
                changes.files.insert(name.clone());
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(paths: &BTreeSet<PathBuf>, below: &Path) -> Vec<String> {
        let relative = paths.iter().map(|path| path.strip_prefix(below).unwrap());
        relative
            .map(|path| path.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn two_walks_show_what_came_went_and_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["gone", "kept", "written", "replaced"] {
            fs::write(at(name), "1").unwrap();
        }
        fs::create_dir_all(at("old/below")).unwrap();
        symlink("kept", at("link")).unwrap();
        let walk = || Walk::of(&[dir.path().to_owned()], &[], 0).unwrap();
        let before = walk();
        assert_eq!(Changes::between(&before, &walk()), Changes::default());

        fs::remove_file(at("gone")).unwrap();
        fs::write(at("written"), "12").unwrap();
        fs::write(at("new"), "1").unwrap();
        fs::rename(at("new"), at("replaced")).unwrap();
        fs::remove_file(at("link")).unwrap();
        symlink("gone", at("link")).unwrap();
        fs::remove_dir_all(at("old")).unwrap();
        fs::create_dir_all(at("fresh")).unwrap();
        fs::write(at("fresh/a"), "").unwrap();
        let changes = Changes::between(&before, &walk());
        let files = ["fresh/a", "gone", "link", "replaced", "written"];
        assert_eq!(names(&changes.files, dir.path()), files);
        assert_eq!(
            names(&changes.directories, dir.path()),
            ["old", "old/below"]
        );
    }

    #[test]
    fn where_everybody_may_write_only_one_owners_names_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "").unwrap();
        let own = dir.path().metadata().unwrap().uid();
        let shared = [dir.path().to_owned()];
        assert_eq!(Walk::of(&[], &shared, own).unwrap().names.len(), 1);
        assert_eq!(Walk::of(&[], &shared, own + 1).unwrap().names.len(), 0);
    }
}
