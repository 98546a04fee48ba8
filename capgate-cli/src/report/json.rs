//! For a program: everything, in one JSON document.

use capgate_common::{
    compare::{Finding, Note},
    evidence::Evidence,
    ledger::Ledger,
    verdict::Verdict,
};
use serde::Serialize;

use super::Subject;
use crate::{base::Proposal, shown::harmless_json};

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
    notes: &'a [Note],
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
    } = *subject;
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
        notes: &judgement.notes,
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
