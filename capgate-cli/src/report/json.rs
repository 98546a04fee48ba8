//! For a program: everything, in one JSON document.

use std::collections::BTreeMap;

use capgate_common::{
    compare::{Finding, Note, PatternUse},
    evidence::Evidence,
    ledger::Ledger,
    verdict::Verdict,
};
use serde::Serialize;

use super::{Subject, next};
use crate::{
    base::Proposal,
    shown::harmless_json,
    tracked::{Directory, Tracked},
};

/// The value of the key `schema`.
const SCHEMA: &str = "capgate/report/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    job: Option<&'a str>,
    argv: &'a [String],
    contract: Option<&'a str>,
    proposal: Option<&'a Proposal>,
    headline: &'a str,
    verdict: &'a [Verdict],
    exit_code: i32,
    complete: bool,
    blind: &'a [String],
    findings: &'a [Finding],
    /// The line that accepts what belongs to a verdict, for a shell.
    accept: BTreeMap<&'static str, String>,
    /// What git knows of the directories of the names that the write set has more.
    directories: BTreeMap<&'a str, Directory>,
    notes: &'a [Note],
    patterns: &'a [PatternUse],
    remarks: &'a [String],
    wall_ms: Option<u64>,
    ledger: &'a Ledger,
    evidence: Option<&'a Evidence>,
}

pub(super) fn write(subject: &Subject<'_>) -> String {
    let Subject {
        job,
        judgement,
        ledger,
        evidence,
        notes,
        argv,
        contract,
        proposal,
        wall_ms,
        exit_code,
        tracked,
        files: _,
    } = *subject;
    let line = |&verdict: &Verdict| Some((verdict.word(), next::accept_line(subject, verdict)?));
    let written = judgement.findings.iter().flat_map(|finding| match finding {
        Finding::Writes {
            names: Some(names), ..
        } => names.added.iter().collect(),
        Finding::Writes { names: None, .. } => ledger.recording.write_paths.iter().collect(),
        _ => Vec::new(),
    });
    let document = Document {
        schema: SCHEMA,
        job,
        argv,
        contract,
        proposal,
        headline: &judgement.headline,
        verdict: &judgement.verdict,
        exit_code,
        complete: judgement.complete,
        blind: &judgement.blind,
        findings: &judgement.findings,
        accept: judgement.verdict.iter().filter_map(line).collect(),
        directories: written
            .map(|entry| (entry.as_str(), Tracked::directory(tracked, entry)))
            .collect(),
        notes: &judgement.notes,
        patterns: &judgement.patterns,
        remarks: notes,
        wall_ms,
        ledger,
        evidence,
    };
    // Only maps with keys that are no strings could fail, and there are none.
    let text = serde_json::to_string_pretty(&document).unwrap_or_default();
    let mut text = harmless_json(&text);
    text.push('\n');
    text
}
