//! Evidence: who did what a ledger says, and what was seen and does not count. Never part of a comparison.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

/// The addresses behind each entry of `net` that is a name and a port.
pub type Addresses = BTreeMap<String, BTreeSet<IpAddr>>;

/// Everything behind one ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The members of the ledger's columns.
    pub entries: Vec<Entry>,
    /// Names that came and went within the job.
    pub transient: Vec<Item>,
    /// Destinations where the job itself was listening.
    #[serde(rename = "self")]
    pub own: Vec<Item>,
    /// The C library's probing that sends nothing.
    pub probes: Vec<Item>,
    /// Host plumbing that every program touches.
    pub ambient: Vec<Item>,
    /// Names that the contract's `ignore_writes` or `scratch` covers.
    pub ignored: Vec<Item>,
    /// Mode, owner, attribute and time changes.
    pub metadata: Vec<Item>,
    /// Writable descriptors that the job began with.
    pub inherited: Vec<Item>,
    /// Processes that outlived the command and were killed.
    pub leftovers: Vec<Process>,
    /// Units that announced that they do not run.
    #[serde(default)]
    pub skips: Vec<Skip>,
    /// Names of the environment variables that the job did not get, escaped like paths; never their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sealed: Vec<String>,
    /// Where every record went.
    pub counts: Counts,
}

/// A unit of a suite that did not run because of what is declared absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// The unit, as the suite calls it.
    pub unit: String,
    /// The capability that it needs.
    pub capability: String,
    /// How often it was announced.
    pub count: u64,
    /// When first, in milliseconds since the job began.
    pub first_ms: u64,
}

/// The operation of what the kernel refused since the job is enforced.
pub const DENIED: &str = "denied";

/// What is known about a member of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The column.
    pub column: Column,
    /// The member, as the ledger has it.
    pub entry: String,
    /// For a destination by name: the addresses that stood for it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub addresses: BTreeSet<IpAddr>,
    /// What was done: `create`, `open`, `connect`, …; sorted, each once.
    pub ops: Vec<String>,
    /// How often.
    pub count: u64,
    /// When first, in milliseconds since the job began.
    pub first_ms: u64,
    /// Who did it first: the process itself, then its parents up to the job's first process.
    pub by: Vec<Process>,
}

/// What is known about something that is in no column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// What, in the form that it would have in a column.
    pub entry: String,
    /// What was done; sorted, each once.
    pub ops: Vec<String>,
    /// How often.
    pub count: u64,
    /// When first, in milliseconds since the job began.
    pub first_ms: u64,
    /// Who did it first, as in [`Entry::by`].
    pub by: Vec<Process>,
}

/// A process as a reader recognises it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Process id as the daemon sees it.
    pub pid: u32,
    /// Program, in entry form; empty when it is not known.
    pub exe: String,
    /// Arguments, as far as they are kept: see [`crate::discretion`].
    pub argv: Vec<String>,
    /// How it ended, as a shell has it: its exit status, or 128 and the number of the signal that killed it. `None` when it went on
    /// with another program, or when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
}

/// A column whose members evidence explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Column {
    /// Destinations.
    Net,
    /// Names written.
    Writes,
    /// Programs run.
    Execs,
    /// Ways out of sight.
    Escapes,
    /// What the contract refuses.
    Reaches,
}

/// Where every record of a job went: in the kernel first, then in the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Records that probes wanted to emit.
    pub attempted: u64,
    /// Records put on the ring.
    pub emitted: u64,
    /// Records left out because the same had been emitted.
    pub deduplicated: u64,
    /// Records that did not fit, or could not be made.
    pub lost: u64,
    /// Records read from the ring.
    pub received: u64,
    /// Records understood.
    pub decoded: u64,
    /// Records not understood.
    pub rejected: u64,
}

impl Counts {
    /// What does not add up, as a phrase: `attempted = emitted + deduplicated + lost`, `emitted = received` once the ring is
    /// drained, and `received = decoded + rejected`.
    pub fn imbalance(&self) -> Option<String> {
        let sum = |parts: &[u64]| parts.iter().map(|&part| u128::from(part)).sum::<u128>();
        let Self {
            attempted,
            emitted,
            deduplicated,
            lost,
            received,
            decoded,
            rejected,
        } = *self;
        if u128::from(attempted) != sum(&[emitted, deduplicated, lost]) {
            return Some(format!(
                "{attempted} attempted, but {emitted} emitted, {deduplicated} deduplicated and {lost} lost"
            ));
        }
        if emitted != received {
            return Some(format!("{emitted} emitted, but {received} received"));
        }
        if u128::from(received) != sum(&[decoded, rejected]) {
            return Some(format!(
                "{received} received, but {decoded} decoded and {rejected} rejected"
            ));
        }
        None
    }
}

impl Evidence {
    /// The addresses behind the destinations by name.
    pub fn addresses(&self) -> Addresses {
        let of_net = self
            .entries
            .iter()
            .filter(|entry| entry.column == Column::Net);
        of_net
            .filter(|entry| !entry.addresses.is_empty())
            .map(|entry| (entry.entry.clone(), entry.addresses.clone()))
            .collect()
    }

    /// The file: JSON, two spaces deep, with a newline at its end.
    pub fn to_json(&self) -> String {
        let mut text = crate::ledger::pretty(self);
        text.push('\n');
        text
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it is no JSON, or has missing, unknown, repeated or mistyped keys.
    pub fn from_json(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

#[cfg(test)]
mod tests;
