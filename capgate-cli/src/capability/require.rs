//! `capgate capability require`: whether a unit of a suite may run.
//!
//! Inside a job the daemon answers, and lists the unit. Outside, where somebody runs the suite by hand, the contract's file and
//! the environment do, and nothing is recorded.

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use capgate_common::{
    capability::{Declaration, EXIT_ABSENT, SOCKET_VARIABLE, check_unit},
    contract::Contract,
    protocol::{Request, Response, SOCKET_PATH},
};

use super::declared;
use crate::{
    args::RequireArgs,
    client::{ClientError, Connection},
    human_only, place, report,
    shown::{harmless, shown},
};

/// Answers with the exit code: 0 when the capability is there, 75 when it is declared absent.
///
/// # Errors
/// When nobody can tell.
pub(super) fn require(args: &RequireArgs) -> anyhow::Result<i32> {
    check_unit(&args.unit)?;
    // A job that hides its cgroup from a container in it still has the variable.
    let announced = env::var_os(SOCKET_VARIABLE).map(PathBuf::from);
    let (meaning, absent) = if announced.is_some() || human_only::inside_job() {
        let socket = announced.unwrap_or_else(|| SOCKET_PATH.into());
        ask(args.socket.as_deref().unwrap_or(&socket), args)?
    } else {
        look_up(args)?
    };
    if !absent {
        return Ok(0);
    }
    report::to_stdout(&format!(
        "CAPGATE_SKIP unit={} capability={} meaning={} why=declared absent\n",
        harmless(&args.unit),
        harmless(&args.name),
        harmless(&meaning)
    ))?;
    Ok(EXIT_ABSENT)
}

/// The job's own daemon.
fn ask(socket: &Path, args: &RequireArgs) -> anyhow::Result<(String, bool)> {
    let what = "tell what the job lacks";
    let request = Request::Capability {
        name: args.name.clone(),
        unit: args.unit.clone(),
    };
    match Connection::open(socket)?.ask(what, &request)? {
        Response::Capability { meaning, absent } => Ok((meaning, absent)),
        _ => Err(ClientError::Unexpected(what).into()),
    }
}

/// The contract's file and the environment.
fn look_up(args: &RequireArgs) -> anyhow::Result<(String, bool)> {
    let root = place::root(args.root.as_deref())?;
    let path = place::contract_path(args.contract.as_deref(), &root);
    let declaration = declaration(&path, &declared()?)?;
    let (meaning, absent) = declaration.look_up(&args.name)?;
    Ok((meaning.to_owned(), absent))
}

/// What is declared absent for the contract at `path`, by a client alone.
fn declaration(path: &Path, client: &BTreeSet<String>) -> anyhow::Result<Declaration> {
    let contract = read(path)?;
    Ok(Declaration::new(Some(&contract), &BTreeSet::new(), client)?)
}

/// The contract at `path`, which has to be there.
///
/// # Errors
/// When it is not, or cannot be used.
pub(super) fn read(path: &Path) -> anyhow::Result<Contract> {
    let file = place::contract(path, true)?;
    let text = file.map(|file| file.text).unwrap_or_default();
    Contract::from_json(text.as_bytes())
        .with_context(|| format!("cannot use the contract {}", shown(path)))
}
