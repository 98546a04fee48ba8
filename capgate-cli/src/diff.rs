//! `capgate diff`: what changed between two ledgers, two contracts, or a contract and what a job did. Only reads files.

use std::path::Path;

use anyhow::Context as _;
use capgate_common::{
    change::{Change, between_contracts, between_ledgers},
    compare::{Case, Finding, judge},
    contract::Contract,
    evidence::Evidence,
    ledger::{self, Ledger},
    pathform,
    rules::Rules,
};
use serde::Serialize;

use crate::{
    args::DiffArgs,
    base::{Basis, Wanted},
    check::rules,
    jobs::json_line,
    place, report,
    shown::shown,
};

/// The value of the key `schema`.
const SCHEMA: &str = "capgate/diff/1";
/// Largest evidence that is read, in bytes: it comes over the protocol, which bounds it so.
const MAX_EVIDENCE: usize = capgate_common::protocol::MAX_RESPONSE;
/// The exit code when something differs.
const DIFFERENT: i32 = 1;

/// One side.
enum Side {
    /// What a job did.
    Ledger(Box<Ledger>),
    /// What a job may do.
    Contract(Box<Basis>),
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    changes: &'a [Change],
}

/// Compares; comes back with 0 when nothing differs.
///
/// # Errors
/// When a file cannot be used, or stdout not written.
pub(crate) fn diff(args: &DiffArgs) -> anyhow::Result<i32> {
    let root = place::root(args.root.as_deref())?;
    let evidence = read_evidence(args.evidence.as_deref())?;
    let old = Side::read(&args.old, &root)?;
    let new = Side::read(&args.new, &root)?;
    let changes = match (&old, &new) {
        (Side::Ledger(old), Side::Ledger(new)) => between_ledgers(old, new),
        (Side::Contract(old), Side::Contract(new)) => {
            between_contracts(&old.contract, &new.contract)
        }
        (Side::Contract(basis), Side::Ledger(ledger)) => broken(ledger, &rules(basis, &root)?),
        (Side::Ledger(ledger), Side::Contract(basis)) => {
            let changes = broken(ledger, &rules(basis, &root)?);
            changes.into_iter().map(reversed).collect()
        }
    };
    let text = if args.json {
        json_line(&Document {
            schema: SCHEMA,
            changes: &changes,
        })
    } else {
        report::changes(&changes, evidence.as_ref())
    };
    report::to_stdout(&text)?;
    Ok(if changes.is_empty() { 0 } else { DIFFERENT })
}

/// Reads evidence, when some was named.
///
/// # Errors
/// When it cannot be read or is none.
pub(crate) fn read_evidence(path: Option<&Path>) -> anyhow::Result<Option<Evidence>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let text = place::read_text(path, MAX_EVIDENCE)
        .with_context(|| format!("cannot read the evidence {}", shown(path)))?;
    Evidence::from_json(text.as_bytes())
        .with_context(|| format!("cannot use the evidence {}", shown(path)))
        .map(Some)
}

impl Side {
    fn read(path: &Path, root: &Path) -> anyhow::Result<Self> {
        let text = place::read_text(path, ledger::MAX_BYTES)
            .with_context(|| format!("cannot read {}", shown(path)))?;
        // A contract's schema may be absent, a ledger's may not.
        let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        if value["schema"] == ledger::SCHEMA {
            let ledger = Ledger::from_json(text.as_bytes());
            let ledger =
                ledger.with_context(|| format!("cannot use the ledger {}", shown(path)))?;
            return Ok(Self::Ledger(Box::new(ledger)));
        }
        let unusable = || {
            format!(
                "cannot use {}, which is no ledger (`schema` is not `{}`), as a contract",
                shown(path),
                ledger::SCHEMA
            )
        };
        let contract = Contract::from_json(text.as_bytes()).with_context(unusable)?;
        if !contract.ignore_gitignored {
            return Ok(Self::Contract(Box::new(Basis {
                path: path.to_owned(),
                source: pathform::escape(path.as_os_str().as_encoded_bytes()),
                commit: None,
                text,
                contract,
                rules: None,
                proposal: None,
            })));
        }
        let basis = Basis::read(&Wanted {
            root,
            path,
            base: None,
            needed: true,
            outputs: &[],
        })?;
        basis
            .map(|basis| Self::Contract(Box::new(basis)))
            .with_context(|| format!("cannot read {}", shown(path)))
    }
}

/// What a job did that its contract does not allow, and what of the contract it did not do.
fn broken(ledger: &Ledger, rules: &Rules) -> Vec<Change> {
    let mut ledger = ledger.clone();
    let names = &mut ledger.recording.write_paths;
    names.retain(|entry| !rules.ignores(entry));
    let mut changes = Vec::new();
    for finding in judge(&Case::of_ledger(&ledger, Some(rules))).findings {
        let added = |key, member: String| Change::Added { key, member };
        match finding {
            Finding::Reach { entry } => changes.push(added("reaches", entry)),
            Finding::Net { entry } => changes.push(added("net", entry)),
            Finding::Execs { entry } => changes.push(added("execs", entry)),
            Finding::Escapes { entry } => changes.push(added("escapes", entry)),
            Finding::Writes {
                names: Some(names), ..
            } => {
                let removed = names.removed.into_iter().map(|member| Change::Removed {
                    key: "write_paths",
                    member,
                });
                changes.extend(removed);
                let new = names.added.into_iter();
                changes.extend(new.map(|name| added("write_paths", name)));
            }
            Finding::Writes {
                expected, found, ..
            } => changes.push(value("writes", &expected, &found)),
            Finding::Cpu {
                cpu_sec,
                cpu_budget,
            } => changes.push(value("cpu_sec", &cpu_budget, &cpu_sec)),
            Finding::Incomplete { reason } => changes.push(added("incomplete", reason.to_string())),
            Finding::Tests { mismatch } => changes.push(added("tests", mismatch.to_string())),
            Finding::CpuKill { .. } | Finding::JobFailed { .. } => {
                changes.push(added("verdict", finding.verdict().word().to_owned()));
            }
        }
    }
    changes
}

fn value(key: &'static str, from: &dyn ToString, to: &dyn ToString) -> Change {
    Change::Value {
        key,
        from: Some(from.to_string()),
        to: Some(to.to_string()),
    }
}

fn reversed(change: Change) -> Change {
    match change {
        Change::Added { key, member } => Change::Removed { key, member },
        Change::Removed { key, member } => Change::Added { key, member },
        Change::Value { key, from, to } => Change::Value {
            key,
            from: to,
            to: from,
        },
    }
}
