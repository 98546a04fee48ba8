//! Which directories git tracks something in: whether a name that a job wrote lies among the sources, or beside them.

use std::{collections::HashSet, os::unix::ffi::OsStrExt, path::Path};

use capgate_common::{
    compare::{Finding, Judgement},
    pathform::Forms,
};
use serde::Serialize;

use crate::{git::Repository, place};

/// What is known about the directory of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Directory {
    /// git tracks a file in it or below.
    Tracked,
    /// git tracks nothing in it.
    Untracked,
    /// It is not inside the job's root.
    Outside,
    /// Nobody can tell: there is no repository, or not that commit.
    Unknown,
}

/// The directories that a commit has, relative to the job's root, as entries write them; the root itself is empty.
#[derive(Debug)]
pub(crate) struct Tracked(HashSet<String>);

impl Tracked {
    /// The directories of a commit, or of `HEAD` as it is now. `None` when they cannot be told, or when a judgement is about no
    /// written name, so that nobody asks.
    pub(crate) fn read(judgement: &Judgement, root: &Path, commit: Option<&str>) -> Option<Self> {
        let is_about_names = |finding: &Finding| matches!(finding, Finding::Writes { .. });
        if !judgement.findings.iter().any(is_about_names) {
            return None;
        }
        let top = place::git_top(root).ok()??;
        let repository = Repository::at(&top).ok()?;
        let names = repository.commit(commit.unwrap_or("HEAD")).ok()?.names();
        let forms = Forms::new(root.as_os_str().as_bytes(), None, 0).ok()?;
        let below = root.strip_prefix(&top).ok()?.as_os_str().as_bytes();
        let mut directories = HashSet::new();
        for name in names.ok()? {
            let inside = match below {
                [] => Some(&name[..]),
                below => name
                    .strip_prefix(below)
                    .and_then(|rest| rest.strip_prefix(b"/")),
            };
            let Some(form) = inside.and_then(|inside| forms.in_root(inside)) else {
                continue;
            };
            let mut path = &*form.entry;
            while !path.is_empty() {
                path = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                if !directories.insert(path.to_owned()) {
                    break;
                }
            }
        }
        Some(Self(directories))
    }

    /// What is known about the directory of a member of the write set.
    pub(crate) fn directory(tracked: Option<&Self>, entry: &str) -> Directory {
        if entry.starts_with('/') || entry == "~" || entry.starts_with("~/") {
            return Directory::Outside;
        }
        let Some(Self(directories)) = tracked else {
            return Directory::Unknown;
        };
        // `d/` is a name in the directory above it, `d/*` one in `d`.
        let name = entry.strip_suffix('/').unwrap_or(entry);
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        if directories.contains(directory) {
            Directory::Tracked
        } else {
            Directory::Untracked
        }
    }
}

impl Directory {
    /// As a report says it behind a name.
    pub(crate) fn phrase(self) -> &'static str {
        match self {
            Self::Tracked => "in a directory that git tracks",
            Self::Untracked => "in a directory that git does not track",
            Self::Outside => "outside of the root directory",
            Self::Unknown => "whether git tracks its directory is unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Directory, Tracked};

    #[test]
    fn a_name_lies_in_its_own_directory_alone() {
        let tracked = Tracked(["", "src", "src/a", "\\x7e"].map(str::to_owned).into());
        for (entry, expect) in [
            ("new", Directory::Tracked),
            ("src/new", Directory::Tracked),
            ("src/a/*", Directory::Tracked),
            ("src/b/*", Directory::Untracked),
            ("*", Directory::Tracked),
            ("cache/", Directory::Tracked),
            ("cache/x", Directory::Untracked),
            ("src/b/new", Directory::Untracked),
            (".git/index", Directory::Untracked),
            ("\\x7e/x", Directory::Tracked),
            ("~/x", Directory::Outside),
            ("/etc/x", Directory::Outside),
        ] {
            assert_eq!(Tracked::directory(Some(&tracked), entry), expect, "{entry}");
        }
        assert_eq!(Tracked::directory(None, "src/new"), Directory::Unknown);
        assert_eq!(Tracked::directory(None, "/etc/x"), Directory::Outside);
    }
}
