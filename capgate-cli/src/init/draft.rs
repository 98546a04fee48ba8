//! What the contract is going to say.

use std::collections::BTreeSet;

use anyhow::Context as _;
use capgate_common::{
    contract::{self, Contract, budget_for},
    escapes,
    glob::GlobPatterns,
    ledger,
};
use serde::Serialize;

use super::{
    Seen, all,
    looks::Host,
    moving::{Names, Proposal, propose},
    net,
};

/// A contract on its way, and what a human has to know about it.
pub(crate) struct Draft {
    /// Patterns for names.
    pub(crate) names: Proposal,
    /// The write set.
    pub(crate) writes: BTreeSet<String>,
    /// Patterns of the destinations that were seen.
    pub(crate) net: Vec<String>,
    /// Whether the contract allows them.
    pub(crate) allow_seen: bool,
    /// Destinations that no pattern permits.
    pub(crate) unknown: Vec<String>,
    /// The most CPU time of a run, in seconds.
    pub(crate) cpu_sec: u64,
    /// Names that `allow_unseen` would have to have, which only a human writes.
    pub(crate) blind: BTreeSet<String>,
}

/// The file, in the order of the documentation.
#[derive(Serialize)]
struct File<'a> {
    schema: &'static str,
    allow_net: &'a [String],
    cpu_budget: u64,
    writes: String,
    write_paths: &'a BTreeSet<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignore_writes: Vec<&'a str>,
}

impl Draft {
    pub(crate) fn new(runs: &[Seen], host: &Host, allow_seen: bool) -> Self {
        let sets: Vec<Names> = runs
            .iter()
            .map(|run| run.ledger.recording.write_paths.clone())
            .collect();
        let names = propose(&sets, host);
        let globs: Vec<String> = names.patterns.iter().map(|it| it.glob.clone()).collect();
        let covered = GlobPatterns::new(&globs).unwrap_or_else(|_| GlobPatterns::none());
        // The last run found what the others left, as most runs will.
        let writes = sets.last().into_iter().flatten();
        let writes = writes.filter(|name| !covered.matches(name)).cloned();
        let destinations: Vec<&BTreeSet<String>> =
            runs.iter().map(|run| &run.ledger.recording.net).collect();
        let net::Seen { patterns, unknown } = net::patterns(&destinations);
        let delegates = all(runs, |ledger| &ledger.recording.escapes);
        let delegates = delegates.iter().filter_map(|it| escapes::acceptable_as(it));
        let mut blind: BTreeSet<String> = delegates.map(str::to_owned).collect();
        blind.extend(all(runs, |ledger| &ledger.recording.coverage.unseen));
        Self {
            writes: writes.collect(),
            names,
            net: patterns,
            allow_seen,
            unknown,
            cpu_sec: runs
                .iter()
                .map(|run| run.ledger.recording.cpu_sec)
                .max()
                .unwrap_or_default(),
            blind,
        }
    }

    /// The budget that the contract gives.
    pub(crate) fn budget(&self) -> u64 {
        budget_for(self.cpu_sec)
    }

    /// The contract's text.
    ///
    /// # Errors
    /// When it would be none, which is a defect.
    pub(crate) fn to_json(&self) -> anyhow::Result<String> {
        let patterns = self.names.patterns.iter();
        let file = File {
            schema: contract::SCHEMA,
            allow_net: if self.allow_seen { &self.net } else { &[] },
            cpu_budget: self.budget(),
            writes: ledger::digest(&self.writes),
            write_paths: &self.writes,
            ignore_writes: patterns.map(|it| it.glob.as_str()).collect(),
        };
        let mut text = serde_json::to_string_pretty(&file).context("cannot write the contract")?;
        text.push('\n');
        if text.len() <= contract::MAX_BYTES {
            Contract::from_json(text.as_bytes())
                .context("cannot write the contract: it would not be a good one")?;
        }
        Ok(text)
    }
}
