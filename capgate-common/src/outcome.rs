//! How a wrapped command ended, and which exit code that alone would give.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    protocol,
    verdict::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND},
};

/// The kind in `lost` of a job that was ended from outside.
pub const LOST_INTERRUPTED: &str = "interrupted";
/// The kind in `lost` of a recording that can be raced where the daemon's configuration forbids that: no contract can accept it, and
/// whoever reads the ledger later must know.
pub const LOST_RACE: &str = "race";
/// The kind in `lost` of a job whose client went away.
pub const LOST_LEASE: &str = "lease";

/// How the wrapped command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "how", content = "code")]
pub enum Outcome {
    /// It exited with this status.
    Exited(i32),
    /// A signal killed it.
    Signaled(i32),
    /// It was found and could not be executed.
    NotExecutable,
    /// It was not found.
    NotFound,
    /// The client was told to end by this signal, and the job was killed.
    Interrupted(i32),
    /// The daemon signalled or killed the job because of its CPU budget, however the command then ended.
    CpuKilled,
    /// The client went away, and the job was killed.
    Abandoned,
    /// It failed; how is not known (a ledger does not keep it).
    Failed,
}

impl Outcome {
    /// The exit code of a job that failed; `None` when it succeeded, or never ran, or was killed at the budget.
    pub(crate) fn failure(self) -> Option<i32> {
        match self {
            Self::Exited(0) | Self::NotExecutable | Self::NotFound | Self::CpuKilled => None,
            Self::Exited(status) => Some(status),
            Self::Signaled(signal) | Self::Interrupted(signal) => Some(128 + signal),
            // SIGKILL, as the kernel would have said.
            Self::Abandoned => Some(128 + 9),
            Self::Failed => Some(1),
        }
    }

    /// The exit code and the phrase of a command that could not be started.
    pub(crate) fn never_ran(self) -> Option<(i32, &'static str)> {
        match self {
            Self::NotExecutable => Some((EXIT_NOT_EXECUTABLE, "command not executable")),
            Self::NotFound => Some((EXIT_NOT_FOUND, "command not found")),
            _ => None,
        }
    }

    /// The kind of loss that the end of the job means: it would have done more.
    pub(crate) fn loss(self) -> Option<&'static str> {
        match self {
            Self::Interrupted(_) => Some(LOST_INTERRUPTED),
            Self::Abandoned => Some(LOST_LEASE),
            _ => None,
        }
    }
}

impl From<protocol::Outcome> for Outcome {
    fn from(outcome: protocol::Outcome) -> Self {
        match outcome {
            protocol::Outcome::Exited(status) => Self::Exited(status),
            protocol::Outcome::Signaled(signal) => Self::Signaled(signal),
            protocol::Outcome::NotExecutable => Self::NotExecutable,
            protocol::Outcome::NotFound => Self::NotFound,
            protocol::Outcome::Interrupted(signal) => Self::Interrupted(signal),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "the command exited with status {status}"),
            Self::Signaled(signal) => write!(f, "the command was killed by signal {signal}"),
            Self::NotExecutable => f.write_str("the command could not be executed"),
            Self::NotFound => f.write_str("the command was not found"),
            Self::Interrupted(signal) => {
                write!(f, "the job was interrupted by signal {signal} and killed")
            }
            Self::CpuKilled => f.write_str("the job was killed at its CPU budget"),
            Self::Abandoned => f.write_str("the client went away, and the job was killed"),
            Self::Failed => f.write_str("the command failed"),
        }
    }
}
