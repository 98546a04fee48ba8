//! What git ignores, by the rules of one commit: the names that a contract's `ignore_gitignored` covers.
//!
//! The client reads the `.gitignore` files of the base commit, the daemon matches: a patch that widens its own `.gitignore` gains
//! nothing. As for git, a tracked file is not ignored; nor is anything that decides what runs or what is judged.

use std::{collections::BTreeSet, os::unix::ffi::OsStrExt, path::Path};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use serde::{Deserialize, Serialize};

use crate::{
    glob,
    pathform::{neutralise, unescape},
};

/// Most `.gitignore` files of one commit.
pub const MAX_FILES: usize = 1000;
/// Most bytes of them together. Compiled, a byte of them can take some hundred bytes of memory.
pub const MAX_RULE_BYTES: usize = 64 << 10;
/// Most bytes of the names that are never covered.
pub const MAX_NEVER_BYTES: usize = 256 << 10;
/// Names that are never covered, wherever they lie: they decide what git does, or what it ignores.
pub const NEVER_ANYWHERE: [&str; 4] = [".git", ".gitattributes", ".gitignore", ".gitmodules"];
/// Names at the top of a repository, or of the job's root, that are never covered: they decide what a CI system runs.
pub const NEVER_AT_TOP: [&str; 19] = [
    ".appveyor.yml",
    ".buildkite",
    ".ci",
    ".circleci",
    ".cirrus.yml",
    ".drone.yml",
    ".forgejo",
    ".gitea",
    ".github",
    ".gitlab",
    ".gitlab-ci.yml",
    ".teamcity",
    ".travis.yml",
    ".woodpecker",
    ".woodpecker.yml",
    "Jenkinsfile",
    "appveyor.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
];

/// The rules as a client sends them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitRules {
    /// Where the rules come from, for messages: a commit.
    pub source: String,
    /// The job's root directory, relative to the top of the repository, escaped; empty when it is the top.
    pub root: String,
    /// The `.gitignore` files.
    pub files: Vec<RuleFile>,
    /// Entries that the rules do not cover whatever they say: files that the commit tracks, the contract, the ledger.
    pub never: BTreeSet<String>,
}

/// A `.gitignore` file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    /// The directory that it lies in, relative to the top of the repository, escaped; empty for the top.
    pub directory: String,
    /// Its text.
    pub text: String,
}

/// Rules that cannot be used. One phrase.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// More than [`MAX_FILES`].
    #[error("there are {0} `.gitignore` files, more than the {MAX_FILES} that are read")]
    TooMany(usize),
    /// More than [`MAX_RULE_BYTES`].
    #[error(
        "the `.gitignore` files have {0} bytes together, more than the {MAX_RULE_BYTES} that are read"
    )]
    TooLarge(usize),
    /// More than [`MAX_NEVER_BYTES`].
    #[error(
        "the tracked files that `.gitignore` matches have names of {0} bytes together, more than the {MAX_NEVER_BYTES} that are read"
    )]
    TooManyTracked(usize),
    /// A line that git might read in another way than this program.
    #[error("line {line} of `{file}` cannot be read: {}", neutralise(.problem))]
    Line {
        /// Which file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A directory that is in no escaped form.
    #[error("`{}` is not the escaped name of a directory", neutralise(.0))]
    Directory(String),
    /// Too complex.
    #[error("the rules of `{file}` are too complex together: {}", neutralise(.problem))]
    Complex {
        /// Which file.
        file: String,
        /// What the matcher says.
        problem: String,
    },
}

/// The rules, ready to match.
#[derive(Clone, Debug)]
pub struct GitIgnored {
    source: String,
    /// The root's path below the top, with a slash at its end unless it is the top.
    root: Vec<u8>,
    /// Each file's directory, as `root`, and its rules; the deepest first, since it has the last word.
    files: Vec<(Vec<u8>, Gitignore)>,
    never: BTreeSet<String>,
}

impl GitIgnored {
    /// Makes rules ready.
    ///
    /// # Errors
    /// When they are beyond the bounds, or a line cannot be read.
    pub fn new(rules: &CommitRules) -> Result<Self, RulesError> {
        if rules.files.len() > MAX_FILES {
            return Err(RulesError::TooMany(rules.files.len()));
        }
        let bytes = rules.files.iter().map(|file| file.text.len()).sum();
        if bytes > MAX_RULE_BYTES {
            return Err(RulesError::TooLarge(bytes));
        }
        let bytes = rules.never.iter().map(String::len).sum();
        if bytes > MAX_NEVER_BYTES {
            return Err(RulesError::TooManyTracked(bytes));
        }
        let mut files = Vec::with_capacity(rules.files.len());
        for file in &rules.files {
            files.push((directory(&file.directory)?, compile(file)?));
        }
        files.sort_by_key(|(directory, _)| std::cmp::Reverse(directory.len()));
        Ok(Self {
            source: rules.source.clone(),
            root: directory(&rules.root)?,
            files,
            never: rules.never.clone(),
        })
    }

    /// Where the rules come from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether git ignores what an entry of the write set names.
    pub fn ignores(&self, entry: &str) -> bool {
        // Two names that have nothing in common stand for all that such an entry may mean.
        if let Some(directory) = entry.strip_suffix('*')
            && (directory.is_empty() || directory.ends_with('/'))
        {
            return !self.holds_exception(directory)
                && ["q7", "Zk-4.w"]
                    .iter()
                    .all(|name| self.ignores(&format!("{directory}{name}")));
        }
        if !glob::is_in_root(entry) || self.never.contains(entry) {
            return false;
        }
        let name = entry.strip_suffix('/');
        if name.is_some() && self.holds_exception(entry) {
            return false;
        }
        let Some(inside) = unescape(name.unwrap_or(entry)) else {
            return false;
        };
        if inside == b"." || is_protected(&inside) {
            return false;
        }
        let mut path = self.root.clone();
        path.extend(inside);
        !is_protected(&path) && self.matches(&path, name.is_some())
    }

    /// Whether a path relative to the top of the repository is ignored.
    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let ends = path
            .iter()
            .enumerate()
            .filter(|&(_, &byte)| byte == b'/')
            .map(|(end, _)| (end, true));
        // From the top downwards: what lies in an ignored directory cannot be taken back.
        ends.chain([(path.len(), is_directory)])
            .any(|(end, is_directory)| self.names(&path[..end], is_directory))
    }

    /// What the rules say of one path alone.
    fn names(&self, path: &[u8], is_directory: bool) -> bool {
        for (directory, rules) in &self.files {
            let Some(below) = path.strip_prefix(directory.as_slice()) else {
                continue;
            };
            match rules.matched(Path::new(std::ffi::OsStr::from_bytes(below)), is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }

    /// Whether an exception lies in a directory, whose entry ends with a slash (or is empty, for the root).
    fn holds_exception(&self, directory: &str) -> bool {
        self.never
            .range(directory.to_owned()..)
            .next()
            .is_some_and(|never| never.starts_with(directory))
    }
}

/// Whether a path holds a name that is never covered.
fn is_protected(path: &[u8]) -> bool {
    let mut names = path.split(|&byte| byte == b'/');
    names
        .clone()
        .next()
        .is_some_and(|first| NEVER_AT_TOP.iter().any(|name| name.as_bytes() == first))
        || names.any(|name| NEVER_ANYWHERE.iter().any(|it| it.as_bytes() == name))
}

/// The bytes of an escaped directory, with a slash at the end unless it is empty.
fn directory(text: &str) -> Result<Vec<u8>, RulesError> {
    let refuse = || RulesError::Directory(text.to_owned());
    let mut bytes = unescape(text).ok_or_else(refuse)?;
    let names = bytes.split(|&byte| byte == b'/');
    let strange = |name: &[u8]| matches!(name, b"" | b"." | b"..");
    if !bytes.is_empty() {
        if names.into_iter().any(strange) {
            return Err(refuse());
        }
        bytes.push(b'/');
    }
    Ok(bytes)
}

fn compile(file: &RuleFile) -> Result<Gitignore, RulesError> {
    let name = || match file.directory.as_str() {
        "" => ".gitignore".to_owned(),
        directory => format!("{directory}/.gitignore"),
    };
    // Paths are made relative to the file's directory before they are matched.
    let mut builder = GitignoreBuilder::new("");
    let text = file.text.strip_prefix('\u{feff}').unwrap_or(&file.text);
    for (index, line) in text.lines().enumerate() {
        builder
            .add_line(None, line)
            .map_err(|error| RulesError::Line {
                file: name(),
                line: index + 1,
                problem: error.to_string(),
            })?;
    }
    builder.build().map_err(|error| RulesError::Complex {
        file: name(),
        problem: error.to_string(),
    })
}

#[cfg(test)]
mod tests;
