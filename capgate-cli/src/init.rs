//! `capgate init`: a first contract, from runs of a command here or from ledgers that were recorded elsewhere.
//!
//! What it writes is a proposal: patterns come with the reason for them, and connections are not allowed by themselves.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use capgate_common::{
    contract, escapes, evidence::Evidence, ledger::Ledger, pathform, protocol::Start,
    verdict::Verdict,
};
use nix::{
    sys::prctl,
    unistd::{User, gethostname, getuid},
};

use crate::{
    args::InitArgs,
    attend::{Attended, Job, attend},
    capability,
    check::read_ledger,
    client::ClientError,
    human_only,
    output::Output,
    place, report,
    run::for_display,
    seal::Seal,
    shown::{harmless, shown},
    signals::{self, Signals},
};

use draft::Draft;
use looks::Host;

mod draft;
mod gitignore;
mod looks;
mod moving;
mod net;
mod tell;
mod tidy;

/// One run of the job.
#[derive(Debug)]
pub(crate) struct Seen {
    /// What it did.
    pub(crate) ledger: Ledger,
    /// Who did it, where that is known.
    pub(crate) evidence: Option<Evidence>,
}

/// Writes the contract and shows what is to be looked at.
///
/// # Errors
/// When this is no place to do so, when a run is no example of a good one, when there is a contract already.
pub(crate) fn init(args: &InitArgs) -> anyhow::Result<i32> {
    human_only::check("write a contract")?;
    let root = place::root(args.root.as_deref())?;
    let path = place::contract_path(args.contract.as_deref(), &root);
    let there = fs::symlink_metadata(&path).is_ok();
    if there && !args.force {
        bail!(
            "there is a contract at {} already; capgate accept changes it, and --force writes it anew",
            shown(&path)
        );
    }
    let runs = if args.from.is_empty() {
        match record(args, &root, &path)? {
            Ok(runs) => runs,
            Err(signal) => {
                report::to_stderr(&format!(
                    "capgate: told to end by {}; no contract was written\n",
                    signals::name(signal)
                ));
                return Ok(128 + signal);
            }
        }
    } else {
        read(&args.from)?
    };
    let draft = Draft::new(&runs, &host(), args.allow_seen);
    write(&path, &draft.to_json()?)?;
    let ignored = gitignore::add(&root, &place::ledger_path(None, Some(&path), &root));
    report::to_stdout(&tell::text(&path, &draft, &runs, &ignored))?;
    Ok(0)
}

/// Runs the command; or comes back with the signal that asked to end.
fn record(
    args: &InitArgs,
    root: &Path,
    path: &Path,
) -> anyhow::Result<Result<Vec<Seen>, nix::libc::c_int>> {
    let mut signals = Signals::hold().context("cannot hold signals back")?;
    // As `run` does: the lease is worth as much as the job.
    prctl::set_dumpable(false).context("cannot protect the client")?;
    let start = start(args, path)?;
    let mut runs = Vec::new();
    for number in 1..=args.runs {
        report::to_stderr(&format!("capgate: run {number} of {}\n", args.runs));
        let job = Job {
            recorder: &args.recorder,
            root,
            start: start.clone(),
            asks: false,
            seal: &Seal::default(),
            command: &args.command,
        };
        let ended = match attend(&job, &mut signals)? {
            Attended::Sealed(ended) => ended,
            Attended::Told(signal) => return Ok(Err(signal)),
            Attended::Lacking(_) => {
                return Err(ClientError::Unexpected("record without a contract").into());
            }
        };
        let name = format!("run {number}");
        if !ended.ran {
            bail!("cannot write a contract from {name}: the command could not be run");
        }
        is_example(&ended.sealed.ledger, &name)?;
        runs.push(Seen {
            ledger: ended.sealed.ledger,
            evidence: Some(ended.sealed.evidence),
        });
    }
    Ok(Ok(runs))
}

/// What the daemon is told: to record, and to see whether the job writes the file that is to be its contract.
fn start(args: &InitArgs, path: &Path) -> anyhow::Result<Start> {
    let cwd = std::env::current_dir().context("cannot find the working directory")?;
    let path = std::path::absolute(path)
        .with_context(|| format!("cannot find the place of {}", shown(path)))?;
    Ok(Start {
        argv: for_display(&args.command),
        cwd: pathform::escape(cwd.as_os_str().as_bytes()),
        contract: None,
        contract_source: None,
        contract_path: Some(pathform::escape(path.as_os_str().as_bytes())),
        commit_rules: None,
        record: true,
        enforce: false,
        no_network: false,
        env: Default::default(),
        labels: vec!["init".to_owned()],
        tmpdir: std::env::var("TMPDIR").ok().filter(|it| !it.is_empty()),
        absent: capability::declared()?,
        sealed: Vec::new(),
        shims: None,
    })
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Seen>> {
    let one = |path: &PathBuf| {
        let ledger = read_ledger(path)?;
        is_example(&ledger, &shown(path))?;
        Ok(Seen {
            ledger,
            evidence: None,
        })
    };
    paths.iter().map(one).collect()
}

/// Refuses what nobody would want every run to be like.
fn is_example(ledger: &Ledger, name: &str) -> anyhow::Result<()> {
    let recording = &ledger.recording;
    let has = |word| ledger.verdict.contains(&word);
    if ledger.verdict.is_empty() || has(Verdict::JobFailed) || has(Verdict::CpuKill) {
        bail!("cannot write a contract from {name}: the job failed; make it succeed first");
    }
    if !recording.lost.is_empty() {
        let kinds: Vec<&str> = recording.lost.keys().map(String::as_str).collect();
        bail!(
            "cannot write a contract from {name}: the recording is not complete, {} was lost; docs/limits.md says why",
            harmless(&kinds.join(", "))
        );
    }
    let never = |entry: &&String| escapes::acceptable_as(entry).is_none();
    if let Some(entry) = recording.escapes.iter().find(never) {
        bail!(
            "cannot write a contract from {name}: {}, which no contract can allow",
            harmless(&escapes::sentence(entry))
        );
    }
    Ok(())
}

fn host() -> Host {
    let uid = getuid();
    let user = User::from_uid(uid).ok().flatten();
    Host {
        name: gethostname()
            .ok()
            .and_then(|name| name.into_string().ok())
            .unwrap_or_default(),
        user: user.map(|user| user.name).unwrap_or_default(),
        uid: uid.as_raw(),
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if text.len() > contract::MAX_BYTES {
        bail!(
            "cannot write the contract {}: it would have {} bytes, more than the {} that are read; let the job write less, \
             or into fewer places",
            shown(path),
            text.len(),
            contract::MAX_BYTES
        );
    }
    if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create the directory {}", shown(directory)))?;
    }
    // Where the old contract is a link, it is the file behind it that is written anew.
    let file = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    Output::find("contract", &file)?.replace(text.as_bytes())?;
    Ok(())
}

/// The members of all runs.
pub(crate) fn all<'a>(
    runs: &'a [Seen],
    members: impl Fn(&'a Ledger) -> &'a BTreeSet<String>,
) -> BTreeSet<String> {
    runs.iter()
        .flat_map(|run| members(&run.ledger))
        .cloned()
        .collect()
}
