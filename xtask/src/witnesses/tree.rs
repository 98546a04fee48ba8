//! The names that exist while a story is told. A name means what it meant when the call was made, not what it means when the
//! log is read.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Component, Path, PathBuf},
};

use super::walk::Walk;

/// So many symbolic links are followed for one name; the kernel follows as many.
const MOST_LINKS: usize = 40;

/// What a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A symbolic link, with what it says.
    Link(PathBuf),
    /// Anything else.
    File,
}

impl Kind {
    /// What a name of the machine is now; `None` when there is none.
    pub fn now(path: &Path) -> Option<Self> {
        let kind = path.symlink_metadata().ok()?.file_type();
        Some(if kind.is_dir() {
            Self::Directory
        } else if kind.is_symlink() {
            Self::Link(fs::read_link(path).ok()?)
        } else {
            Self::File
        })
    }
}

/// A name that exists.
#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    /// Whether a call made or wrote it.
    by_job: bool,
}

/// The names that exist at a moment: those of a walk, and what calls made of them. Other names are as they are on the machine.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
    /// Below these every name is known.
    whole: Vec<PathBuf>,
}

impl Tree {
    /// As a walk found it.
    pub fn of(walk: &Walk) -> Self {
        let node = |kind: &Kind| Node {
            kind: kind.clone(),
            by_job: false,
        };
        let names = walk.names.iter();
        Self {
            nodes: names
                .map(|(name, found)| (name.clone(), node(&found.kind)))
                .collect(),
            whole: walk.whole.clone(),
        }
    }

    /// What a name is; `None` when it is not there.
    pub fn kind(&self, path: &Path) -> Option<Kind> {
        if let Some(node) = self.nodes.get(path) {
            return Some(node.kind.clone());
        }
        if self.whole.iter().any(|dir| path.starts_with(dir)) {
            return None;
        }
        Kind::now(path)
    }

    /// A call made or wrote a name.
    pub fn make(&mut self, path: &Path, kind: Kind) {
        let node = Node { kind, by_job: true };
        self.nodes.insert(path.to_owned(), node);
    }

    /// A call removed a name.
    pub fn remove(&mut self, path: &Path) {
        self.nodes.remove(path);
    }

    /// A call moved a name with all below it. Answers the names below, relative to it, that calls had made, directories aside.
    pub fn rename(&mut self, from: &Path, to: &Path) -> Vec<PathBuf> {
        let below: Vec<PathBuf> = self
            .nodes
            .range(from.to_owned()..)
            .map(|(name, _)| name)
            .take_while(|name| name.starts_with(from))
            .cloned()
            .collect();
        let mut carried = Vec::new();
        for name in below {
            let Some((node, rest)) = self.nodes.remove(&name).zip(name.strip_prefix(from).ok())
            else {
                continue;
            };
            if rest == Path::new("") {
                self.nodes.insert(to.to_owned(), node);
                continue;
            }
            if node.by_job && node.kind != Kind::Directory {
                carried.push(rest.to_owned());
            }
            self.nodes.insert(to.join(rest), node);
        }
        carried
    }

    /// The path that a name stands for, seen from a directory: without dots and without symbolic links. Whether the last step
    /// is followed, when it is a link, is the call's to say.
    ///
    /// # Errors
    /// When there are too many links.
    pub fn resolve(&self, base: &Path, name: &Path, follow_last: bool) -> Result<PathBuf, String> {
        let mut path = base.to_owned();
        let mut steps: Vec<OsString> = Vec::new();
        let mut links = 0;
        push(&mut steps, name);
        while let Some(step) = steps.pop() {
            match Path::new(&step).components().next() {
                Some(Component::RootDir) => path = "/".into(),
                Some(Component::ParentDir) => {
                    path.pop();
                }
                Some(Component::Normal(step)) => {
                    path.push(step);
                    if (follow_last || !steps.is_empty())
                        && let Some(Kind::Link(target)) = self.kind(&path)
                    {
                        links += 1;
                        if links > MOST_LINKS {
                            return Err(format!("too many links in {}", name.display()));
                        }
                        path.pop();
                        push(&mut steps, &target);
                    }
                }
                _ => {}
            }
        }
        Ok(path)
    }
}

/// Puts the steps of a name on a stack, the first one on top.
fn push(steps: &mut Vec<OsString>, name: &Path) {
    let parts = name.components().rev();
    steps.extend(parts.map(|part| part.as_os_str().to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(names: &[(&str, Kind)]) -> Tree {
        let mut tree = Tree {
            whole: vec!["/w".into()],
            ..Tree::default()
        };
        for (name, kind) in names {
            tree.make(Path::new(name), kind.clone());
        }
        tree
    }

    #[test]
    fn a_name_is_followed_through_the_links_of_its_time() {
        let mut tree = tree(&[
            ("/w/d", Kind::Directory),
            ("/w/l", Kind::Link("d/../d".into())),
            ("/w/far", Kind::Link("/w/l/x".into())),
            ("/w/loop", Kind::Link("loop".into())),
        ]);
        let check = |tree: &Tree, name: &str, follow: bool, expect: &str| {
            let found = tree.resolve(Path::new("/w"), Path::new(name), follow);
            assert_eq!(found, Ok(expect.into()), "{name}");
        };
        check(&tree, "a", true, "/w/a");
        check(&tree, "./d/../a/", true, "/w/a");
        check(&tree, "l/a", false, "/w/d/a");
        check(&tree, "l", false, "/w/l");
        check(&tree, "l", true, "/w/d");
        check(&tree, "far/y", true, "/w/d/x/y");
        check(&tree, "/v", true, "/v");
        assert!(
            tree.resolve(Path::new("/w"), Path::new("loop"), true)
                .is_err()
        );
        tree.remove(Path::new("/w/l"));
        check(&tree, "l/a", true, "/w/l/a");
    }

    #[test]
    fn a_directory_takes_its_names_along() {
        let mut tree = tree(&[
            ("/w/d", Kind::Directory),
            ("/w/d/e", Kind::Directory),
            ("/w/d/e/a", Kind::File),
            ("/w/d-b", Kind::File),
        ]);
        let carried = tree.rename(Path::new("/w/d"), Path::new("/w/n"));
        assert_eq!(carried, [PathBuf::from("e/a")]);
        assert_eq!(tree.kind(Path::new("/w/d/e/a")), None);
        assert_eq!(tree.kind(Path::new("/w/n/e/a")), Some(Kind::File));
        assert_eq!(tree.kind(Path::new("/w/d-b")), Some(Kind::File));
    }
}
