//! One job from its start to its sealed ledger, as the client sees it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    process::Child,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use capgate_common::{
    pathform,
    protocol::{Outcome, Request, Response, Sealed, Start},
};
use nix::{
    errno::Errno,
    fcntl::{self, OFlag},
    libc::c_int,
    poll::{PollFd, PollFlags, poll},
    sys::stat::Mode,
};

use crate::{
    args::Recorder,
    client::{self, ClientError, Connection, poll_timeout},
    enter::{self, Handover, Report},
    local::Local,
    report,
    seal::Seal,
    shown::{harmless, shown},
    signals::Signals,
    supervise::{End, Ending, supervise},
};

/// A job that is to be run.
pub(crate) struct Job<'a> {
    /// Who records it.
    pub(crate) recorder: &'a Recorder,
    /// Its root directory.
    pub(crate) root: &'a Path,
    /// What the daemon is told.
    pub(crate) start: Start,
    /// The contract has capabilities, so that the job may ask the daemon about them.
    pub(crate) asks: bool,
    /// What of the environment it does not get.
    pub(crate) seal: &'a Seal,
    /// The command and its arguments.
    pub(crate) command: &'a [OsString],
}

/// How a job came to its end.
pub(crate) enum Attended {
    /// With a ledger.
    Sealed(Box<Ended>),
    /// Before there could be one, because of this signal.
    Told(c_int),
    /// Not at all: the contract requires these capabilities, which are declared absent. Names and meanings.
    Lacking(BTreeMap<String, String>),
}

/// A job that has been sealed.
pub(crate) struct Ended {
    /// The ledger and what belongs to it.
    pub(crate) sealed: Sealed,
    /// How the command ended.
    pub(crate) end: End,
    /// There was a command that ended; why not has been told else.
    pub(crate) ran: bool,
}

/// Starts the job, waits for its command, has it sealed.
///
/// # Errors
/// One sentence: capgate itself failed, and there is no ledger.
pub(crate) fn attend(job: &Job<'_>, signals: &mut Signals) -> anyhow::Result<Attended> {
    let recorder = job.recorder;
    let local = if recorder.local {
        match Local::start(recorder.probe_set.as_deref(), job.seal.names(), signals)? {
            Ok(local) => Some(local),
            Err(told) => return Ok(Attended::Told(told)),
        }
    } else {
        None
    };
    let socket = local
        .as_ref()
        .map_or(&*recorder.daemon.socket, Local::socket);
    let attended = on_lease(job, socket, signals);
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

fn on_lease(job: &Job<'_>, socket: &Path, signals: &mut Signals) -> anyhow::Result<Attended> {
    let mut lease = Connection::open(socket)?;
    let token = match start(job, &mut lease, signals)? {
        Ok(token) => token,
        Err(instead) => return Ok(instead),
    };
    let announced = job.asks.then(|| std::path::absolute(socket)).transpose();
    let announced = announced.context("cannot find the daemon's socket")?;
    signals
        .start_witness()
        .context("cannot start the helper that watches for signals")?;
    let handover = Handover {
        token,
        announced: announced
            .as_deref()
            .map(|path| pathform::escape(path.as_os_str().as_bytes())),
        sealed: job.seal.texts(),
        shims: job.start.shims.clone(),
    };
    let (mut child, channel) = enter::start(socket, &handover, job.command, signals.inherited)
        .context("cannot start the step that enters the job")?;
    let ending =
        supervise(&child, channel, &mut lease, signals).context("cannot wait for the command")?;
    conclude(&mut child, ending, &mut lease, signals)
}

/// Opens the job; comes back with its token, or with what it came to instead.
fn start(
    job: &Job<'_>,
    lease: &mut Connection,
    signals: &mut Signals,
) -> anyhow::Result<Result<String, Attended>> {
    let what = "start the job";
    let request = Request::Start(Box::new(job.start.clone()));
    let root = open_directory(job.root)?;
    let top = open_directory(Path::new("/"))?;
    lease.send(what, &request, &[root.as_fd(), top.as_fd()])?;
    match answer(lease, signals, what, client::START, 1)? {
        Answer::Told(signal) => Ok(Err(Attended::Told(signal))),
        Answer::Response(Response::Lacking { absent }) => Ok(Err(Attended::Lacking(absent))),
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
