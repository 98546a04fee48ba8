//! For GitLab: a code quality report, which a merge request shows beside the changes.

use capgate_common::{contract, ledger::digest, verdict::Verdict};
use serde::Serialize;

use super::{
    Subject,
    explain::{self, Item, Point},
};
use crate::shown::harmless_json;

/// Entries of one point that get an issue of their own: what a merge request shows is bounded.
const SHOWN: usize = 200;

#[derive(Serialize)]
struct Issue {
    description: String,
    check_name: String,
    fingerprint: String,
    severity: &'static str,
    location: Location,
}

#[derive(Serialize)]
struct Location {
    path: String,
    lines: Lines,
}

#[derive(Serialize)]
struct Lines {
    begin: u32,
}

pub(super) fn write(subject: &Subject<'_>) -> String {
    let mut issues: Vec<Issue> = Vec::new();
    for point in explain::points(subject) {
        if point.items.is_empty() {
            issues.push(issue(&point, None));
        }
        issues.extend(
            point
                .items
                .iter()
                .take(SHOWN)
                .map(|item| issue(&point, Some(item))),
        );
        if let Some(more) = point.items.len().checked_sub(SHOWN).filter(|&it| it > 0) {
            let rest = Item::rest(more);
            issues.push(issue(&point, Some(&rest)));
        }
    }
    if subject.judgement.verdict.is_empty() {
        issues.push(Issue {
            description: explain::first_line(subject).0.plain(),
            check_name: "capgate/job".to_owned(),
            fingerprint: fingerprint("job", ""),
            severity: "major",
            location: location(None),
        });
    }
    // Only maps with keys that are no strings could fail, and there are none.
    let text = serde_json::to_string_pretty(&issues).unwrap_or_default();
    let mut text = harmless_json(&text);
    text.push('\n');
    text
}

fn issue(point: &Point, item: Option<&Item>) -> Issue {
    let mut description = point.what.plain();
    if let Some(item) = item {
        description.push_str(": ");
        if item.sign == '-' {
            description.push_str("removed ");
        }
        description.push_str(&item.text.plain());
        if let Some(who) = &item.who {
            description.push(' ');
            description.push_str(&who.plain());
        }
    }
    let key = item.map_or("", |item| &item.key);
    Issue {
        description,
        check_name: format!("capgate/{}", point.verdict),
        fingerprint: fingerprint(point.verdict.word(), key),
        severity: severity(point.verdict),
        location: location(item.filter(|_| point.verdict == Verdict::Writes)),
    }
}

/// The same for the same finding in every run, so that GitLab can tell new from old. A key is an entry, which holds no newline.
fn fingerprint(check: &str, key: &str) -> String {
    digest(&[format!("{check} {key}")].into())
}

fn severity(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reach | Verdict::Escapes => "blocker",
        Verdict::Net | Verdict::Execs => "critical",
        Verdict::Cpu => "minor",
        _ => "major",
    }
}

/// A name in the root is its own place; everything else is about the contract.
fn location(written: Option<&Item>) -> Location {
    let name = written
        .map(|item| item.key.trim_end_matches('*').trim_end_matches('/'))
        .filter(|name| !name.is_empty() && !name.starts_with(['/', '~']));
    Location {
        path: name.unwrap_or(contract::DEFAULT_PATH).to_owned(),
        lines: Lines { begin: 1 },
    }
}
