//! The ledger: the sealed record of one job, and its canonical JSON.
//!
//! Bytes are stable: keys in a fixed order, members sorted by bytes and unique, no times, pids or inodes. The digest
//! `writes` and the flag `complete` are derived, never set, so that a ledger cannot contradict itself.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    pathform::neutralise,
    suite::{Suite, Tests},
    verdict::Verdict,
};

/// The value of the key `schema` in files of this version.
pub const SCHEMA: &str = "capgate/ledger/1";
/// Default name of the ledger's file, beside the contract.
pub const FILE_NAME: &str = "capability.actual.json";
/// Largest ledger that is read, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// The keys of a ledger, in the order of the file.
pub const KEYS: [&str; 16] = [
    "schema",
    "net",
    "cpu_sec",
    "cpu_budget",
    "writes",
    "write_paths",
    "execs",
    "escapes",
    "absent",
    "skips",
    "tests",
    "reaches",
    "complete",
    "lost",
    "verdict",
    "coverage",
];
/// The keys that are there only when the contract has to do with them.
pub const OPTIONAL_KEYS: [&str; 4] = ["absent", "skips", "tests", "reaches"];
/// The digest of no names at all.
pub const EMPTY_DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The digest of a write set: SHA-256 in lower-case hex over the entries, joined by newlines without a last one.
///
/// Entries are escaped, so that none holds a newline, and a `BTreeSet` has them in the order of their bytes.
pub fn digest(write_paths: &BTreeSet<String>) -> String {
    use std::fmt::Write as _;

    let mut hash = Sha256::new();
    for (index, path) in write_paths.iter().enumerate() {
        if index > 0 {
            hash.update(b"\n");
        }
        hash.update(path.as_bytes());
    }
    let mut hex = String::with_capacity(64);
    for byte in hash.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Which probes recorded a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeSet {
    /// Tracepoints at the exit of system calls: works everywhere, not race-free.
    Tracepoint,
    /// Function entry probes on the security hooks.
    Fentry,
}

impl ProbeSet {
    /// The word for it in files and options.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tracepoint => "tracepoint",
            Self::Fentry => "fentry",
        }
    }
}

/// What the kernel refused to a job whose network was enforced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enforcement {
    /// What it could reach.
    pub reach: Reach,
    /// What was not refused, a phrase each.
    pub not_denied: BTreeSet<String>,
}

/// What an enforced job could reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// What the contract's `allow_net` allows, and itself.
    AllowNet,
    /// Itself alone: `--no-network`.
    #[serde(rename = "self")]
    Itself,
}

/// What the recorder could see of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coverage {
    /// The probes in use.
    pub probe_set: ProbeSet,
    /// Whether what was recorded is what the kernel used, even against a hostile thread.
    pub race_free: bool,
    /// The programs that were attached, by name.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hooks: BTreeSet<String>,
    /// What the probes do not cover, a phrase each.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub not_covered: BTreeSet<String>,
    /// What the job used and the recorder could not see: `io_uring`, ….
    pub unseen: BTreeSet<String>,
    /// How the job's network was enforced; `None` when it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced: Option<Enforcement>,
}

/// What one job did: the columns and how far they can be trusted. Facts only; what they mean is for `compare` to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Destinations, each the text of a [`crate::address::NetEntry`].
    pub net: BTreeSet<String>,
    /// User CPU time of the whole job in seconds, rounded down.
    pub cpu_sec: u64,
    /// The write set, in the forms of [`crate::pathform`].
    pub write_paths: BTreeSet<String>,
    /// Programs run, in the same forms.
    pub execs: BTreeSet<String>,
    /// Ways out of sight that the job took: see [`crate::escapes`].
    pub escapes: BTreeSet<String>,
    /// What the job's suite did not do, or claims to have done.
    pub suite: Suite,
    /// What of the contract's `refuse` the job reached for: see [`crate::refuse`]. `None` when nothing was refused.
    pub reaches: Option<BTreeSet<String>>,
    /// Count of what was lost, by kind. A count of 0 is the same as none.
    pub lost: BTreeMap<String, u64>,
    /// What the recorder could see.
    pub coverage: Coverage,
}

impl Recording {
    /// The recording of a job that did nothing.
    pub fn empty(probe_set: ProbeSet, race_free: bool) -> Self {
        Self {
            net: BTreeSet::new(),
            cpu_sec: 0,
            write_paths: BTreeSet::new(),
            execs: BTreeSet::new(),
            escapes: BTreeSet::new(),
            suite: Suite::default(),
            reaches: None,
            lost: BTreeMap::new(),
            coverage: Coverage {
                probe_set,
                race_free,
                hooks: BTreeSet::new(),
                not_covered: BTreeSet::new(),
                unseen: BTreeSet::new(),
                enforced: None,
            },
        }
    }

    /// The digest of the write set.
    pub fn writes(&self) -> String {
        digest(&self.write_paths)
    }

    /// Adds to the count of one kind of loss.
    pub fn lose(&mut self, kind: &str, count: u64) {
        if count > 0 {
            let sum = self.lost.entry(kind.to_owned()).or_insert(0);
            *sum = sum.saturating_add(count);
        }
    }
}

/// A sealed record, as the file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct Ledger {
    /// What the job did.
    pub recording: Recording,
    /// The contract's budget in seconds; `None` when the job ran without a contract.
    pub cpu_budget: Option<u64>,
    /// Nothing was lost, and nothing was unseen that the contract did not accept. See [`crate::compare::judge`].
    pub complete: bool,
    /// The results that apply, in the order of the table of verdicts. Empty when the command could not be started.
    pub verdict: Vec<Verdict>,
}

impl Ledger {
    /// The file: canonical JSON, two spaces deep, with a newline at its end.
    pub fn to_json(&self) -> String {
        let mut text = pretty(&Document::from(self.clone()));
        text.push('\n');
        text
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it is too large, no JSON, of an unknown schema, has missing, unknown, repeated or mistyped keys, or contradicts itself.
    pub fn from_json(bytes: &[u8]) -> Result<Self, LedgerError> {
        if bytes.len() > MAX_BYTES {
            return Err(LedgerError::TooLarge);
        }
        let head: Head = serde_json::from_slice(bytes)?;
        match head.schema.as_deref() {
            Some(SCHEMA) => Ok(serde_json::from_slice(bytes)?),
            Some(other) => Err(LedgerError::Schema(other.to_owned())),
            None => Err(LedgerError::NoSchema),
        }
    }
}

/// A file that is no ledger of this version.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Larger than [`MAX_BYTES`].
    #[error("the ledger is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// Not JSON, or not with the keys and types of a ledger, or in contradiction with itself.
    #[error("not a ledger: {}", neutralise(&.0.to_string()))]
    Malformed(#[from] serde_json::Error),
    /// Of another version.
    #[error("the ledger has the schema `{}`; this version reads `{SCHEMA}`", neutralise(.0))]
    Schema(String),
    /// Without a version.
    #[error("the ledger has no `schema`; this version reads `{SCHEMA}`")]
    NoSchema,
}

/// Just the schema, so that a file of another version is not judged by this version's keys.
#[derive(Deserialize)]
struct Head {
    schema: Option<String>,
}

/// The file's keys, in its order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    schema: String,
    net: BTreeSet<String>,
    cpu_sec: u64,
    #[serde(deserialize_with = "present")]
    cpu_budget: Option<u64>,
    writes: String,
    write_paths: BTreeSet<String>,
    execs: BTreeSet<String>,
    escapes: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    absent: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    skips: BTreeMap<String, BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tests: Option<Tests>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reaches: Option<BTreeSet<String>>,
    complete: bool,
    lost: BTreeMap<String, u64>,
    verdict: Vec<Verdict>,
    coverage: Coverage,
}

/// Without this serde would take an absent key for `null`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::deserialize(deserializer)
}

impl From<Ledger> for Document {
    fn from(ledger: Ledger) -> Self {
        let Ledger {
            mut recording,
            cpu_budget,
            complete,
            verdict,
        } = ledger;
        recording.lost.retain(|_, count| *count > 0);
        Self {
            schema: SCHEMA.to_owned(),
            writes: recording.writes(),
            net: recording.net,
            cpu_sec: recording.cpu_sec,
            cpu_budget,
            write_paths: recording.write_paths,
            execs: recording.execs,
            escapes: recording.escapes,
            absent: recording.suite.absent,
            skips: recording.suite.skips,
            tests: recording.suite.tests,
            reaches: recording.reaches,
            complete,
            lost: recording.lost,
            verdict,
            coverage: recording.coverage,
        }
    }
}

impl TryFrom<Document> for Ledger {
    type Error = String;

    fn try_from(document: Document) -> Result<Self, String> {
        let recording = Recording {
            net: document.net,
            cpu_sec: document.cpu_sec,
            write_paths: document.write_paths,
            execs: document.execs,
            escapes: document.escapes,
            suite: Suite {
                absent: document.absent,
                skips: document.skips,
                tests: document.tests,
            },
            reaches: document.reaches,
            lost: document.lost,
            coverage: document.coverage,
        };
        if document.schema != SCHEMA {
            return Err(format!("`schema` is not `{SCHEMA}`"));
        }
        if document.writes != recording.writes() {
            return Err("`writes` is not the digest of `write_paths`".to_owned());
        }
        if document.complete && recording.lost.values().any(|&count| count > 0) {
            return Err("`complete` is true, but `lost` is not empty".to_owned());
        }
        let reached = recording.reaches.as_ref().is_some_and(|it| !it.is_empty());
        if !reached && document.verdict.contains(&Verdict::Reach) {
            return Err("`verdict` has `reach`, and `reaches` is empty".to_owned());
        }
        if document.complete == document.verdict.contains(&Verdict::Incomplete) {
            return Err("`complete` and `verdict` contradict each other".to_owned());
        }
        if let Some(contradiction) = recording.suite.contradiction() {
            return Err(contradiction.to_owned());
        }
        let coverage = &recording.coverage;
        let has_reason =
            !recording.lost.is_empty() || !coverage.unseen.is_empty() || !coverage.race_free;
        if !document.complete && !has_reason {
            return Err("`complete` is false, and nothing says why".to_owned());
        }
        if !document.verdict.is_sorted_by(|one, next| one < next) {
            return Err("`verdict` is not in the order of the table of verdicts".to_owned());
        }
        Ok(Self {
            recording,
            cpu_budget: document.cpu_budget,
            complete: document.complete,
            verdict: document.verdict,
        })
    }
}

/// Pretty JSON of plain data.
pub(crate) fn pretty<T: Serialize>(value: &T) -> String {
    // Only maps with keys that are no strings and failing `Serialize` impls are errors, and there are none.
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
