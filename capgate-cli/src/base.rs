//! What a job is judged by: the contract of the work tree, or with `--base` that of a commit, and what git ignores there.
//!
//! A branch under test does not decide what it may do: with `--base` its own contract is shown as a proposal and has no say.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use capgate_common::{
    change::{self, Change},
    contract::{self, Contract},
    gitignored::{CommitRules, GitIgnored, RuleFile},
    pathform::{self, Forms},
};

use serde::Serialize;

use crate::{
    git::{Commit, Repository},
    place,
    shown::shown,
};

/// A file of rules, at any depth.
const RULES: &[u8] = b".gitignore";
/// Where the rules come from without `--base`.
const HEAD: &str = "HEAD";

/// The contract of a run, and all that belongs to it.
#[derive(Debug)]
pub(crate) struct Basis {
    /// The contract's file in the work tree, absolute, as it was called: a symbolic link at its place is the contract as much as
    /// the file behind it.
    pub(crate) path: PathBuf,
    /// The text that counts.
    pub(crate) text: String,
    /// Where the text came from, for the report.
    pub(crate) source: String,
    /// The commit that the text came from, by its full name; `None` for the work tree's own.
    pub(crate) commit: Option<String>,
    /// The contract itself.
    pub(crate) contract: Contract,
    /// What git ignores, when the contract asks.
    pub(crate) rules: Option<CommitRules>,
    /// What the work tree proposes instead, when it differs.
    pub(crate) proposal: Option<Proposal>,
}

/// The work tree's own contract, where the base's counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Proposal {
    /// It says something else.
    Changed(Vec<Change>),
    /// It is gone.
    Removed,
    /// It cannot be read; one phrase why.
    Unusable(String),
}

/// What to look for, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The job's root directory.
    pub(crate) root: &'a Path,
    /// The contract's path.
    pub(crate) path: &'a Path,
    /// `--base`.
    pub(crate) base: Option<&'a str>,
    /// There has to be one.
    pub(crate) needed: bool,
    /// Files that the client writes, which git's rules must not cover.
    pub(crate) outputs: &'a [&'a Path],
}

impl Basis {
    /// Reads the contract; `None` when there is none and none is needed.
    ///
    /// # Errors
    /// When it is missing and needed, or cannot be used; when the base commit, or what is asked of it, is not here.
    pub(crate) fn read(wanted: &Wanted<'_>) -> anyhow::Result<Option<Self>> {
        match wanted.base {
            None => Self::of_work_tree(wanted),
            Some(base) => Self::of_commit(wanted, base).map(Some),
        }
    }

    fn of_work_tree(wanted: &Wanted<'_>) -> anyhow::Result<Option<Self>> {
        let Some(file) = place::contract(wanted.path, wanted.needed)? else {
            return Ok(None);
        };
        let source = pathform::escape(file.path.as_os_str().as_bytes());
        let contract = parse(&file.text, || shown(wanted.path))?;
        let rules = if contract.ignore_gitignored {
            let repository = repository(wanted.root, "ignore_gitignored of the contract")?;
            let head = repository.commit(HEAD)?;
            Some(commit_rules(&repository, &head, wanted, &file.path)?)
        } else {
            None
        };
        Ok(Some(Self {
            path: file.path,
            text: file.text,
            source,
            commit: None,
            contract,
            rules,
            proposal: None,
        }))
    }

    fn of_commit(wanted: &Wanted<'_>, base: &str) -> anyhow::Result<Self> {
        let repository = repository(wanted.root, "--base")?;
        let commit = repository.commit(base)?;
        let path = std::path::absolute(wanted.path)
            .with_context(|| format!("cannot find {}", shown(wanted.path)))?;
        let Some(inside) = inside(&path, repository.top()) else {
            bail!(
                "cannot look for the contract {} at {}: it is not inside the repository {}; name one that is with --contract",
                shown(&path),
                commit.shown(),
                shown(repository.top())
            );
        };
        let most = u64::try_from(contract::MAX_BYTES).unwrap_or(u64::MAX);
        let name = pathform::escape(&inside);
        let Some(text) = commit.text(&inside, most)? else {
            bail!(
                "there is no contract at {}: {} is not in that commit; commit one there first (capgate init writes it), \
                 name another file with --contract, or leave --base out",
                commit.shown(),
                crate::shown::harmless(&name)
            );
        };
        let source = format!("{}:{name}", commit.shown());
        let contract = parse(&text, || source.clone())?;
        let rules = if contract.ignore_gitignored {
            Some(commit_rules(&repository, &commit, wanted, &path)?)
        } else {
            None
        };
        let proposal = Proposal::read(&path, &text, &contract);
        Ok(Self {
            path,
            text,
            source,
            commit: Some(commit.id().to_owned()),
            contract,
            rules,
            proposal,
        })
    }
}

impl Proposal {
    /// What the work tree proposes instead of a commit's contract.
    fn read(path: &Path, text: &str, contract: &Contract) -> Option<Self> {
        let own = match place::read_text(path, contract::MAX_BYTES) {
            Ok(own) => own,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Some(Self::Removed),
            Err(cause) => return Some(Self::Unusable(cause.to_string())),
        };
        if own == text {
            return None;
        }
        match Contract::from_json(own.as_bytes()) {
            Ok(own) => {
                let changes = change::between_contracts(contract, &own);
                (!changes.is_empty()).then_some(Self::Changed(changes))
            }
            Err(error) => Some(Self::Unusable(error.to_string())),
        }
    }
}

fn parse(text: &str, source: impl FnOnce() -> String) -> anyhow::Result<Contract> {
    Contract::from_json(text.as_bytes())
        .with_context(|| format!("cannot use the contract {}", source()))
}

/// The repository that holds the root.
fn repository(root: &Path, needs: &str) -> anyhow::Result<Repository> {
    let Some(top) = place::git_top(root)? else {
        bail!(
            "cannot use {needs}: {} is in no git work tree; run in a checkout, or name its top with --root",
            shown(root)
        );
    };
    Ok(Repository::at(&top)?)
}

/// A path from the top of the repository; `None` when it lies elsewhere. The file need not be there, only its name counts; a
/// symbolic link on the way is followed as far as there is one.
fn inside(path: &Path, top: &Path) -> Option<Vec<u8>> {
    let name = path.file_name()?;
    let real = path
        .parent()
        .and_then(|parent| fs::canonicalize(parent).ok())
        .map(|parent| parent.join(name));
    let path = real.as_deref().unwrap_or(path);
    let inside = path.strip_prefix(top).ok()?;
    let plain = |part| matches!(part, std::path::Component::Normal(_));
    inside
        .components()
        .all(plain)
        .then(|| inside.as_os_str().as_bytes().to_vec())
}

/// What git ignores by a commit.
fn commit_rules(
    repository: &Repository,
    commit: &Commit<'_>,
    wanted: &Wanted<'_>,
    contract: &Path,
) -> anyhow::Result<CommitRules> {
    let names = commit.names()?;
    let root = wanted.root.strip_prefix(repository.top());
    let root = root.with_context(|| {
        format!(
            "cannot use ignore_gitignored of the contract: the root {} is not inside the repository {}",
            shown(wanted.root),
            shown(repository.top())
        )
    })?;
    let mut rules = CommitRules {
        source: commit.shown(),
        root: pathform::escape(root.as_os_str().as_bytes()),
        ..CommitRules::default()
    };
    // One byte more than is allowed is enough to be told so, by the same check that the daemon makes.
    let most = u64::try_from(capgate_common::gitignored::MAX_RULE_BYTES).unwrap_or(u64::MAX);
    for name in &names {
        let at = name.iter().rposition(|&byte| byte == b'/');
        let (directory, file) =
            at.map_or((&[][..], &name[..]), |at| (&name[..at], &name[at + 1..]));
        if file == RULES
            && rules.files.len() <= capgate_common::gitignored::MAX_FILES
            && let Some(text) = commit.text(name, most)?
        {
            rules.files.push(RuleFile {
                directory: pathform::escape(directory),
                text,
            });
        }
    }
    let forms = Forms::new(wanted.root.as_os_str().as_bytes(), None, 0)?;
    let entry = |path: &[u8]| -> Option<String> {
        let below = Path::new(std::ffi::OsStr::from_bytes(path));
        let below = below.strip_prefix(root).ok()?;
        Some(forms.in_root(below.as_os_str().as_bytes())?.entry)
    };
    for file in wanted.outputs.iter().chain([&contract]) {
        let file = std::path::absolute(file).ok();
        let path = file.and_then(|file| inside(&file, repository.top()));
        rules.never.extend(path.and_then(|path| entry(&path)));
    }
    let unusable = || "cannot use ignore_gitignored of the contract";
    let ignored = GitIgnored::new(&rules).with_context(unusable)?;
    let tracked = names.iter().filter_map(|name| entry(name));
    rules
        .never
        .extend(tracked.filter(|entry| ignored.ignores(entry)));
    // The names may be too many now.
    GitIgnored::new(&rules).with_context(unusable)?;
    Ok(rules)
}
