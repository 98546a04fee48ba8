//! Why a commit cannot be read, and what to do about it.

use std::io;

/// A commit that cannot be read. One sentence each.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    /// No git.
    #[error("cannot read {0}: there is no git in PATH; install git")]
    NoGit(String),
    /// It cannot be started, or not be listened to.
    #[error("cannot ask git about {what}: {cause}")]
    Start {
        /// What was asked.
        what: String,
        /// The system's answer.
        cause: io::Error,
    },
    /// A reference that is none.
    #[error(
        "cannot use `{0}` as the base: name a branch, a tag or a commit, or two with `...` for their merge base"
    )]
    Reference(String),
    /// Nothing of that name.
    #[error("cannot find the base `{reference}` in {top}: there is no such commit here{}; {hint}", shallow_note(*.shallow))]
    NoCommit {
        /// As given.
        reference: String,
        /// The repository's top directory.
        top: String,
        /// The clone is shallow.
        shallow: bool,
        /// What to fetch.
        hint: String,
    },
    /// Two things of that name.
    #[error(
        "cannot tell which commit `{0}` is: several references have that name; write it in full, as refs/heads/… or refs/remotes/…"
    )]
    Ambiguous(String),
    /// No common commit.
    #[error("cannot find the merge base of `{one}` and `{other}` in {top}: their histories do not meet here{}; {hint}", shallow_note(*.shallow))]
    NoMergeBase {
        /// One side.
        one: String,
        /// The other side.
        other: String,
        /// The repository's top directory.
        top: String,
        /// The clone is shallow.
        shallow: bool,
        /// What to fetch.
        hint: &'static str,
    },
    /// Something else than a file is there.
    #[error(
        "cannot use {path} at {reference}: it is {kind} there; name the file itself with --contract"
    )]
    NotAFile {
        /// As asked.
        path: String,
        /// The commit, as the user knows it.
        reference: String,
        /// What it is.
        kind: &'static str,
    },
    /// A file that is too large.
    #[error("cannot use {path} at {reference}: it is larger than {limit} bytes")]
    TooLarge {
        /// As asked.
        path: String,
        /// The commit, as the user knows it.
        reference: String,
        /// Most bytes.
        limit: u64,
    },
    /// A file that is no text.
    #[error("cannot use {path} at {reference}: it is not UTF-8")]
    NotText {
        /// As asked.
        path: String,
        /// The commit, as the user knows it.
        reference: String,
    },
    /// Git failed.
    #[error(
        "cannot read {what}: git says: {said}; where the clone is partial, git show fetches what is missing"
    )]
    Failed {
        /// What was asked.
        what: String,
        /// The last line of its talk.
        said: String,
    },
}

fn shallow_note(shallow: bool) -> &'static str {
    if shallow {
        ", and the clone is shallow"
    } else {
        ""
    }
}
