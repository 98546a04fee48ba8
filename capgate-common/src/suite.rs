//! What a job's suite did not do, or claims to have done. Nothing here comes from the kernel: skips were announced by the job
//! itself, and the counts are the job's own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use crate::pathform::neutralise;

/// Capabilities, skips and counts of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    /// Capabilities declared absent, of those that the contract knows; `None` when it has no table.
    pub absent: Option<BTreeSet<String>>,
    /// The units that were skipped, by the capability that they need.
    pub skips: BTreeMap<String, BTreeSet<String>>,
    /// What the job's own results say; `None` when the contract pins no counts.
    pub tests: Option<Tests>,
}

impl Suite {
    /// What contradicts itself, as a phrase.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        let declared = |name| self.absent.as_ref().is_some_and(|it| it.contains(name));
        if !self.skips.keys().all(declared) {
            return Some("`skips` names a capability that `absent` does not have");
        }
        self.skips
            .values()
            .any(BTreeSet::is_empty)
            .then_some("`skips` has a capability without a unit")
    }
}

/// What a file of test results says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Tests {
    /// It was counted.
    Counted(Counted),
    /// It could not be.
    Unreadable {
        /// Why not, as the end of a sentence.
        unreadable: String,
    },
}

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Tests that ran, whatever came of them.
    pub run: u64,
    /// Tests that ran and failed.
    pub failed: u64,
    /// Tests that did not run.
    pub skipped: u64,
}

/// What a contract pins of a job's own results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    /// The file of results in JUnit's form, relative to the root.
    pub junit: String,
    /// Fewest tests that run.
    pub run_min: u64,
    /// How many are skipped.
    pub skipped: Pinned,
}

/// How many tests are skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// So many, whatever is declared absent.
    Always(u64),
    /// So many for each of these capabilities that is declared absent.
    Absent(BTreeMap<String, u64>),
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always(count) => write!(f, "{count}"),
            Self::Absent(counts) => {
                let counts: Vec<_> = counts
                    .iter()
                    .map(|(name, count)| format!("{name}: {count}"))
                    .collect();
                f.write_str(&counts.join(", "))
            }
        }
    }
}

/// A way in which a job's results are not what its contract pins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Mismatch {
    /// They could not be counted.
    Unreadable {
        /// The file.
        junit: String,
        /// Why not.
        why: String,
    },
    /// Too few ran.
    Run {
        /// How many did.
        run: u64,
        /// How many the contract pins at least.
        run_min: u64,
    },
    /// More or fewer were skipped.
    Skipped {
        /// How many were.
        skipped: u64,
        /// How many the contract pins.
        pinned: u64,
    },
}

impl Mismatch {
    /// The key within the contract's `tests` that it is about.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "junit",
            Self::Run { .. } => "run_min",
            Self::Skipped { .. } => "skipped",
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { junit, why } => write!(
                f,
                "cannot count the tests in {}: {}",
                neutralise(junit),
                neutralise(why)
            ),
            Self::Run { run, run_min } => {
                write!(f, "ran {run}, contract pins at least {run_min}")
            }
            Self::Skipped { skipped, pinned } => {
                write!(f, "skipped {skipped}, contract pins {pinned}")
            }
        }
    }
}

impl Pins {
    /// What is not as it is pinned.
    pub fn mismatches(&self, suite: &Suite) -> Vec<Mismatch> {
        let unreadable = |why: &str| Mismatch::Unreadable {
            junit: self.junit.clone(),
            why: why.to_owned(),
        };
        let counted = match &suite.tests {
            None => return vec![unreadable("the ledger has no counts of tests")],
            Some(Tests::Unreadable { unreadable: why }) => return vec![unreadable(why)],
            Some(Tests::Counted(counted)) => counted,
        };
        let mut mismatches = Vec::new();
        if counted.run < self.run_min {
            mismatches.push(Mismatch::Run {
                run: counted.run,
                run_min: self.run_min,
            });
        }
        let pinned = self.pinned(suite);
        if counted.skipped != pinned {
            mismatches.push(Mismatch::Skipped {
                skipped: counted.skipped,
                pinned,
            });
        }
        mismatches
    }

    fn pinned(&self, suite: &Suite) -> u64 {
        match &self.skipped {
            Pinned::Always(count) => *count,
            Pinned::Absent(counts) => {
                let absent = suite.absent.iter().flatten();
                absent
                    .filter_map(|name| counts.get(name))
                    .fold(0, |sum, &count| sum.saturating_add(count))
            }
        }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            run,
            failed,
            skipped,
        } = self;
        write!(
            f,
            "ran {run}, skipped {skipped} of {}",
            run.saturating_add(*skipped)
        )?;
        if *failed > 0 {
            write!(f, ", {failed} failed")?;
        }
        f.write_str(" (claimed by the job)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(absent: &[&str], run: u64, skipped: u64) -> Suite {
        Suite {
            absent: Some(absent.iter().map(|&name| name.to_owned()).collect()),
            tests: Some(Tests::Counted(Counted {
                run,
                failed: 0,
                skipped,
            })),
            ..Suite::default()
        }
    }

    fn check(skipped: Pinned, suite: &Suite, expect: &[&str]) {
        let pins = Pins {
            junit: "out.xml".to_owned(),
            run_min: 110,
            skipped,
        };
        let got: Vec<String> = pins
            .mismatches(suite)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn counts_are_compared_exactly() {
        let pinned = || Pinned::Always(33);
        check(pinned(), &suite(&[], 110, 33), &[]);
        check(
            pinned(),
            &suite(&[], 95, 48),
            &[
                "ran 95, contract pins at least 110",
                "skipped 48, contract pins 33",
            ],
        );
        check(
            pinned(),
            &suite(&[], 143, 0),
            &["skipped 0, contract pins 33"],
        );
    }

    #[test]
    fn a_pin_for_each_capability_counts_what_is_declared_absent() {
        let pinned = || {
            let counts = [("network".to_owned(), 33), ("docker".to_owned(), 2)];
            Pinned::Absent(counts.into())
        };
        check(pinned(), &suite(&[], 145, 0), &[]);
        check(pinned(), &suite(&["network"], 112, 33), &[]);
        check(pinned(), &suite(&["docker", "network"], 110, 35), &[]);
        check(
            pinned(),
            &suite(&["docker"], 110, 33),
            &["skipped 33, contract pins 2"],
        );
    }

    #[test]
    fn what_was_not_counted_is_no_match() {
        let mut unread = suite(&[], 0, 0);
        unread.tests = Some(Tests::Unreadable {
            unreadable: "there is no such file".to_owned(),
        });
        check(
            Pinned::Always(0),
            &unread,
            &["cannot count the tests in out.xml: there is no such file"],
        );
        check(
            Pinned::Always(0),
            &Suite::default(),
            &["cannot count the tests in out.xml: the ledger has no counts of tests"],
        );
    }

    #[test]
    fn run_and_skipped_add_up_to_the_whole() {
        let counted = Counted {
            run: 110,
            failed: 0,
            skipped: 33,
        };
        assert_eq!(
            counted.to_string(),
            "ran 110, skipped 33 of 143 (claimed by the job)"
        );
    }
}
