//! What there is to say about a job: findings, which decide the verdict, and notes, which do not.
//!
//! Each has a sentence, without a full stop and safe to show.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    contract::budget_for,
    escapes,
    outcome::{LOST_INTERRUPTED, LOST_LEASE, LOST_RACE, Outcome},
    pathform::neutralise,
    suite::{Counted, Mismatch},
    unseen,
    verdict::Verdict,
};

/// Something that the contract does not allow, or that keeps capgate from telling. In the order of the table of verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Finding {
    /// Something that `refuse` names was reached, or tried to be.
    Reach {
        /// The reach.
        entry: String,
    },
    /// The job was killed at its CPU budget.
    CpuKill {
        /// Seconds used.
        cpu_sec: u64,
        /// Seconds allowed; `None` without a contract.
        cpu_budget: Option<u64>,
    },
    /// The command failed.
    JobFailed {
        /// How it ended.
        outcome: Outcome,
    },
    /// The recording is not complete.
    Incomplete {
        /// Why.
        reason: Reason,
    },
    /// A destination that no pattern of `allow_net` permits.
    Net {
        /// The destination.
        entry: String,
    },
    /// More CPU time than allowed.
    Cpu {
        /// Seconds used.
        cpu_sec: u64,
        /// Seconds allowed.
        cpu_budget: u64,
    },
    /// Another write set.
    Writes {
        /// The contract's digest.
        expected: String,
        /// The recording's.
        found: String,
        /// What differs; `None` when the contract has no `write_paths`.
        names: Option<NameDifference>,
    },
    /// A program that no pattern of `allow_exec` permits.
    Execs {
        /// The program.
        entry: String,
    },
    /// A way out of sight that the contract does not accept.
    Escapes {
        /// The escape.
        entry: String,
    },
    /// The job's own test results are not what the contract pins.
    Tests {
        /// In which way.
        mismatch: Mismatch,
    },
}

/// Names of two write sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameDifference {
    /// In the recording only.
    pub added: Vec<String>,
    /// In the contract only.
    pub removed: Vec<String>,
}

/// Why a recording is not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Reason {
    /// Something was lost.
    Lost {
        /// What.
        kind: String,
        /// How much of it.
        count: u64,
    },
    /// The job used something that the recorder cannot see, and the contract does not accept that.
    Unseen {
        /// What.
        name: String,
    },
    /// The probes can be raced, and the contract demands ones that cannot.
    NotRaceFree,
    /// The contract refuses something, and nobody looked out for it when the ledger was recorded.
    NotWatched,
}

/// Something that a reader should know and that decides nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "kebab-case")]
pub enum Note {
    /// A pattern that matched nothing.
    UnusedPattern {
        /// The contract's key.
        key: String,
        /// The pattern.
        pattern: String,
    },
    /// Names that the contract has and the job did not write (`compare_writes: within`).
    NotWritten {
        /// The names.
        names: Vec<String>,
    },
    /// An escape in a job that is recorded only.
    Escaped {
        /// The escape.
        entry: String,
    },
    /// The job came close to its CPU budget: the next slow day breaks it.
    LittleHeadRoom {
        /// Seconds used.
        cpu_sec: u64,
        /// Seconds allowed.
        cpu_budget: u64,
    },
    /// What the job claims of its tests.
    Claimed {
        /// The numbers.
        counted: Counted,
    },
    /// A capability that is declared absent.
    Absent {
        /// Its name.
        capability: String,
        /// The units that were skipped for it.
        units: Vec<String>,
    },
    /// A reach in a job that is recorded only.
    Reached {
        /// The reach.
        entry: String,
    },
}

impl Finding {
    /// The row of the table that this finding belongs to.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Reach { .. } => Verdict::Reach,
            Self::CpuKill { .. } => Verdict::CpuKill,
            Self::JobFailed { .. } => Verdict::JobFailed,
            Self::Incomplete { .. } => Verdict::Incomplete,
            Self::Net { .. } => Verdict::Net,
            Self::Cpu { .. } => Verdict::Cpu,
            Self::Writes { .. } => Verdict::Writes,
            Self::Execs { .. } => Verdict::Execs,
            Self::Escapes { .. } => Verdict::Escapes,
            Self::Tests { .. } => Verdict::Tests,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reach { entry } => {
                write!(f, "`refuse` forbids {}, and the job reached for it", neutralise(entry))
            }
            Self::CpuKill {
                cpu_sec,
                cpu_budget: Some(budget),
            } => write!(
                f,
                "the job was killed after {cpu_sec} s of user CPU time, its budget is {budget} s"
            ),
            Self::CpuKill {
                cpu_sec,
                cpu_budget: None,
            } => write!(f, "the job was killed after {cpu_sec} s of user CPU time"),
            Self::JobFailed { outcome } => write!(f, "{outcome}"),
            Self::Incomplete { reason } => write!(f, "the recording is not complete: {reason}"),
            Self::Net { entry } => {
                write!(f, "`allow_net` does not allow {}", neutralise(entry))
            }
            Self::Cpu {
                cpu_sec,
                cpu_budget,
            } => write!(
                f,
                "the job used {cpu_sec} s of user CPU time, its budget is {cpu_budget} s"
            ),
            Self::Writes { names: None, .. } => f.write_str(
                "the write set is not the contract's, which has no `write_paths` to tell the names that differ",
            ),
            Self::Writes {
                names: Some(NameDifference { added, removed }),
                ..
            } => write!(
                f,
                "the write set is not the contract's: {} added, {} removed",
                Names(added.len()),
                Names(removed.len())
            ),
            Self::Execs { entry } => {
                write!(f, "`allow_exec` does not allow {}", neutralise(entry))
            }
            Self::Escapes { entry } => f.write_str(&neutralise(&escapes::sentence(entry))),
            Self::Tests { mismatch } => write!(f, "{mismatch}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { kind, .. } if kind == LOST_INTERRUPTED => {
                f.write_str("the job was interrupted before its end")
            }
            Self::Lost { kind, .. } if kind == LOST_LEASE => {
                f.write_str("the client went away before the end of the job")
            }
            Self::Lost { kind, .. } if kind == LOST_RACE => f.write_str(
                "the daemon's configuration requires probes free of races, and the ones here are not",
            ),
            Self::Lost { kind, count } => write!(f, "{count} lost ({})", neutralise(kind)),
            Self::Unseen { name } => f.write_str(&neutralise(&unseen::sentence(name))),
            Self::NotRaceFree => {
                f.write_str("the contract requires probes free of races, and the ones here are not")
            }
            Self::NotWatched => f.write_str(
                "the contract has `refuse`, and the ledger is of a job that was recorded without",
            ),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnusedPattern { key, pattern } => write!(
                f,
                "`{}` in the contract's `{key}` matched nothing",
                neutralise(pattern)
            ),
            Self::NotWritten { names } => write!(
                f,
                "{} of the contract's `write_paths` not written",
                Names(names.len())
            ),
            Self::Escaped { entry } => f.write_str(&neutralise(&escapes::sentence(entry))),
            Self::LittleHeadRoom {
                cpu_sec,
                cpu_budget,
            } => write!(
                f,
                "the job used {cpu_sec} s of user CPU time of {cpu_budget} s: little head room, {} s would leave enough",
                budget_for(*cpu_sec)
            ),
            Self::Claimed { counted } => write!(f, "{counted}"),
            Self::Absent { capability, units } if units.is_empty() => {
                write!(f, "runner declares {} absent", neutralise(capability))
            }
            Self::Absent { capability, units } => write!(
                f,
                "runner declares {} absent: {} {} skipped, and a skip is never coverage",
                neutralise(capability),
                units.len(),
                if units.len() == 1 { "unit" } else { "units" },
            ),
            Self::Reached { entry } => write!(
                f,
                "the contract's `refuse` forbids {}, and the job reached for it",
                neutralise(entry)
            ),
        }
    }
}

/// A number of names.
struct Names(usize);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 name"),
            count => write!(f, "{count} names"),
        }
    }
}

#[cfg(test)]
mod tests;
