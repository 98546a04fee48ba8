//! `capgate run`: the life of one job, as the client sees it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use capgate_common::{
    pathform,
    protocol::{Outcome, Request, Response, Sealed, Start},
    rules,
    verdict::Verdict,
};
use nix::{
    errno::Errno,
    fcntl::{self, OFlag},
    libc::c_int,
    poll::{PollFd, PollFlags, poll},
    sys::{prctl, stat::Mode},
};

use crate::{
    args::{Format, RunArgs},
    base::{Basis, Wanted},
    client::{self, ClientError, Connection, poll_timeout},
    enter::{self, Report},
    local::Local,
    output::Output,
    place,
    report::{self, Subject},
    shown::{harmless, shown},
    signals::{self, Signals},
    supervise::{End, Ending, supervise},
};

/// Most bytes of the command line that are sent along for display.
const ARGV_BYTES: usize = 64 << 10;

/// Runs the job and comes back with the exit code.
///
/// # Errors
/// One sentence: capgate itself failed, and no ledger was written.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<i32> {
    let plan = Plan::make(args)?;
    let mut signals = Signals::hold().context("cannot hold signals back")?;
    // The lease is worth as much as the job: no process of this user may take it out of this one.
    prctl::set_dumpable(false).context("cannot protect the client")?;
    match attend(args, &plan, &mut signals)? {
        Attended::Sealed(ended) => plan.deliver(args, &ended),
        Attended::Told(signal) => {
            report::to_stderr(&format!(
                "capgate: told to end by {}; no ledger was written\n",
                signals::name(signal)
            ));
            Ok(128 + signal)
        }
    }
}

/// How a job came to its end.
enum Attended {
    /// With a ledger.
    Sealed(Box<Ended>),
    /// Before there could be one, because of this signal.
    Told(c_int),
}

/// A job that has been sealed.
struct Ended {
    /// The ledger and what belongs to it.
    sealed: Sealed,
    /// How the command ended.
    end: End,
    /// There was a command that ended; why not has been told else.
    ran: bool,
}

/// Everything that is settled before anything of the job runs.
struct Plan {
    root: PathBuf,
    basis: Option<Basis>,
    ledger: Output,
    evidence: Option<Output>,
    report: Option<Output>,
}

impl Plan {
    fn make(args: &RunArgs) -> anyhow::Result<Self> {
        let root = place::root(args.root.as_deref())?;
        let path = place::contract_path(args.contract.as_deref(), &root);
        let needed = !args.record || args.contract.is_some() || args.base.is_some();
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
        let report = output("report", &args.report)?;
        let outputs = [
            Some(&*ledger_path),
            args.evidence.as_deref(),
            args.report.as_deref(),
        ];
        let outputs: Vec<&Path> = outputs.into_iter().flatten().collect();
        let basis = Basis::read(&Wanted {
            root: &root,
            path: &path,
            base: args.base.as_deref(),
            needed,
            outputs: &outputs,
        })?;
        Ok(Self {
            root,
            basis,
            // Without a contract there may be no directory for the ledger; then the contract is what to tell of.
            ledger: ledger?,
            evidence,
            report,
        })
    }

    fn start(&self, args: &RunArgs) -> anyhow::Result<Start> {
        let cwd = std::env::current_dir().context("cannot find the working directory")?;
        let basis = self.basis.as_ref();
        let tokens = basis.map(|basis| rules::tokens(&basis.contract));
        let env: BTreeMap<String, String> = tokens
            .into_iter()
            .flatten()
            .filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)))
            .collect();
        Ok(Start {
            argv: for_display(&args.command),
            cwd: pathform::escape(cwd.as_os_str().as_bytes()),
            contract: basis.map(|basis| basis.text.clone()),
            contract_source: basis.map(|basis| basis.source.clone()),
            contract_path: basis.map(|basis| pathform::escape(basis.path.as_os_str().as_bytes())),
            commit_rules: basis.and_then(|basis| basis.rules.clone()).map(Box::new),
            record: args.record,
            env,
            labels: args.labels.clone(),
            tmpdir: std::env::var("TMPDIR").ok().filter(|it| !it.is_empty()),
        })
    }

    /// Writes what the user gets, and comes back with the exit code.
    fn deliver(&self, args: &RunArgs, ended: &Ended) -> anyhow::Result<i32> {
        let Ended { sealed, end, ran } = ended;
        let exit_code = exit_code(sealed, *end);
        self.ledger.write(sealed.ledger.to_json().as_bytes())?;
        if let Some(evidence) = &self.evidence {
            evidence.write(sealed.evidence.to_json().as_bytes())?;
        }
        let proposal = self
            .basis
            .as_ref()
            .and_then(|basis| basis.proposal.as_ref());
        let subject = Subject {
            proposal,
            ..Subject::of_job(sealed, exit_code)
        };
        let text = subject.write(args.format);
        match (&self.report, args.format) {
            (Some(output), _) => output.write(report::plain(&text).as_bytes())?,
            (None, Format::Human) if !ran => {}
            (None, Format::Human) => {
                report::to_stderr(&format!("{text}  ledger: {}\n", shown(self.ledger.path())))
            }
            (None, format) => {
                // A workflow command begins a line, and the job may have left one open.
                let start = if format == Format::Github { "\n" } else { "" };
                report::to_stdout(&format!("{start}{text}"))
                    .context("cannot write the report to stdout")?;
            }
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
fn for_display(command: &[OsString]) -> Vec<String> {
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

/// Starts the job, waits for its command, has it sealed.
fn attend(args: &RunArgs, plan: &Plan, signals: &mut Signals) -> anyhow::Result<Attended> {
    let local = if args.local {
        match Local::start(args.probe_set.as_deref(), signals)? {
            Ok(local) => Some(local),
            Err(told) => return Ok(Attended::Told(told)),
        }
    } else {
        None
    };
    let socket = local.as_ref().map_or(&*args.daemon.socket, Local::socket);
    let attended = on_lease(args, plan, socket, signals);
    match (local, attended) {
        // A private daemon that ended may have said why.
        (Some(local), Err(error)) => Err(local.explain(error)),
        (Some(local), Ok(attended)) => {
            local.end();
            Ok(attended)
        }
        (None, attended) => attended,
    }
}

fn on_lease(
    args: &RunArgs,
    plan: &Plan,
    socket: &Path,
    signals: &mut Signals,
) -> anyhow::Result<Attended> {
    let mut lease = Connection::open(socket)?;
    let token = match start(args, plan, &mut lease, signals)? {
        Ok(token) => token,
        Err(told) => return Ok(Attended::Told(told)),
    };
    signals
        .start_witness()
        .context("cannot start the helper that watches for signals")?;
    let (mut child, channel) = enter::start(socket, &token, &args.command, signals.inherited)
        .context("cannot start the step that enters the job")?;
    let ending =
        supervise(&child, channel, &mut lease, signals).context("cannot wait for the command")?;
    conclude(&mut child, ending, &mut lease, signals)
}

/// Opens the job; comes back with its token, or with the signal that came in between.
fn start(
    args: &RunArgs,
    plan: &Plan,
    lease: &mut Connection,
    signals: &mut Signals,
) -> anyhow::Result<Result<String, c_int>> {
    let what = "start the job";
    let request = Request::Start(Box::new(plan.start(args)?));
    let root = open_directory(&plan.root)?;
    let top = open_directory(Path::new("/"))?;
    lease.send(what, &request, &[root.as_fd(), top.as_fd()])?;
    match answer(lease, signals, what, client::START, 1)? {
        Answer::Told(signal) => Ok(Err(signal)),
        Answer::Response(Response::Started { notes, token, .. }) => {
            for note in notes {
                report::to_stderr(&format!("capgate: {}\n", harmless(&note)));
            }
            Ok(Ok(token))
        }
        Answer::Response(_) => Err(ClientError::Unexpected(what).into()),
    }
}

fn open_directory(path: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    fcntl::open(path, flags, Mode::empty())
        .with_context(|| format!("cannot open the directory {}", shown(path)))
}

/// Has the job sealed, now that its command has ended.
fn conclude(
    child: &mut Child,
    ending: Ending,
    lease: &mut Connection,
    signals: &mut Signals,
) -> anyhow::Result<Attended> {
    if let Some(lost) = ending.lost {
        return Err(anyhow!(lost).context("the job was ended, because nobody records it any more"));
    }
    let mut entered = false;
    let mut no_command = None;
    for report in ending.reports {
        match report {
            Report::Entered => entered = true,
            Report::Refused { sentence } => bail!(sentence),
            Report::NoCommand { missing, sentence } => {
                report::to_stderr(&format!("capgate: {sentence}\n"));
                no_command = Some(missing);
            }
        }
    }
    match (entered, ending.end) {
        (true, _) => {}
        (false, End::Signaled(signal)) => return Ok(Attended::Told(signal)),
        (false, _) => {
            bail!("the step that enters the job ended before it was done; run capgate doctor")
        }
    }
    if ending.end == End::Overdue {
        child.kill().context("cannot kill the command")?;
    }
    let what = "seal the job";
    let outcome = outcome(ending.end, ending.told, no_command);
    lease.send(what, &Request::Finish { outcome }, &[])?;
    let sealed = match answer(lease, signals, what, client::SEAL, 2)? {
        Answer::Response(Response::Sealed(sealed)) => sealed,
        Answer::Response(_) => return Err(ClientError::Unexpected(what).into()),
        Answer::Told(signal) => return Ok(Attended::Told(signal)),
    };
    if ending.end == End::Overdue {
        child.wait().context("cannot wait for the command")?;
    }
    Ok(Attended::Sealed(Box::new(Ended {
        sealed: *sealed,
        end: ending.end,
        ran: no_command.is_none(),
    })))
}

/// How the command ended, as the daemon is told. A job that was told to end did not do all of its work, whatever its last status;
/// but a command that lives with SIGINT, as an interactive one does, and ends well, was not interrupted.
fn outcome(end: End, told: Option<c_int>, no_command: Option<bool>) -> Outcome {
    match (no_command, told, end) {
        (Some(true), _, _) => Outcome::NotFound,
        (Some(false), _, _) => Outcome::NotExecutable,
        (None, Some(libc::SIGINT), End::Exited(0)) => Outcome::Exited(0),
        (None, Some(signal), _) => Outcome::Interrupted(signal),
        (None, None, End::Exited(status)) => Outcome::Exited(status),
        (None, None, End::Signaled(signal)) => Outcome::Signaled(signal),
        // Only SIGTERM makes a command overdue.
        (None, None, End::Overdue) => Outcome::Interrupted(libc::SIGTERM),
    }
}

/// What came first.
enum Answer {
    /// The daemon's answer.
    Response(Response),
    /// Enough signals that ask to end.
    Told(c_int),
}

/// Waits for an answer; gives up at the `patience`-th signal that asks to end.
fn answer(
    lease: &mut Connection,
    signals: &mut Signals,
    what: &'static str,
    limit: Duration,
    patience: usize,
) -> anyhow::Result<Answer> {
    let deadline = Instant::now() + limit;
    let mut told = 0;
    loop {
        if let Some(response) = lease.received(what)? {
            return Ok(Answer::Response(response));
        }
        while let Some(signal) = signals.next_ending().context("cannot read signals")? {
            told += 1;
            if told >= patience {
                return Ok(Answer::Told(signal));
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ClientError::Silent { what, limit }.into());
        }
        let mut fds = [
            PollFd::new(lease.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, poll_timeout(Some(left))) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(cause) => return Err(io::Error::from(cause)).context("cannot wait for capgated"),
        }
    }
}
