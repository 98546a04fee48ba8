//! `capgate run`: the life of one job, as the client sees it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use capgate_common::{
    pathform,
    protocol::{Sealed, Start},
    refuse::Refusal,
    rules,
    verdict::{EXIT_INCOMPLETE, Verdict},
};
use nix::sys::prctl;

use crate::{
    args::{Format, RunArgs},
    attend::{Attended, Ended, Job, attend},
    base::{Basis, Wanted},
    capability,
    output::Output,
    place,
    report::{self, Delivery, Files, Subject},
    seal::Seal,
    shims::Shims,
    shown::shown,
    signals::{self, Signals},
    supervise::End,
    tracked::Tracked,
};

/// Most bytes of the command line that are sent along for display.
const ARGV_BYTES: usize = 64 << 10;

/// Runs the job and comes back with the exit code.
///
/// # Errors
/// One sentence: capgate itself failed, and no ledger was written.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<i32> {
    let plan = Plan::make(args)?;
    if let Some(line) = plan.seal.line() {
        report::to_stderr(&format!("capgate: {line}\n"));
    }
    let mut signals = Signals::hold().context("cannot hold signals back")?;
    // The lease is worth as much as the job: no process of this user may take it out of this one.
    prctl::set_dumpable(false).context("cannot protect the client")?;
    let shims = plan.shims()?;
    let job = Job {
        recorder: &args.recorder,
        root: &plan.root,
        asks: plan.asks(),
        start: plan.start(args, shims.as_ref())?,
        seal: &plan.seal,
        command: &args.command,
    };
    match attend(&job, &mut signals)? {
        Attended::Sealed(ended) => plan.deliver(&ended),
        Attended::Told(signal) => {
            report::to_stderr(&format!(
                "capgate: told to end by {}; no ledger was written\n",
                signals::name(signal)
            ));
            Ok(128 + signal)
        }
        Attended::Lacking(absent) => {
            capability::tell_lacking(&absent)?;
            Ok(EXIT_INCOMPLETE)
        }
    }
}

/// Everything that is settled before anything of the job runs.
struct Plan {
    root: PathBuf,
    basis: Option<Basis>,
    seal: Seal,
    ledger: Output,
    evidence: Option<Output>,
    report: Delivery,
}

impl Plan {
    fn make(args: &RunArgs) -> anyhow::Result<Self> {
        let root = place::root(args.root.as_deref())?;
        let path = place::contract_path(args.contract.as_deref(), &root);
        let judged = !args.record && !args.no_network;
        let needed = judged || args.enforce || args.contract.is_some() || args.base.is_some();
        // Old ledgers go first: whatever fails from here on must not leave one that looks like this run's.
        let beside = needed || path.exists();
        let ledger_path =
            place::ledger_path(args.ledger.as_deref(), beside.then_some(&path), &root);
        let output = |what, path: &Option<PathBuf>| {
            path.as_deref()
                .map(|path| Output::prepare(what, path))
                .transpose()
        };
        let ledger = Output::prepare("ledger", &ledger_path);
        let evidence = output("evidence", &args.evidence)?;
        let report = Delivery::prepare(&args.reporting)?;
        let outputs = [
            Some(&*ledger_path),
            args.evidence.as_deref(),
            args.reporting.report.as_deref(),
        ];
        let outputs: Vec<&Path> = outputs.into_iter().flatten().collect();
        let basis = Basis::read(&Wanted {
            root: &root,
            path: &path,
            base: args.base.as_deref(),
            needed,
            outputs: &outputs,
        })?;
        let sealed = basis.as_ref().map(|basis| &*basis.contract.seal_env);
        let seal = Seal::read(sealed.unwrap_or_default(), args.seal_only.as_deref())?;
        Ok(Self {
            root,
            basis,
            seal,
            // Without a contract there may be no directory for the ledger; then the contract is what to tell of.
            ledger: ledger?,
            evidence,
            report,
        })
    }

    /// Whether the job may ask about capabilities of its contract.
    fn asks(&self) -> bool {
        let contract = self.basis.as_ref().map(|basis| &basis.contract);
        contract.is_some_and(|contract| contract.capabilities.is_some())
    }

    /// The programs that refuse, when the contract asks for them.
    fn shims(&self) -> anyhow::Result<Option<Shims>> {
        let contract = self.basis.as_ref().map(|basis| &basis.contract);
        contract
            .filter(|contract| contract.refuse_shims)
            .map(|contract| Shims::make(&contract.refuse))
            .transpose()
    }

    fn start(&self, args: &RunArgs, shims: Option<&Shims>) -> anyhow::Result<Start> {
        let cwd = std::env::current_dir().context("cannot find the working directory")?;
        let basis = self.basis.as_ref();
        let tokens = basis.map(|basis| rules::tokens(&basis.contract));
        let mut env: BTreeMap<String, String> = tokens
            .into_iter()
            .flatten()
            .filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)))
            .collect();
        // Where the programs are that must not run.
        if basis.is_some_and(|basis| basis.contract.refuse.iter().any(Refusal::is_program))
            && let Some(path) = std::env::var_os("PATH")
        {
            env.insert("PATH".to_owned(), path.to_string_lossy().into_owned());
        }
        Ok(Start {
            argv: for_display(&args.command),
            cwd: pathform::escape(cwd.as_os_str().as_bytes()),
            contract: basis.map(|basis| basis.text.clone()),
            contract_source: basis.map(|basis| basis.source.clone()),
            contract_path: basis.map(|basis| pathform::escape(basis.path.as_os_str().as_bytes())),
            commit_rules: basis.and_then(|basis| basis.rules.clone()).map(Box::new),
            record: args.record,
            enforce: args.enforce,
            no_network: args.no_network,
            env,
            labels: args.labels.clone(),
            tmpdir: std::env::var("TMPDIR").ok().filter(|it| !it.is_empty()),
            absent: capability::declared()?,
            sealed: self.seal.escaped(),
            shims: shims.map(Shims::escaped),
        })
    }

    /// Writes what the user gets, and comes back with the exit code.
    fn deliver(self, ended: &Ended) -> anyhow::Result<i32> {
        let Ended { sealed, end, ran } = ended;
        let exit_code = exit_code(sealed, *end);
        self.ledger.write(sealed.ledger.to_json().as_bytes())?;
        if let Some(evidence) = &self.evidence {
            evidence.write(sealed.evidence.to_json().as_bytes())?;
        }
        let basis = self.basis.as_ref();
        let commit = basis.and_then(|basis| basis.commit.as_deref());
        let tracked = Tracked::read(&sealed.judgement, &self.root, commit);
        let contract = basis.map(|basis| &*basis.path);
        let subject = Subject {
            proposal: basis.and_then(|basis| basis.proposal.as_ref()),
            files: Some(&Files::new(&self.root, self.ledger.path(), contract)),
            tracked: tracked.as_ref(),
            ..Subject::of_job(sealed, exit_code)
        };
        if !self.report.is_talk() {
            self.report.deliver(&subject)?;
        } else if *ran || sealed.ledger.verdict.contains(&Verdict::Reach) {
            // Why a command did not run was said; a reach is worth a report all the same.
            let text = subject.write(Format::Human);
            report::to_stderr(&format!("{text}  ledger: {}\n", shown(self.ledger.path())));
        }
        Ok(exit_code)
    }
}

/// The exit code of the table of verdicts; a job that failed has its command's own, also when it was told to end.
fn exit_code(sealed: &Sealed, end: End) -> i32 {
    let failed = sealed.judgement.verdict.first() == Some(&Verdict::JobFailed);
    match end {
        End::Exited(status) if failed && status != 0 => status,
        End::Signaled(signal) if failed => 128 + signal,
        _ => sealed.judgement.exit_code,
    }
}

/// The command line as others are shown it: bounded, since a request is.
pub(crate) fn for_display(command: &[OsString]) -> Vec<String> {
    let mut left = ARGV_BYTES;
    let mut shown = Vec::new();
    for argument in command {
        let mut argument = argument.to_string_lossy().into_owned();
        if argument.len() > left {
            argument.truncate(argument.floor_char_boundary(left));
            argument.push('…');
            shown.push(argument);
            break;
        }
        left = left.saturating_sub(argument.len() + 1);
        shown.push(argument);
    }
    shown
}
