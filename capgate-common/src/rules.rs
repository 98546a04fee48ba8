//! A contract made ready for one job: environment tokens resolved, globs compiled.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    contract::{Contract, ContractError},
    gitignored::{CommitRules, GitIgnored},
    glob::{GlobError, GlobPatterns},
    netpattern::NetPatterns,
    pathform::{Forms, trim_slashes},
    refuse::{Refusal, Refusals},
};

/// What one job is judged by.
#[derive(Clone, Debug)]
pub struct Rules {
    contract: Contract,
    net: NetPatterns,
    ignore_writes: GlobPatterns,
    git_ignored: Option<GitIgnored>,
    scratch: GlobPatterns,
    exec: Option<GlobPatterns>,
    refuse: Refusals,
}

impl Rules {
    /// Makes a contract ready. `environment` is the client's, before the job, with at least the variables that
    /// [`tokens`] names; `forms` are the job's; `commit` has the rules for `ignore_gitignored`, and is not looked at without it.
    ///
    /// # Errors
    /// When a token has no value, or one that would let a pattern cover the root; when a glob is malformed or matches everything;
    /// when the commit's rules are needed and absent or cannot be used.
    pub fn new(
        contract: Contract,
        environment: &BTreeMap<String, String>,
        forms: &Forms,
        commit: Option<&CommitRules>,
    ) -> Result<Self, ContractError> {
        let ready = |key, globs: &[String], compile: fn(&[String]) -> Result<_, GlobError>| {
            let resolved = resolve(key, globs, environment, forms)?;
            compile(&resolved).map_err(|error| in_contract(key, globs, error))
        };
        let net = NetPatterns::new(&contract.allow_net).map_err(|error| {
            let texts: Vec<&str> = contract.allow_net.iter().map(|net| net.text()).collect();
            in_contract("allow_net", &texts, error)
        })?;
        let refuse = refusals(&contract.refuse, environment, forms)?;
        Ok(Self {
            net,
            refuse,
            git_ignored: git_ignored(&contract, commit)?,
            ignore_writes: ready("ignore_writes", &contract.ignore_writes, GlobPatterns::new)?,
            scratch: ready("scratch", &contract.scratch, GlobPatterns::directories)?,
            exec: contract
                .allow_exec
                .as_ref()
                .map(|globs| ready("allow_exec", globs, GlobPatterns::new))
                .transpose()?,
            contract,
        })
    }

    /// The contract as it was written.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// `allow_net`.
    pub fn net(&self) -> &NetPatterns {
        &self.net
    }

    /// `ignore_writes`.
    pub fn ignore_writes(&self) -> &GlobPatterns {
        &self.ignore_writes
    }

    /// `ignore_gitignored`, when the contract has it.
    pub fn git_ignored(&self) -> Option<&GitIgnored> {
        self.git_ignored.as_ref()
    }

    /// `scratch`: also tells where transient names do not count.
    pub fn scratch(&self) -> &GlobPatterns {
        &self.scratch
    }

    /// `allow_exec`, when programs are compared.
    pub fn exec(&self) -> Option<&GlobPatterns> {
        self.exec.as_ref()
    }

    /// `refuse`.
    pub fn refuse(&self) -> &Refusals {
        &self.refuse
    }

    /// Whether an entry of the write set does not count, because `ignore_writes`, `ignore_gitignored` or `scratch` covers it.
    pub fn ignores(&self, entry: &str) -> bool {
        self.ignore_writes.matches(entry)
            || self.scratch.matches(entry)
            || self
                .git_ignored
                .as_ref()
                .is_some_and(|rules| rules.ignores(entry))
    }
}

fn refusals(
    refusals: &[Refusal],
    environment: &BTreeMap<String, String>,
    forms: &Forms,
) -> Result<Refusals, ContractError> {
    const KEY: &str = "refuse";
    let ready = refusals.iter().enumerate().map(|(index, refusal)| {
        let Some(glob) = refusal.glob() else {
            return Ok(refusal.clone());
        };
        let glob = resolve_one(KEY, index, glob, environment, forms)?;
        Ok(refusal.with_glob(glob))
    });
    Refusals::new(ready.collect::<Result<_, ContractError>>()?).map_err(|error| {
        let texts: Vec<&str> = refusals.iter().map(Refusal::text).collect();
        in_contract(KEY, &texts, error)
    })
}

fn git_ignored(
    contract: &Contract,
    commit: Option<&CommitRules>,
) -> Result<Option<GitIgnored>, ContractError> {
    const KEY: &str = "ignore_gitignored";
    if !contract.ignore_gitignored {
        return Ok(None);
    }
    let Some(commit) = commit else {
        return Err(ContractError::value(
            KEY,
            "the rules of the base commit are needed, and nobody gave them; run in a git work tree",
        ));
    };
    match GitIgnored::new(commit) {
        Ok(rules) => Ok(Some(rules)),
        Err(error) => Err(ContractError::value(
            KEY,
            format!(
                "{error}, at {}; write the ignored names as `ignore_writes`",
                commit.source
            ),
        )),
    }
}

/// The environment variables that a contract's patterns begin with: `TMPDIR` for `$TMPDIR/**`.
pub fn tokens(contract: &Contract) -> BTreeSet<String> {
    let globs = contract.ignore_writes.iter().chain(&contract.scratch);
    globs
        .chain(contract.allow_exec.iter().flatten())
        .map(String::as_str)
        .chain(contract.refuse.iter().filter_map(Refusal::glob))
        .filter_map(|glob| Some(split_token(glob)?.0.to_owned()))
        .collect()
}

/// `$NAME` at the beginning of a pattern, and what follows. A `$` elsewhere is an ordinary character.
fn split_token(glob: &str) -> Option<(&str, &str)> {
    let rest = glob.strip_prefix('$')?;
    let end = rest.find('/').unwrap_or(rest.len());
    Some(rest.split_at(end))
}

fn resolve(
    key: &'static str,
    globs: &[String],
    environment: &BTreeMap<String, String>,
    forms: &Forms,
) -> Result<Vec<String>, ContractError> {
    let one = |(index, glob): (usize, &String)| resolve_one(key, index, glob, environment, forms);
    globs.iter().enumerate().map(one).collect()
}

fn resolve_one(
    key: &'static str,
    index: usize,
    glob: &str,
    environment: &BTreeMap<String, String>,
    forms: &Forms,
) -> Result<String, ContractError> {
    let Some((name, rest)) = split_token(glob) else {
        return Ok(glob.to_owned());
    };
    let value = environment
        .get(name)
        .map(String::as_str)
        .unwrap_or_default();
    directory(name, value, forms)
        .map(|entry| format!("{}{rest}", globset::escape(&entry)))
        .map_err(|problem| ContractError::member(key, index, format!("{problem}, in `{glob}`")))
}

/// The entry of the directory that a token stands for.
fn directory(name: &str, value: &str, forms: &Forms) -> Result<String, String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_word) {
        return Err("a name such as `$TMPDIR` is expected after `$`; a file whose name begins with `$` is written `[$]`".to_owned());
    }
    if value.is_empty() {
        return Err(format!("the environment variable `{name}` is not set"));
    }
    let path = trim_slashes(value.as_bytes());
    if forms.holds_root(path) {
        return Err(format!(
            "`${name}` is `{value}`, which holds the job's root directory; write the path itself, `~/…` inside the home"
        ));
    }
    match forms.form(path, &|_| false) {
        Some(form) => Ok(form.entry),
        None => Err(format!(
            "`${name}` is `{value}`, which is not an absolute path without `.`, `..` and `//`"
        )),
    }
}

/// A glob's error with the key and the text that its author knows.
fn in_contract<T: AsRef<str>>(key: &'static str, globs: &[T], error: GlobError) -> ContractError {
    match error
        .index
        .and_then(|index| Some((index, globs.get(index)?)))
    {
        Some((index, glob)) => {
            let problem = format!("{}, in `{}`", error.problem, glob.as_ref());
            ContractError::member(key, index, problem)
        }
        None => ContractError::value(key, error.problem),
    }
}

#[cfg(test)]
mod tests;
