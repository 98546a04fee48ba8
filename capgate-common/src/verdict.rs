//! The words of the table of verdicts and the exit codes: decided here, once.

use std::fmt;

use serde::{Deserialize, Serialize};

/// All within the contract.
pub const EXIT_MATCH: i32 = 0;
/// The job did what the contract does not allow.
pub const EXIT_VIOLATION: i32 = 120;
/// The recording is not complete, so that nobody can tell.
pub const EXIT_INCOMPLETE: i32 = 121;
/// The job was killed at its CPU budget.
pub const EXIT_CPU_KILL: i32 = 124;
/// capgate itself failed.
pub const EXIT_ERROR: i32 = 125;
/// The command was found and could not be executed.
pub const EXIT_NOT_EXECUTABLE: i32 = 126;
/// The command was not found.
pub const EXIT_NOT_FOUND: i32 = 127;

/// One row of the table, in its order: the first that applies gives the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// capgate itself failed. Never in a ledger: nothing is sealed then.
    Error,
    /// The job reached for what its contract refuses: no end that it comes to may hide that.
    Reach,
    /// The job was killed at its CPU budget.
    CpuKill,
    /// The job ended with a status that is not 0.
    JobFailed,
    /// The recording is not complete.
    Incomplete,
    /// A network destination is not allowed.
    Net,
    /// More CPU time than the budget.
    Cpu,
    /// The write set is not the contract's.
    Writes,
    /// A program is not allowed.
    Execs,
    /// The job left the recorder's sight.
    Escapes,
    /// The counts that the job claims of its tests are not the contract's.
    Tests,
    /// All within the contract.
    Match,
    /// Recorded without a contract to compare with.
    Recorded,
}

impl Verdict {
    /// Every verdict, in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::Error,
        Self::Reach,
        Self::CpuKill,
        Self::JobFailed,
        Self::Incomplete,
        Self::Net,
        Self::Cpu,
        Self::Writes,
        Self::Execs,
        Self::Escapes,
        Self::Tests,
        Self::Match,
        Self::Recorded,
    ];

    /// The word for it in ledgers and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Reach => "reach",
            Self::CpuKill => "cpu-kill",
            Self::JobFailed => "job-failed",
            Self::Incomplete => "incomplete",
            Self::Net => "net",
            Self::Cpu => "cpu",
            Self::Writes => "writes",
            Self::Execs => "execs",
            Self::Escapes => "escapes",
            Self::Tests => "tests",
            Self::Match => "match",
            Self::Recorded => "recorded",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict;

    #[test]
    fn the_word_of_a_verdict_is_its_json() {
        for verdict in Verdict::ALL {
            let json = serde_json::to_string(&verdict).expect("a unit variant");
            assert_eq!(json, format!("\"{verdict}\""));
        }
        assert!(Verdict::ALL.is_sorted());
    }
}
