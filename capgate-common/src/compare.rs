//! The verdict: one pure function from what a job did and what its contract allows to findings, words and an exit code.
//!
//! The daemon calls it to seal a ledger, `capgate check` to compare two files. Nothing else decides a verdict or an exit code.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    address::NetEntry,
    contract::CompareWrites,
    escapes,
    evidence::Addresses,
    ledger::{Ledger, Recording},
    outcome::LOST_RACE,
    rules::Rules,
    suite::Tests,
    verdict::{EXIT_CPU_KILL, EXIT_ERROR, EXIT_INCOMPLETE, EXIT_MATCH, EXIT_VIOLATION, Verdict},
};

pub use crate::{
    finding::{Finding, NameDifference, Note, Reason},
    outcome::Outcome,
};

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
    /// The addresses behind destinations by name, from evidence; without it only the names count.
    pub addresses: Option<&'a Addresses>,
}

impl<'a> Case<'a> {
    /// The case of a sealed ledger under a contract, which may be another one than it was sealed with.
    pub fn of_ledger(ledger: &'a Ledger, rules: Option<&'a Rules>) -> Self {
        let Ledger {
            recording, verdict, ..
        } = ledger;
        let has = |word| verdict.contains(&word);
        // A job that ran was at least recorded, or compared. One that was compared, incomplete and otherwise fine looks like one
        // that never ran: it is taken for the former, and both are incomplete.
        let never_ran = match ledger.cpu_budget {
            Some(_) => verdict.is_empty(),
            None => !has(Verdict::Recorded),
        };
        let outcome = if has(Verdict::CpuKill) {
            Outcome::CpuKilled
        } else if has(Verdict::JobFailed) {
            Outcome::Failed
        } else if never_ran {
            Outcome::NotFound
        } else {
            Outcome::Exited(0)
        };
        Self {
            recording,
            rules,
            outcome,
            // Such a demand is in `lost`.
            require_race_free: false,
            ignored: None,
            addresses: None,
        }
    }
}

/// Seals a record: the ledger of a case and its judgement.
pub fn seal(case: &Case<'_>, judgement: &Judgement) -> Ledger {
    let mut recording = case.recording.clone();
    recording.lost = lost(case);
    Ledger {
        recording,
        cpu_budget: case.rules.map(|rules| rules.contract().cpu_budget),
        complete: judgement.complete,
        verdict: judgement.verdict.clone(),
    }
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
    /// How much each pattern of the contract covered, in the order of its keys. Absent from what older versions stored.
    #[serde(default)]
    pub patterns: Vec<PatternUse>,
}

/// How much one pattern covered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternUse {
    /// The contract's key.
    pub key: String,
    /// The pattern, as the contract has it.
    pub pattern: String,
    /// How many members of the column, or names that do not count because of it.
    pub entries: usize,
}

/// Judges a job.
pub fn judge(case: &Case<'_>) -> Judgement {
    let mut draft = Draft::default();
    draft.reaches(case);
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
            draft.tests(case, rules);
            draft.used_names(rules);
        }
        None => draft.escaped(case),
    }
    draft.suite(case);
    draft.conclude(case)
}

/// A judgement in the making.
#[derive(Default)]
struct Draft {
    findings: Vec<Finding>,
    blind: BTreeSet<String>,
    notes: Vec<Note>,
    patterns: Vec<PatternUse>,
}

/// How many entries each pattern of a list matched, by its place there.
#[derive(Default)]
struct Uses(BTreeMap<usize, usize>);

impl Uses {
    /// Counts the patterns that one entry matched.
    fn add(&mut self, matching: impl IntoIterator<Item = usize>) {
        for index in matching {
            *self.0.entry(index).or_default() += 1;
        }
    }

    fn of(&self, index: usize) -> usize {
        self.0.get(&index).copied().unwrap_or(0)
    }
}

impl Draft {
    /// However the job ended, or whether it began.
    fn reaches(&mut self, case: &Case<'_>) {
        for entry in case.recording.reaches.iter().flatten() {
            let entry = entry.clone();
            match case.rules {
                Some(_) => self.findings.push(Finding::Reach { entry }),
                None => self.notes.push(Note::Reached { entry }),
            }
        }
    }

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
        for (kind, count) in lost(case) {
            self.incomplete(Reason::Lost { kind, count });
        }
        for name in &recording.coverage.unseen {
            if rules.is_some_and(|rules| rules.contract().allow_unseen.contains(name)) {
                self.blind.insert(name.clone());
            } else {
                self.incomplete(Reason::Unseen { name: name.clone() });
            }
        }
        let demanded = rules.is_some_and(|rules| rules.contract().require_race_free);
        if demanded && !recording.coverage.race_free {
            self.incomplete(Reason::NotRaceFree);
        }
        let watched = recording.reaches.is_some();
        if rules.is_some_and(|rules| !rules.contract().refuse.is_empty()) && !watched {
            self.incomplete(Reason::NotWatched);
        }
    }

    fn incomplete(&mut self, reason: Reason) {
        self.findings.push(Finding::Incomplete { reason });
    }

    fn net(&mut self, case: &Case<'_>, rules: &Rules) {
        let mut uses = Uses::default();
        for entry in &case.recording.net {
            let behind = case.addresses.and_then(|addresses| addresses.get(entry));
            // What this version cannot read, it cannot allow.
            let matching = entry
                .parse::<NetEntry>()
                .map(|parsed| match behind {
                    Some(behind) => rules.net().matching_behind(&parsed, behind),
                    None => rules.net().matching(&parsed),
                })
                .unwrap_or_default();
            if matching.is_empty() {
                self.findings.push(Finding::Net {
                    entry: entry.clone(),
                });
            }
            uses.add(matching);
        }
        for (index, pattern) in rules.net().patterns().iter().enumerate() {
            if !pattern.is_own() {
                self.used("allow_net", pattern.text(), uses.of(index));
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
        // More than four fifths.
        let close = u128::from(cpu_sec) * 5 > u128::from(cpu_budget) * 4;
        if close && cpu_sec <= cpu_budget {
            self.notes.push(Note::LittleHeadRoom {
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
                let mut uses = Uses::default();
                for entry in ignored {
                    uses.add(compiled.matching(entry));
                }
                self.used_globs(key, texts, &uses);
            }
            if let Some(git) = rules.git_ignored() {
                let covered = ignored.iter().filter(|entry| git.ignores(entry)).count();
                self.used("ignore_gitignored", "true", covered);
            }
        }
    }

    fn execs(&mut self, case: &Case<'_>, rules: &Rules) {
        let (Some(compiled), Some(texts)) = (rules.exec(), &rules.contract().allow_exec) else {
            return;
        };
        let mut uses = Uses::default();
        for entry in &case.recording.execs {
            let matching = compiled.matching(entry);
            if matching.is_empty() {
                self.findings.push(Finding::Execs {
                    entry: entry.clone(),
                });
            }
            uses.add(matching);
        }
        self.used_globs("allow_exec", texts, &uses);
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

    fn tests(&mut self, case: &Case<'_>, rules: &Rules) {
        let pins = rules.contract().tests.iter();
        let mismatches = pins.flat_map(|pins| pins.mismatches(&case.recording.suite));
        let findings = mismatches.map(|mismatch| Finding::Tests { mismatch });
        self.findings.extend(findings);
    }

    /// What was not tested, whatever the verdict is.
    fn suite(&mut self, case: &Case<'_>) {
        let suite = &case.recording.suite;
        if let Some(Tests::Counted(counted)) = suite.tests {
            self.notes.push(Note::Claimed { counted });
        }
        for capability in suite.absent.iter().flatten() {
            let units = suite.skips.get(capability).into_iter().flatten();
            self.notes.push(Note::Absent {
                capability: capability.clone(),
                units: units.cloned().collect(),
            });
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

    /// What the names in `allow_unseen` were needed for. Call it last, when the blind spots are known.
    fn used_names(&mut self, rules: &Rules) {
        for name in &rules.contract().allow_unseen {
            self.used("allow_unseen", name, usize::from(self.blind.contains(name)));
        }
    }

    fn used_globs(&mut self, key: &str, texts: &[String], uses: &Uses) {
        for (index, text) in texts.iter().enumerate() {
            self.used(key, text, uses.of(index));
        }
    }

    /// Keeps how much a pattern covered; one that covered nothing is worth a remark.
    fn used(&mut self, key: &str, pattern: &str, entries: usize) {
        let (key, pattern) = (key.to_owned(), pattern.to_owned());
        if entries == 0 {
            self.notes.push(Note::UnusedPattern {
                key: key.clone(),
                pattern: pattern.clone(),
            });
        }
        self.patterns.push(PatternUse {
            key,
            pattern,
            entries,
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
            patterns: self.patterns,
        }
    }
}

/// The counts of loss, with what the end of the job and the daemon's configuration add.
fn lost(case: &Case<'_>) -> BTreeMap<String, u64> {
    let mut lost = case.recording.lost.clone();
    lost.retain(|_, count| *count > 0);
    let raced = case.require_race_free && !case.recording.coverage.race_free;
    for kind in case
        .outcome
        .loss()
        .into_iter()
        .chain(raced.then_some(LOST_RACE))
    {
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
        Some(
            Verdict::Reach
            | Verdict::Net
            | Verdict::Cpu
            | Verdict::Writes
            | Verdict::Execs
            | Verdict::Escapes
            | Verdict::Tests,
        ) => EXIT_VIOLATION,
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

#[cfg(test)]
mod tests;
