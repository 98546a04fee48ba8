//! The contract: the committed, human-owned file that says what a job may do.
//!
//! Reading is strict, because a key that is silently ignored is a gate that silently stands open: unknown and repeated keys are
//! errors, and every error names the key.

use std::{collections::BTreeSet, fmt};

use crate::{
    capability, ledger, netpattern::NetPattern, pathform::neutralise, refuse::Refusal,
    seal::EnvPattern, suite::Pins,
};

use values::Values;

mod suite;
mod values;

/// The value of the key `schema`, which may be absent.
pub const SCHEMA: &str = "capgate/contract/1";
/// Where a repository has its contract, relative to its root.
pub const DEFAULT_PATH: &str = "tests/capability.ledger.json";
/// Largest contract that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Most patterns in one contract, those of all keys together.
pub const MAX_PATTERNS: usize = 10_000;
/// Most bytes of patterns with wildcards, those of all keys together. Compiled, a byte of them can take some hundred bytes
/// of memory, and a contract may come from the branch under test.
pub const MAX_WILDCARD_BYTES: usize = 64 << 10;
/// Longest pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 4096;
/// Largest budget in seconds: thirty years, so that sums with it cannot overflow.
pub const MAX_CPU_BUDGET: u64 = 1_000_000_000;
/// The keys of a contract, in the order of the documentation.
pub const KEYS: [&str; 19] = [
    "schema",
    "allow_net",
    "cpu_budget",
    "writes",
    "write_paths",
    "compare_writes",
    "ignore_writes",
    "ignore_gitignored",
    "scratch",
    "allow_exec",
    "allow_unseen",
    "require_race_free",
    "enforce",
    "capabilities",
    "requires",
    "tests",
    "seal_env",
    "refuse",
    "refuse_shims",
];
/// The keys that must be present.
pub const REQUIRED_KEYS: [&str; 3] = ["allow_net", "cpu_budget", "writes"];

/// A contract as it was written. What depends on the job (environment tokens, globs) is made ready by [`crate::rules::Rules`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Destinations that are allowed.
    pub allow_net: Vec<NetPattern>,
    /// User CPU time that is allowed, in seconds.
    pub cpu_budget: u64,
    /// Digest of the write set that is allowed: 64 lower-case hex digits.
    pub writes: String,
    /// The names behind `writes`.
    pub write_paths: Option<BTreeSet<String>>,
    /// How the write set is compared.
    pub compare_writes: CompareWrites,
    /// Globs of names that do not count as written.
    pub ignore_writes: Vec<String>,
    /// Names that git ignores, by the rules of the base commit, do not count as written.
    pub ignore_gitignored: bool,
    /// Globs of directories that do not count as written, with all below them.
    pub scratch: Vec<String>,
    /// Globs of programs that are allowed; `None` when programs are not compared.
    pub allow_exec: Option<Vec<String>>,
    /// Blind spots that a human accepts by name.
    pub allow_unseen: BTreeSet<String>,
    /// The recording must be free of races.
    pub require_race_free: bool,
    /// The kernel refuses connections that `allow_net` does not allow.
    pub enforce: bool,
    /// What a host may be declared to lack; `None` when the contract has no table.
    pub capabilities: Option<capability::Table>,
    /// Capabilities without which the job does not run.
    pub requires: BTreeSet<String>,
    /// What the job's own test results are pinned to.
    pub tests: Option<Pins>,
    /// Environment variables that the job does not get.
    pub seal_env: Vec<EnvPattern>,
    /// What the job may never reach, whatever else is allowed.
    pub refuse: Vec<Refusal>,
    /// Programs that refuse come first in the job's `PATH`, for those that `refuse` names.
    pub refuse_shims: bool,
}

/// How a write set is compared with the contract's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompareWrites {
    /// The digests are the same.
    #[default]
    Exact,
    /// No name is there that the contract's `write_paths` do not have; missing ones are a note.
    Within,
}

/// A contract that cannot be used. One sentence that names the key.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    /// Larger than [`MAX_BYTES`].
    #[error("the contract has {0} bytes, more than the {MAX_BYTES} that are read")]
    TooLarge(usize),
    /// Not one JSON object.
    #[error("the contract is not a JSON object: {}", neutralise(.0))]
    Syntax(String),
    /// A key that no contract has.
    #[error("the contract has an unknown key `{}`; the keys are {}", neutralise(.0), KEYS.join(", "))]
    UnknownKey(String),
    /// A key that is there twice.
    #[error("the contract has the key `{0}` twice")]
    RepeatedKey(&'static str),
    /// A key that is needed.
    #[error("the contract has no `{0}`; `allow_net`, `cpu_budget` and `writes` are required")]
    MissingKey(&'static str),
    /// More than [`MAX_PATTERNS`].
    #[error("the contract has {0} patterns, more than the {MAX_PATTERNS} that are read")]
    TooManyPatterns(usize),
    /// More than [`MAX_WILDCARD_BYTES`].
    #[error(
        "the contract's patterns with wildcards have {0} bytes together, more than the {MAX_WILDCARD_BYTES} that are read"
    )]
    TooManyWildcards(usize),
    /// A value that is wrong.
    #[error("the contract's `{key}`{}: {}", Member(*.index, *.column), neutralise(.problem))]
    Value {
        /// The key.
        key: &'static str,
        /// Which member of a list, counted from 0.
        index: Option<usize>,
        /// Where in the member's text, counted in characters from 1.
        column: Option<usize>,
        /// What is wrong and what would be right.
        problem: String,
    },
}

/// How an error says which member of a list it means.
struct Member(Option<usize>, Option<usize>);

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.0 {
            write!(f, "[{index}]")?;
        }
        if let Some(column) = self.1 {
            write!(f, ", column {column}")?;
        }
        Ok(())
    }
}

impl ContractError {
    pub(crate) fn value(key: &'static str, problem: impl Into<String>) -> Self {
        Self::Value {
            key,
            index: None,
            column: None,
            problem: problem.into(),
        }
    }

    pub(crate) fn member(key: &'static str, index: usize, problem: impl Into<String>) -> Self {
        Self::Value {
            key,
            index: Some(index),
            column: None,
            problem: problem.into(),
        }
    }
}

/// A budget with head room for a job that took this much user CPU time: twice as much and 10 seconds more, in tens. A slower
/// runner and a cold cache fit in, an endless loop does not.
pub fn budget_for(cpu_sec: u64) -> u64 {
    let room = cpu_sec.saturating_mul(2).saturating_add(10);
    room.div_ceil(10).saturating_mul(10).min(MAX_CPU_BUDGET)
}

impl Contract {
    /// Reads a contract's file.
    ///
    /// # Errors
    /// See [`ContractError`].
    pub fn from_json(bytes: &[u8]) -> Result<Self, ContractError> {
        if bytes.len() > MAX_BYTES {
            return Err(ContractError::TooLarge(bytes.len()));
        }
        let mut values = Values::read(bytes)?;
        if let Some(schema) = values.optional("schema", values::text)?
            && schema != SCHEMA
        {
            return Err(ContractError::value(
                "schema",
                format!("`{schema}` is not `{SCHEMA}`, which this version reads"),
            ));
        }
        let contract = Self {
            allow_net: values.required("allow_net", values::net_patterns)?,
            cpu_budget: values.required("cpu_budget", values::seconds)?,
            writes: values.required("writes", values::digest)?,
            write_paths: values
                .optional("write_paths", values::texts)?
                .map(|paths| paths.into_iter().collect()),
            compare_writes: values
                .optional("compare_writes", values::compare_writes)?
                .unwrap_or_default(),
            ignore_writes: values
                .optional("ignore_writes", values::patterns)?
                .unwrap_or_default(),
            ignore_gitignored: values
                .optional("ignore_gitignored", values::flag)?
                .unwrap_or_default(),
            scratch: values
                .optional("scratch", values::patterns)?
                .unwrap_or_default(),
            allow_exec: values.optional("allow_exec", values::patterns)?,
            allow_unseen: values
                .optional("allow_unseen", values::unseen)?
                .unwrap_or_default(),
            require_race_free: values
                .optional("require_race_free", values::flag)?
                .unwrap_or_default(),
            enforce: values
                .optional("enforce", values::flag)?
                .unwrap_or_default(),
            capabilities: values.optional("capabilities", suite::capabilities)?,
            requires: values
                .optional("requires", suite::requires)?
                .unwrap_or_default(),
            tests: values.optional("tests", suite::tests)?,
            seal_env: values
                .optional("seal_env", values::parsed)?
                .unwrap_or_default(),
            refuse: values
                .optional("refuse", values::parsed)?
                .unwrap_or_default(),
            refuse_shims: values
                .optional("refuse_shims", values::flag)?
                .unwrap_or_default(),
        };
        contract.check_sum_of_keys()?;
        Ok(contract)
    }

    /// What no key shows alone.
    fn check_sum_of_keys(&self) -> Result<(), ContractError> {
        match &self.write_paths {
            Some(paths) if ledger::digest(paths) != self.writes => {
                return Err(ContractError::value(
                    "write_paths",
                    format!(
                        "their digest is {}, not the one in `writes`",
                        ledger::digest(paths)
                    ),
                ));
            }
            None if self.compare_writes == CompareWrites::Within => {
                return Err(ContractError::value(
                    "compare_writes",
                    "`within` needs the names in `write_paths`",
                ));
            }
            _ => {}
        }
        suite::check_names(self)?;
        if self.refuse_shims
            && !self
                .refuse
                .iter()
                .any(|refusal| refusal.program_name().is_some())
        {
            return Err(ContractError::value(
                "refuse_shims",
                "it needs a program by its name in `refuse`, such as `exec:az`",
            ));
        }
        self.check_sum_of_patterns()
    }

    fn check_sum_of_patterns(&self) -> Result<(), ContractError> {
        let net = self.allow_net.iter().map(NetPattern::text);
        let globs = [&self.ignore_writes, &self.scratch];
        let globs = globs.into_iter().chain(&self.allow_exec).flatten();
        let (mut patterns, mut wildcards) = (0, 0);
        let refused = self.refuse.iter().map(Refusal::text);
        let sealed = self.seal_env.iter().map(EnvPattern::text);
        let patterns_of_all = net
            .chain(globs.map(String::as_str))
            .chain(refused)
            .chain(sealed);
        for pattern in patterns_of_all {
            patterns += 1;
            if pattern.contains(['*', '?', '[', '{']) {
                wildcards += pattern.len();
            }
        }
        if patterns > MAX_PATTERNS {
            return Err(ContractError::TooManyPatterns(patterns));
        }
        if wildcards > MAX_WILDCARD_BYTES {
            return Err(ContractError::TooManyWildcards(wildcards));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
