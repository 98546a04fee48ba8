//! Runs a row, and compares what was recorded with the right answer.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use capgate_common::{
    evidence::{Entry, Evidence},
    ledger::{Ledger, ProbeSet, digest},
};

use crate::{
    cells::Environment,
    programs::BIN,
    row::{List, Row, Tracepoint},
    service::{PATIENCE, Service, as_user},
    site::Site,
};

/// What a job left.
struct Outcome {
    code: i32,
    said: String,
    ledger: Ledger,
    evidence: Evidence,
}

/// What was expected of one job, with every word filled in.
struct Expected<'a> {
    row: &'a Row,
    site: &'a Site,
}

/// Runs a row, and says everything that is not right.
pub(crate) fn judge(row: &Row, service: &Service, environment: &Environment) -> Result<(), String> {
    let set = environment.probe_set;
    let site = Site::new(row.name, row.uid);
    site.give(row.given);
    let outside = row.outside.as_ref().map(|outside| outside(&site));
    let expected = Expected { row, site: &site };
    let mut outcome = run(&expected, service)?;
    if environment.is_emulated() {
        // How long a processor takes there says how busy the host is, and nothing about the job.
        outcome.ledger.recording.cpu_sec = 0;
    }
    drop(outside);
    let actual = outcome.ledger.recording.coverage.probe_set;
    if set.is_some_and(|set| set != actual) {
        return Err(format!("recorded by {}", actual.word()));
    }
    let differences = expected.differences(&outcome);
    if !differences.is_empty() {
        return Err(format!("{}\n{}", differences.join("\n"), outcome.said));
    }
    if let Some(directory) = &environment.ledgers {
        keep(row, &outcome.ledger, directory);
    }
    site.remove();
    Ok(())
}

/// Leaves a ledger for comparison between cells: without its coverage, and apart where a set may miss something.
fn keep(row: &Row, ledger: &Ledger, directory: &Path) {
    let json: serde_json::Value = serde_json::from_str(&ledger.to_json()).unwrap();
    let mut json = json;
    json.as_object_mut().unwrap().remove("coverage");
    let suffix = match &row.tracepoint {
        Tracepoint::Incomplete { .. } if is_tracepoint(ledger) => "tracepoint.json",
        _ => "json",
    };
    let mut text = serde_json::to_string_pretty(&json).unwrap();
    text.push('\n');
    fs::write(directory.join(format!("{}.{suffix}", row.name)), text).unwrap();
}

fn run(expected: &Expected<'_>, service: &Service) -> Result<Outcome, String> {
    let Expected { row, site } = expected;
    let mut capgate = Command::new(service.client());
    let root = site.path(row.root);
    capgate
        .env_clear()
        .env("PATH", BIN)
        .current_dir(&root)
        .args(["run", "--socket"])
        .arg(service.socket())
        .arg("--root")
        .arg(&root);
    for (option, file) in [("--ledger", "ledger.json"), ("--evidence", "evidence.json")] {
        capgate.arg(option).arg(site.path(file));
    }
    if row.right.gated {
        let contract = site.path("contract.json");
        fs::write(&contract, expected.contract()).unwrap();
        capgate.arg("--contract").arg(contract);
    } else {
        capgate.arg("--record");
    }
    capgate
        .arg("--")
        .args(row.command.iter().map(|word| site.fill(word)))
        .stdin(Stdio::null());
    let stream = |name| File::create(site.path(name)).unwrap();
    capgate.stdout(stream("stdout")).stderr(stream("stderr"));
    as_user(&mut capgate, row.uid);
    let mut child = capgate.spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("not within {PATIENCE:?}"));
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let read = |name: &str| fs::read(site.path(name)).unwrap_or_default();
    let said = String::from_utf8_lossy(&read("stderr")).into_owned();
    let ledger = Ledger::from_json(&read("ledger.json"));
    let evidence = Evidence::from_json(&read("evidence.json"));
    Ok(Outcome {
        code: status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
        ledger: ledger.map_err(|error| format!("no ledger: {error}\n{said}"))?,
        evidence: evidence.map_err(|error| format!("no evidence: {error}\n{said}"))?,
        said,
    })
}

impl Expected<'_> {
    fn words(&self, words: &BTreeSet<String>) -> BTreeSet<String> {
        words.iter().map(|word| self.site.fill(word)).collect()
    }

    /// A contract that a job with the right answer keeps, but for its escapes and what is refused to it.
    fn contract(&self) -> String {
        let right = &self.row.right;
        let writes = self.words(&right.writes);
        serde_json::json!({
            "allow_net": self.words(right.allowed.as_ref().unwrap_or(&right.net)),
            "enforce": right.allowed.is_some(),
            "cpu_budget": 60,
            "writes": digest(&writes),
            "write_paths": writes,
            "refuse": self.words(&self.row.right.refuse),
        })
        .to_string()
    }

    /// Everything that is not as stated.
    fn differences(&self, outcome: &Outcome) -> Vec<String> {
        let right = &self.row.right;
        let Ledger {
            recording,
            complete,
            ..
        } = &outcome.ledger;
        let is_tracepoint = is_tracepoint(&outcome.ledger);
        let (incomplete, instead) = match &self.row.tracepoint {
            Tracepoint::Incomplete { reasons, instead } if is_tracepoint => {
                (reasons, Some(self.words(instead)))
            }
            _ => (&right.incomplete, None),
        };
        let is_part = instead.is_some();
        let instead = instead.unwrap_or_default();
        let mut differences = Vec::new();
        let none = BTreeSet::new();
        let reached = recording.reaches.clone().unwrap_or_default();
        if recording.reaches.is_some() != right.reaches.is_some() {
            differences.push(format!("watched: {}", recording.reaches.is_some()));
        }
        for (column, actual, expected) in [
            ("net", &recording.net, &right.net),
            ("writes", &recording.write_paths, &right.writes),
            ("execs", &recording.execs, &right.execs),
            ("escapes", &recording.escapes, &right.escapes),
            ("reaches", &reached, right.reaches.as_ref().unwrap_or(&none)),
        ] {
            let expected = self.words(expected);
            let allowed = &expected | &instead;
            let invented: Vec<_> = actual.difference(&allowed).collect();
            let missed: Vec<_> = expected.difference(actual).collect();
            if !invented.is_empty() || !missed.is_empty() && !is_part {
                differences.push(format!(
                    "{column}: missed {missed:?}, invented {invented:?}"
                ));
            }
        }
        let mut reasons = recording.coverage.unseen.clone();
        reasons.extend(recording.lost.keys().cloned());
        if reasons != *incomplete || *complete != incomplete.is_empty() {
            differences.push(format!(
                "complete: {complete} for {reasons:?}, and not for {incomplete:?}"
            ));
        }
        if recording.coverage.race_free == is_tracepoint {
            differences.push(format!("race_free: {}", recording.coverage.race_free));
        }
        let code = match is_part {
            // What was reached is known, whatever else is not.
            true if reached.is_empty() => 121,
            true => 120,
            false => right.code,
        };
        if outcome.code != code {
            differences.push(format!("exit code: {}, and not {code}", outcome.code));
        }
        if recording.cpu_sec > 0 {
            differences.push(format!(
                "cpu_sec: {}: too much for a scenario",
                recording.cpu_sec
            ));
        }
        if let Some(imbalance) = outcome.evidence.counts.imbalance() {
            differences.push(format!("counts: {imbalance}"));
        }
        for (list, entry) in &right.evidence {
            let entry = self.site.fill(entry);
            let items = items(&outcome.evidence, *list);
            if !is_part && !items.contains(&entry.as_str()) {
                differences.push(format!("evidence {list:?}: no {entry}: {items:?}"));
            }
        }
        differences
    }
}

fn is_tracepoint(ledger: &Ledger) -> bool {
    ledger.recording.coverage.probe_set == ProbeSet::Tracepoint
}

/// The entries of a list.
fn items(evidence: &Evidence, list: List) -> Vec<&str> {
    let items = match list {
        List::Transient => &evidence.transient,
        List::Own => &evidence.own,
        List::Probes => &evidence.probes,
        List::Metadata => &evidence.metadata,
        List::Inherited => &evidence.inherited,
        List::Denied => {
            let denied = |entry: &&Entry| entry.ops.iter().any(|op| op == "denied");
            let entries = evidence.entries.iter().filter(denied);
            return entries.map(|entry| entry.entry.as_str()).collect();
        }
    };
    items.iter().map(|item| item.entry.as_str()).collect()
}
