//! The verdict: one pure function from what a job did and what its contract allows to findings, words and an exit code.
//!
//! The daemon calls it to seal a ledger, `capgate check` to compare two files. Nothing else decides a verdict or an exit code.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    address::NetEntry,
    contract::CompareWrites,
    escapes,
    ledger::{Ledger, Recording},
    protocol,
    rules::Rules,
    verdict::{
        EXIT_CPU_KILL, EXIT_ERROR, EXIT_INCOMPLETE, EXIT_MATCH, EXIT_NOT_EXECUTABLE,
        EXIT_NOT_FOUND, EXIT_VIOLATION, Verdict,
    },
};

/// The kind in `lost` of a job that was ended from outside.
pub const LOST_INTERRUPTED: &str = "interrupted";
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
    fn failure(self) -> Option<i32> {
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
    fn never_ran(self) -> Option<(i32, &'static str)> {
        match self {
            Self::NotExecutable => Some((EXIT_NOT_EXECUTABLE, "command not executable")),
            Self::NotFound => Some((EXIT_NOT_FOUND, "command not found")),
            _ => None,
        }
    }

    /// The kind of loss that the end of the job means: it would have done more.
    fn loss(self) -> Option<&'static str> {
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

/// Everything that a verdict depends on.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What the job did.
    pub recording: &'a Recording,
    /// What it may do; `None` to record only.
    pub rules: Option<&'a Rules>,
    /// How the command ended.
    pub outcome: Outcome,
    /// The daemon's configuration demands a recording without races, whatever the contract says.
    pub require_race_free: bool,
    /// The names that `ignore_writes` and `scratch` covered, to tell which of their patterns are in use; `None` when not known.
    pub ignored: Option<&'a BTreeSet<String>>,
}

impl<'a> Case<'a> {
    /// The case of a sealed ledger under a contract, which may be another one than it was sealed with.
    pub fn of_ledger(ledger: &'a Ledger, rules: Option<&'a Rules>) -> Self {
        let Ledger {
            recording, verdict, ..
        } = ledger;
        let outcome = if verdict.contains(&Verdict::CpuKill) {
            Outcome::CpuKilled
        } else if verdict.contains(&Verdict::JobFailed) {
            Outcome::Failed
        } else if verdict.is_empty() {
            Outcome::NotFound
        } else {
            Outcome::Exited(0)
        };
        Self {
            recording,
            rules,
            outcome,
            // The only reason for `complete: false` that the other keys do not hold.
            require_race_free: !ledger.complete
                && recording.lost.is_empty()
                && recording.coverage.unseen.is_empty(),
            ignored: None,
        }
    }
}

/// Seals a record: the ledger of a case and its judgement.
pub fn seal(case: &Case<'_>, judgement: &Judgement) -> Ledger {
    let mut recording = case.recording.clone();
    recording.lost = lost(&recording, case.outcome);
    Ledger {
        recording,
        cpu_budget: case.rules.map(|rules| rules.contract().cpu_budget),
        complete: judgement.complete,
        verdict: judgement.verdict.clone(),
    }
}

/// Something that the contract does not allow, or that keeps capgate from telling. In the order of the table of verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Finding {
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
    /// The probes can be raced, and the contract or the daemon demands ones that cannot.
    NotRaceFree,
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
    /// A pattern over host names, which cannot match: this version records addresses.
    NamePattern {
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
}

/// What is to be said about a job, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The results that apply, in the order of the table; empty when the command could not be started.
    pub verdict: Vec<Verdict>,
    /// The verdict in one phrase: `job-failed, also: net`.
    pub headline: String,
    /// The process's exit code: the first row of the table that applies.
    pub exit_code: i32,
    /// Whether the recording is complete.
    pub complete: bool,
    /// Everything behind the verdict, in its order.
    pub findings: Vec<Finding>,
    /// Blind spots that the contract accepts and the job used.
    pub blind: Vec<String>,
    /// Further remarks.
    pub notes: Vec<Note>,
}

/// Judges a job.
pub fn judge(case: &Case<'_>) -> Judgement {
    let mut draft = Draft::default();
    draft.outcome(case);
    draft.completeness(case);
    match case.rules {
        // A command that never ran did not break a contract, and did not keep it either.
        _ if case.outcome.never_ran().is_some() => {}
        Some(rules) => {
            draft.net(case, rules);
            draft.cpu(case, rules);
            draft.writes(case, rules);
            draft.execs(case, rules);
            draft.escapes(case, rules);
            draft.unused_names(rules);
        }
        None => draft.escaped(case),
    }
    draft.conclude(case)
}

/// A judgement in the making.
#[derive(Default)]
struct Draft {
    findings: Vec<Finding>,
    blind: BTreeSet<String>,
    notes: Vec<Note>,
}

impl Draft {
    fn outcome(&mut self, case: &Case<'_>) {
        let outcome = case.outcome;
        if outcome == Outcome::CpuKilled {
            self.findings.push(Finding::CpuKill {
                cpu_sec: case.recording.cpu_sec,
                cpu_budget: case.rules.map(|rules| rules.contract().cpu_budget),
            });
        }
        if outcome.failure().is_some() {
            self.findings.push(Finding::JobFailed { outcome });
        }
    }

    fn completeness(&mut self, case: &Case<'_>) {
        let Case {
            recording, rules, ..
        } = case;
        for (kind, count) in lost(recording, case.outcome) {
            self.incomplete(Reason::Lost { kind, count });
        }
        for name in &recording.coverage.unseen {
            if rules.is_some_and(|rules| rules.contract().allow_unseen.contains(name)) {
                self.blind.insert(name.clone());
            } else {
                self.incomplete(Reason::Unseen { name: name.clone() });
            }
        }
        let demanded =
            case.require_race_free || rules.is_some_and(|rules| rules.contract().require_race_free);
        if demanded && !recording.coverage.race_free {
            self.incomplete(Reason::NotRaceFree);
        }
    }

    fn incomplete(&mut self, reason: Reason) {
        self.findings.push(Finding::Incomplete { reason });
    }

    fn net(&mut self, case: &Case<'_>, rules: &Rules) {
        let mut used = BTreeSet::new();
        for entry in &case.recording.net {
            // What this version cannot read, it cannot allow.
            let matching = entry
                .parse::<NetEntry>()
                .map(|parsed| rules.net().matching(&parsed))
                .unwrap_or_default();
            if matching.is_empty() {
                self.findings.push(Finding::Net {
                    entry: entry.clone(),
                });
            }
            used.extend(matching);
        }
        for (index, pattern) in rules.net().patterns().iter().enumerate() {
            if pattern.is_name() {
                self.notes.push(Note::NamePattern {
                    pattern: pattern.text().to_owned(),
                });
            } else if !used.contains(&index) {
                self.unused("allow_net", pattern.text());
            }
        }
    }

    fn cpu(&mut self, case: &Case<'_>, rules: &Rules) {
        let cpu_sec = case.recording.cpu_sec;
        let cpu_budget = rules.contract().cpu_budget;
        // A job that was killed at its budget is over it: one finding says so.
        if cpu_sec > cpu_budget && case.outcome != Outcome::CpuKilled {
            self.findings.push(Finding::Cpu {
                cpu_sec,
                cpu_budget,
            });
        }
    }

    fn writes(&mut self, case: &Case<'_>, rules: &Rules) {
        let contract = rules.contract();
        let found = case.recording.writes();
        if found != contract.writes {
            let names = contract.write_paths.as_ref().map(|expected| {
                let actual = &case.recording.write_paths;
                NameDifference {
                    added: actual.difference(expected).cloned().collect(),
                    removed: expected.difference(actual).cloned().collect(),
                }
            });
            match names {
                Some(names)
                    if contract.compare_writes == CompareWrites::Within
                        && names.added.is_empty() =>
                {
                    let names = names.removed;
                    self.notes.push(Note::NotWritten { names });
                }
                names => self.findings.push(Finding::Writes {
                    expected: contract.writes.clone(),
                    found,
                    names,
                }),
            }
        }
        if let Some(ignored) = case.ignored {
            let globs = [
                (
                    "ignore_writes",
                    &contract.ignore_writes,
                    rules.ignore_writes(),
                ),
                ("scratch", &contract.scratch, rules.scratch()),
            ];
            for (key, texts, compiled) in globs {
                let used: BTreeSet<usize> = ignored
                    .iter()
                    .flat_map(|entry| compiled.matching(entry))
                    .collect();
                self.unused_globs(key, texts, &used);
            }
        }
    }

    fn execs(&mut self, case: &Case<'_>, rules: &Rules) {
        let (Some(compiled), Some(texts)) = (rules.exec(), &rules.contract().allow_exec) else {
            return;
        };
        let mut used = BTreeSet::new();
        for entry in &case.recording.execs {
            let matching = compiled.matching(entry);
            if matching.is_empty() {
                self.findings.push(Finding::Execs {
                    entry: entry.clone(),
                });
            }
            used.extend(matching);
        }
        self.unused_globs("allow_exec", texts, &used);
    }

    fn escapes(&mut self, case: &Case<'_>, rules: &Rules) {
        for entry in &case.recording.escapes {
            match escapes::acceptable_as(entry) {
                Some(name) if rules.contract().allow_unseen.contains(name) => {
                    self.blind.insert(name.to_owned());
                }
                _ => self.findings.push(Finding::Escapes {
                    entry: entry.clone(),
                }),
            }
        }
    }

    /// Without a contract an escape breaks nothing, and is still worth a remark.
    fn escaped(&mut self, case: &Case<'_>) {
        for entry in &case.recording.escapes {
            self.notes.push(Note::Escaped {
                entry: entry.clone(),
            });
        }
    }

    /// Names in `allow_unseen` that nothing needed. Call it last, when the blind spots are known.
    fn unused_names(&mut self, rules: &Rules) {
        for name in &rules.contract().allow_unseen {
            if !self.blind.contains(name) {
                self.unused("allow_unseen", name);
            }
        }
    }

    fn unused_globs(&mut self, key: &str, texts: &[String], used: &BTreeSet<usize>) {
        for (index, text) in texts.iter().enumerate() {
            if !used.contains(&index) {
                self.unused(key, text);
            }
        }
    }

    fn unused(&mut self, key: &str, pattern: &str) {
        self.notes.push(Note::UnusedPattern {
            key: key.to_owned(),
            pattern: pattern.to_owned(),
        });
    }

    fn conclude(self, case: &Case<'_>) -> Judgement {
        let mut verdict: Vec<Verdict> = self.findings.iter().map(Finding::verdict).collect();
        verdict.dedup();
        let never_ran = case.outcome.never_ran();
        if never_ran.is_none() {
            match case.rules {
                Some(_) if verdict.is_empty() => verdict.push(Verdict::Match),
                Some(_) => {}
                None => verdict.push(Verdict::Recorded),
            }
        }
        let blind: Vec<String> = self.blind.into_iter().collect();
        Judgement {
            headline: headline(&verdict, never_ran, &blind),
            exit_code: exit_code(&verdict, case.outcome),
            complete: !verdict.contains(&Verdict::Incomplete),
            verdict,
            findings: self.findings,
            blind,
            notes: self.notes,
        }
    }
}

/// The counts of loss, the end of the job included.
fn lost(recording: &Recording, outcome: Outcome) -> BTreeMap<String, u64> {
    let mut lost = recording.lost.clone();
    lost.retain(|_, count| *count > 0);
    if let Some(kind) = outcome.loss() {
        lost.entry(kind.to_owned()).or_insert(1);
    }
    lost
}

/// The first row of the table that applies.
fn exit_code(verdict: &[Verdict], outcome: Outcome) -> i32 {
    match verdict.first() {
        Some(Verdict::Error) => EXIT_ERROR,
        Some(Verdict::CpuKill) => EXIT_CPU_KILL,
        Some(Verdict::JobFailed) => outcome.failure().unwrap_or(EXIT_ERROR),
        Some(Verdict::Incomplete) => EXIT_INCOMPLETE,
        Some(Verdict::Net | Verdict::Cpu | Verdict::Writes | Verdict::Execs | Verdict::Escapes) => {
            EXIT_VIOLATION
        }
        Some(Verdict::Match | Verdict::Recorded) => EXIT_MATCH,
        None => outcome.never_ran().map_or(EXIT_ERROR, |(code, _)| code),
    }
}

fn headline(verdict: &[Verdict], never_ran: Option<(i32, &str)>, blind: &[String]) -> String {
    let mut words = never_ran
        .map(|(_, phrase)| phrase)
        .into_iter()
        .chain(verdict.iter().map(|verdict| verdict.word()));
    let mut headline = words.next().unwrap_or_default().to_owned();
    let also: Vec<&str> = words.collect();
    if !also.is_empty() {
        headline.push_str(", also: ");
        headline.push_str(&also.join(", "));
    }
    if !blind.is_empty() {
        headline.push_str(", BLIND to ");
        headline.push_str(&blind.join(", "));
    }
    headline
}

impl Finding {
    /// The row of the table that this finding belongs to.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::CpuKill { .. } => Verdict::CpuKill,
            Self::JobFailed { .. } => Verdict::JobFailed,
            Self::Incomplete { .. } => Verdict::Incomplete,
            Self::Net { .. } => Verdict::Net,
            Self::Cpu { .. } => Verdict::Cpu,
            Self::Writes { .. } => Verdict::Writes,
            Self::Execs { .. } => Verdict::Execs,
            Self::Escapes { .. } => Verdict::Escapes,
        }
    }
}
