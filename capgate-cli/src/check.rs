//! `capgate check`: judges a ledger by a contract. Only reads files.

use std::{collections::BTreeMap, fs, os::unix::ffi::OsStrExt, path::Path};

use anyhow::Context as _;
use capgate_common::{
    compare::{Case, judge},
    contract::{self, Contract},
    ledger::{self, Ledger},
    pathform::Forms,
    rules::{Rules, tokens},
};
use nix::unistd::{User, getuid};

use crate::{
    args::CheckArgs,
    place,
    report::{self, Subject},
    shown::shown,
};

/// Compares and comes back with the exit code of the table of verdicts.
///
/// # Errors
/// When one of the files cannot be used.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<i32> {
    let ledger = read_ledger(&args.ledger)?;
    let rules = read_rules(args)?;
    let judgement = judge(&Case::of_ledger(&ledger, Some(&rules)));
    let subject = Subject {
        job: None,
        judgement: &judgement,
        ledger: &ledger,
        evidence: None,
        notes: &[],
        argv: &[],
        contract: None,
        wall_ms: None,
        exit_code: judgement.exit_code,
    };
    report::to_stdout(&subject.write(args.format))?;
    Ok(judgement.exit_code)
}

fn read_ledger(path: &Path) -> anyhow::Result<Ledger> {
    let text = place::read_text(path, ledger::MAX_BYTES)
        .with_context(|| format!("cannot read the ledger {}", shown(path)))?;
    Ledger::from_json(text.as_bytes())
        .with_context(|| format!("cannot use the ledger {}", shown(path)))
}

fn read_rules(args: &CheckArgs) -> anyhow::Result<Rules> {
    let path = &args.contract;
    let text = place::read_text(path, contract::MAX_BYTES)
        .with_context(|| format!("cannot read the contract {}", shown(path)))?;
    let unusable = || format!("cannot use the contract {}", shown(path));
    let contract = Contract::from_json(text.as_bytes()).with_context(unusable)?;
    let environment: BTreeMap<String, String> = tokens(&contract)
        .into_iter()
        .filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)))
        .collect();
    Rules::new(contract, &environment, &forms(args)?).with_context(unusable)
}

/// What the patterns of the contract are relative to.
fn forms(args: &CheckArgs) -> anyhow::Result<Forms> {
    let root = place::root(args.root.as_deref())?;
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
