//! The environment that a job gets: the caller's, without what `seal_env` names.
//!
//! Execve hands on any bytes, in any order, twice the same name or none. So the entries are taken as they stand and not through a map
//! of names: what is not sealed stays as it was.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, OsStr, OsString, c_char},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

use anyhow::Context as _;
use capgate_common::{
    pathform,
    seal::{self, EnvPattern, is_sealed, name_of},
};

use crate::{place, shown::shown};

unsafe extern "C" {
    /// The entries of this process's environment, with a null pointer behind the last (environ(7)).
    static mut environ: *mut *const c_char;
}

/// What is kept from a job.
#[derive(Debug, Default)]
pub(crate) struct Seal {
    /// By these patterns.
    patterns: Vec<EnvPattern>,
    /// Names of this process's variables that they match.
    names: BTreeSet<OsString>,
}

impl Seal {
    /// What a contract's patterns, and those of a list, keep from a job that gets this process's environment.
    ///
    /// # Errors
    /// When the list cannot be used.
    pub(crate) fn read(contract: &[EnvPattern], list: Option<&Path>) -> anyhow::Result<Self> {
        let mut patterns = contract.to_vec();
        if let Some(path) = list {
            let text = place::read_text(path, seal::MAX_BYTES).with_context(|| {
                format!("cannot read the list of sealed variables {}", shown(path))
            })?;
            let listed = seal::list(text.as_bytes());
            patterns.extend(listed.with_context(|| {
                format!("cannot use the list of sealed variables {}", shown(path))
            })?);
        }
        let mut seen = BTreeSet::new();
        patterns.retain(|pattern| seen.insert(pattern.clone()));
        let names = entries()
            .into_iter()
            .filter(|entry| is_sealed(&patterns, entry.to_bytes()))
            .map(|entry| OsStr::from_bytes(name_of(entry.to_bytes())).to_owned())
            .collect();
        Ok(Self { patterns, names })
    }

    /// The patterns as texts, for the step that applies them.
    pub(crate) fn texts(&self) -> Vec<String> {
        let texts = self.patterns.iter().map(EnvPattern::text);
        texts.map(str::to_owned).collect()
    }

    /// The names that the job does not get.
    pub(crate) fn names(&self) -> &BTreeSet<OsString> {
        &self.names
    }

    /// The same, as evidence has them.
    pub(crate) fn escaped(&self) -> Vec<String> {
        let names = self.names.iter();
        names
            .map(|name| pathform::escape(name.as_bytes()))
            .collect()
    }

    /// How much it is, for a person; `None` when nothing was asked for.
    pub(crate) fn line(&self) -> Option<String> {
        let counted = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        let names = counted(self.names.len(), "name");
        let patterns = counted(self.patterns.len(), "pattern");
        (!self.patterns.is_empty()).then(|| format!("sealed {names} by {patterns}"))
    }
}

/// This process's environment, entry by entry.
fn entries() -> Vec<&'static CStr> {
    let mut entries = Vec::new();
    // SAFETY: `environ` and its entries are as execve made them: this process, which has changed nothing of them and has no second
    // thread that would, keeps them to its end.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            entries.push(CStr::from_ptr(*at));
            at = at.add(1);
        }
    }
    entries
}

/// How the environment of the command differs from this process's.
pub(crate) struct Environment {
    /// These are taken out.
    pub(crate) sealed: Vec<EnvPattern>,
    /// A directory that comes first on its `PATH`.
    pub(crate) first: Option<Vec<u8>>,
    /// An entry of capgate's own, in place of any other of its name.
    pub(crate) added: Option<Vec<u8>>,
}

/// Makes this process's environment the one of the command that it becomes. Nothing else of it changes.
pub(crate) fn apply(environment: &Environment) {
    const PATH: &[u8] = b"PATH=";
    let Environment {
        sealed,
        first,
        added,
    } = environment;
    let mut kept: Vec<*const c_char> = Vec::new();
    let mut has_path = false;
    for entry in entries() {
        let bytes = entry.to_bytes();
        let replaced = added
            .as_deref()
            .is_some_and(|it| name_of(it) == name_of(bytes));
        if replaced || is_sealed(sealed, bytes) {
            continue;
        }
        match (first, bytes.strip_prefix(PATH)) {
            (Some(first), Some(rest)) => {
                has_path = true;
                kept.push(owned(&[PATH, first, b":", rest].concat()));
            }
            _ => kept.push(entry.as_ptr()),
        }
    }
    if let (Some(first), false) = (first, has_path) {
        // Where the C library looks without one (execvp(3)).
        kept.push(owned(&[PATH, first, b":/bin:/usr/bin"].concat()));
    }
    kept.extend(added.as_deref().map(owned));
    kept.push(ptr::null());
    // SAFETY: the list ends with a null pointer and lives as long as the process, as do its entries; no other thread reads it.
    unsafe { environ = Vec::leak(kept).as_mut_ptr() };
}

/// An entry that lives as long as the process.
fn owned(bytes: &[u8]) -> *const c_char {
    // A path and an entry came from the kernel, which ends them at a NUL: there is none in them.
    CString::new(bytes).unwrap_or_default().into_raw()
}
