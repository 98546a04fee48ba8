//! The contract: the committed, human-owned file that says what a job may do.
//!
//! Reading is strict, because a key that is silently ignored is a gate that silently stands open: unknown and repeated keys are
//! errors, and every error names the key.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::Value;

use crate::{address::AddressError, escapes, ledger, netpattern::NetPattern, pathform::neutralise};

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
pub const KEYS: [&str; 12] = [
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
    /// Globs of directories that do not count as written, with all below them.
    pub scratch: Vec<String>,
    /// Globs of programs that are allowed; `None` when programs are not compared.
    pub allow_exec: Option<Vec<String>>,
    /// Blind spots that a human accepts by name.
    pub allow_unseen: BTreeSet<String>,
    /// The recording must be free of races.
    pub require_race_free: bool,
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
    #[error("the contract is not a JSON object: {}", neutralise(&.0.to_string()))]
    Syntax(#[from] serde_json::Error),
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
        if let Some(schema) = values.optional("schema", text)?
            && schema != SCHEMA
        {
            return Err(ContractError::value(
                "schema",
                format!("`{schema}` is not `{SCHEMA}`, which this version reads"),
            ));
        }
        if values.optional("ignore_gitignored", flag)? == Some(true) {
            return Err(ContractError::value(
                "ignore_gitignored",
                "this version does not support `true`; write the ignored names as `ignore_writes`",
            ));
        }
        let contract = Self {
            allow_net: values.required("allow_net", net_patterns)?,
            cpu_budget: values.required("cpu_budget", seconds)?,
            writes: values.required("writes", digest)?,
            write_paths: values
                .optional("write_paths", texts)?
                .map(|paths| paths.into_iter().collect()),
            compare_writes: values
                .optional("compare_writes", compare_writes)?
                .unwrap_or_default(),
            ignore_writes: values
                .optional("ignore_writes", patterns)?
                .unwrap_or_default(),
            scratch: values.optional("scratch", patterns)?.unwrap_or_default(),
            allow_exec: values.optional("allow_exec", patterns)?,
            allow_unseen: values.optional("allow_unseen", unseen)?.unwrap_or_default(),
            require_race_free: values
                .optional("require_race_free", flag)?
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
        self.check_sum_of_patterns()
    }

    fn check_sum_of_patterns(&self) -> Result<(), ContractError> {
        let net = self.allow_net.iter().map(NetPattern::text);
        let globs = [&self.ignore_writes, &self.scratch];
        let globs = globs.into_iter().chain(&self.allow_exec).flatten();
        let (mut patterns, mut wildcards) = (0, 0);
        for pattern in net.chain(globs.map(String::as_str)) {
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

/// The values of a contract's keys that were not taken yet.
struct Values(BTreeMap<&'static str, Value>);

impl Values {
    fn read(bytes: &[u8]) -> Result<Self, ContractError> {
        let Object(pairs) = serde_json::from_slice(bytes)?;
        let mut values = BTreeMap::new();
        for (name, value) in pairs {
            let Some(key) = KEYS.into_iter().find(|&key| key == name) else {
                return Err(ContractError::UnknownKey(name));
            };
            if values.insert(key, value).is_some() {
                return Err(ContractError::RepeatedKey(key));
            }
        }
        Ok(Self(values))
    }

    fn optional<T>(
        &mut self,
        key: &'static str,
        read: fn(&'static str, &Value) -> Result<T, ContractError>,
    ) -> Result<Option<T>, ContractError> {
        let value = self.0.remove(key);
        value.map(|value| read(key, &value)).transpose()
    }

    fn required<T>(
        &mut self,
        key: &'static str,
        read: fn(&'static str, &Value) -> Result<T, ContractError>,
    ) -> Result<T, ContractError> {
        self.optional(key, read)?
            .ok_or(ContractError::MissingKey(key))
    }
}

fn wrong(key: &'static str, expected: &str, value: &Value) -> ContractError {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ContractError::value(key, format!("{expected} is expected, not {kind}"))
}

fn text(key: &'static str, value: &Value) -> Result<String, ContractError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong(key, "a string", other)),
    }
}

fn flag(key: &'static str, value: &Value) -> Result<bool, ContractError> {
    value
        .as_bool()
        .ok_or_else(|| wrong(key, "true or false", value))
}

fn texts(key: &'static str, value: &Value) -> Result<Vec<String>, ContractError> {
    let Value::Array(members) = value else {
        return Err(wrong(key, "a list of strings", value));
    };
    members
        .iter()
        .enumerate()
        .map(|(index, member)| match member {
            Value::String(text) => Ok(text.clone()),
            _ => Err(ContractError::member(key, index, "a string is expected")),
        })
        .collect()
}

fn patterns(key: &'static str, value: &Value) -> Result<Vec<String>, ContractError> {
    let patterns = texts(key, value)?;
    match patterns
        .iter()
        .position(|pattern| pattern.len() > MAX_PATTERN_BYTES)
    {
        Some(index) => Err(ContractError::member(
            key,
            index,
            format!("longer than {MAX_PATTERN_BYTES} bytes"),
        )),
        None => Ok(patterns),
    }
}

fn net_patterns(key: &'static str, value: &Value) -> Result<Vec<NetPattern>, ContractError> {
    patterns(key, value)?
        .iter()
        .enumerate()
        .map(|(index, pattern)| {
            pattern
                .parse()
                .map_err(|error: AddressError| ContractError::Value {
                    key,
                    index: Some(index),
                    column: Some(error.column),
                    problem: format!("{}, in `{pattern}`", error.problem),
                })
        })
        .collect()
}

/// Whole seconds. `30.0` is taken too, since some writers of JSON know only one kind of number.
fn seconds(key: &'static str, value: &Value) -> Result<u64, ContractError> {
    const EXPECTED: &str = "a whole number of seconds, at most 1000000000,";
    let Value::Number(number) = value else {
        return Err(wrong(key, EXPECTED, value));
    };
    let whole = number.as_u64().or_else(|| {
        // The text of a float that is whole ends with `.0` here: serde_json writes others with digits or an exponent.
        number.to_string().strip_suffix(".0")?.parse().ok()
    });
    whole
        .filter(|&seconds| seconds <= MAX_CPU_BUDGET)
        .ok_or_else(|| ContractError::value(key, format!("{EXPECTED} is expected, not {number}")))
}

fn digest(key: &'static str, value: &Value) -> Result<String, ContractError> {
    let digest = text(key, value)?;
    let length = digest.chars().count();
    if length != 64 {
        return Err(ContractError::value(
            key,
            format!("a SHA-256 digest has 64 hex digits, this has {length} characters"),
        ));
    }
    let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    match digest.chars().position(|c| !is_digit(c)) {
        Some(position) => Err(ContractError::Value {
            key,
            index: None,
            column: Some(position + 1),
            problem: "only the digits 0-9 and a-f (lower case) are in a digest".to_owned(),
        }),
        None => Ok(digest),
    }
}

fn compare_writes(key: &'static str, value: &Value) -> Result<CompareWrites, ContractError> {
    match text(key, value)?.as_str() {
        "exact" => Ok(CompareWrites::Exact),
        "within" => Ok(CompareWrites::Within),
        other => Err(ContractError::value(
            key,
            format!("`exact` or `within` is expected, not `{other}`"),
        )),
    }
}

fn unseen(key: &'static str, value: &Value) -> Result<BTreeSet<String>, ContractError> {
    let names = patterns(key, value)?;
    for (index, name) in names.iter().enumerate() {
        if escapes::is_never_acceptable(name) {
            let problem = format!("`{name}` is never acceptable");
            return Err(ContractError::member(key, index, problem));
        }
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if name.is_empty() || !name.chars().all(is_word) {
            let problem = "a name such as `docker` or `io_uring` is expected";
            return Err(ContractError::member(key, index, problem));
        }
    }
    Ok(names.into_iter().collect())
}

/// A JSON object as it stands in the file: serde's own maps would keep the last of two equal keys and say nothing.
struct Object(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Object(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests;
