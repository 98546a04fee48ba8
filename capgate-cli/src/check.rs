//! `capgate check`: judges a ledger by a contract. Only reads files, and with `--base` a commit.

use std::{collections::BTreeMap, fs, os::unix::ffi::OsStrExt, path::Path};

use anyhow::Context as _;
use capgate_common::{
    compare::{Case, judge},
    evidence::Evidence,
    ledger::{self, Ledger},
    pathform::Forms,
    rules::{Rules, tokens},
    verdict::Verdict,
};
use nix::unistd::{User, getuid};

use crate::{
    args::{CheckArgs, ReportArgs},
    base::{Basis, Wanted},
    diff::read_evidence,
    place::{self, PlaceError},
    report::{Delivery, Files, Subject},
    shown::shown,
    tracked::Tracked,
};

/// Compares and comes back with the exit code of the table of verdicts.
///
/// # Errors
/// When one of the files cannot be used.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<i32> {
    let ledger = read_ledger(&args.ledger)?;
    let root = place::root(args.root.as_deref())?;
    let basis = read_basis(&Wanted {
        root: &root,
        path: &args.contract,
        base: args.base.as_deref(),
        needed: true,
        outputs: &[&args.ledger],
    })?;
    let files = Files::new(&root, &args.ledger, Some(&args.contract));
    let delivery = Delivery::prepare(&args.reporting)?;
    judged(ledger, &basis, &root, None, &files, delivery)
}

/// `capgate report`: the report of a ledger's file again.
///
/// # Errors
/// When one of the files cannot be used.
pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<i32> {
    let ledger = read_ledger(&args.ledger)?;
    let evidence = read_evidence(args.evidence.as_deref())?;
    let evidence = evidence.as_ref();
    let delivery = Delivery::prepare(&args.reporting)?;
    match &args.contract {
        Some(contract) => {
            let root = place::root(args.root.as_deref())?;
            let basis = read_basis(&Wanted {
                root: &root,
                path: contract,
                base: None,
                needed: true,
                outputs: &[&args.ledger],
            })?;
            let files = Files::new(&root, &args.ledger, Some(contract));
            judged(ledger, &basis, &root, evidence, &files, delivery)?;
        }
        None => {
            let judgement = judge(&Case::of_ledger(&ledger, None));
            let notes: Vec<String> = sealed_as(&ledger).into_iter().collect();
            delivery.deliver(&Subject {
                evidence,
                notes: &notes,
                ..Subject::of_file(&ledger, &judgement)
            })?;
        }
    }
    Ok(0)
}

/// What a ledger that broke its contract was sealed as: without the contract nothing else in a report tells.
fn sealed_as(ledger: &Ledger) -> Option<String> {
    let harmless = [Verdict::Match, Verdict::Recorded];
    let words: Vec<&str> = ledger
        .verdict
        .iter()
        .filter(|verdict| !harmless.contains(verdict))
        .map(|verdict| verdict.word())
        .collect();
    (ledger.cpu_budget.is_some() && !words.is_empty()).then(|| {
        format!(
            "the ledger was sealed as {}, and this report does not judge it: give the contract by `--contract FILE`",
            words.join(", ")
        )
    })
}

/// Reports on a ledger under a contract, and comes back with the exit code of the table of verdicts.
fn judged(
    mut ledger: Ledger,
    basis: &Basis,
    root: &Path,
    evidence: Option<&Evidence>,
    files: &Files,
    delivery: Delivery,
) -> anyhow::Result<i32> {
    let rules = rules(basis, root)?;
    // The ledger may be older than a pattern.
    let recorded = ledger.recording.write_paths.len();
    ledger
        .recording
        .write_paths
        .retain(|entry| !rules.ignores(entry));
    let covered = recorded - ledger.recording.write_paths.len();
    let notes: Vec<String> = (covered > 0)
        .then(|| format!("{covered} names of the ledger do not count by this contract's patterns"))
        .into_iter()
        .collect();
    let judgement = judge(&Case::of_ledger(&ledger, Some(&rules)));
    let tracked = Tracked::read(&judgement, root, basis.commit.as_deref());
    delivery.deliver(&Subject {
        evidence,
        notes: &notes,
        contract: Some(&basis.source),
        proposal: basis.proposal.as_ref(),
        files: Some(files),
        tracked: tracked.as_ref(),
        ..Subject::of_file(&ledger, &judgement)
    })?;
    Ok(judgement.exit_code)
}

/// Reads a ledger's file.
///
/// # Errors
/// When it cannot be read, or is none.
pub(crate) fn read_ledger(path: &Path) -> anyhow::Result<Ledger> {
    let text = place::read_text(path, ledger::MAX_BYTES)
        .with_context(|| format!("cannot read the ledger {}", shown(path)))?;
    Ledger::from_json(text.as_bytes())
        .with_context(|| format!("cannot use the ledger {}", shown(path)))
}

/// Reads a contract that has to be there.
///
/// # Errors
/// When it is not, or cannot be used.
pub(crate) fn read_basis(wanted: &Wanted<'_>) -> anyhow::Result<Basis> {
    let missing = || PlaceError::NoContract {
        path: shown(wanted.path),
    };
    Ok(Basis::read(wanted)?.ok_or_else(missing)?)
}

/// A contract made ready for files that this user recorded here.
///
/// # Errors
/// When a pattern needs what is not there.
pub(crate) fn rules(basis: &Basis, root: &Path) -> anyhow::Result<Rules> {
    let environment: BTreeMap<String, String> = tokens(&basis.contract)
        .into_iter()
        .filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)))
        .collect();
    Rules::new(
        basis.contract.clone(),
        &environment,
        &forms(root)?,
        basis.rules.as_ref(),
    )
    .with_context(|| {
        format!(
            "cannot use the contract {}",
            crate::shown::harmless(&basis.source)
        )
    })
}

/// What the patterns of the contract are relative to.
fn forms(root: &Path) -> anyhow::Result<Forms> {
    // By passwd and not by HOME, as the daemon does.
    let home = User::from_uid(getuid())
        .ok()
        .flatten()
        .and_then(|user| fs::canonicalize(user.dir).ok());
    let home = home.as_ref().map(|home| home.as_os_str().as_bytes());
    Ok(Forms::new(
        root.as_os_str().as_bytes(),
        home,
        getuid().as_raw(),
    )?)
}
