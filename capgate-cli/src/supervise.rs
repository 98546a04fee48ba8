//! Waiting for the command: until it ends, or the daemon or the caller wants it to.

use std::{
    io::{self, Read},
    os::{
        fd::AsFd,
        unix::{net::UnixStream, process::ExitStatusExt},
    },
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc::c_int,
    poll::{PollFd, PollFlags, poll},
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::{
    client::{ClientError, Connection, poll_timeout},
    enter::Report,
    signals::{Signals, asks_to_end},
};

/// How long a command may take to end after SIGTERM before the job is killed. What runners give is of this size.
const TERM_GRACE: Duration = Duration::from_secs(10);

/// How the wrapped process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// Not yet: it outlived SIGTERM for too long, and is to be killed.
    Overdue,
}

/// What there is to know when the wait is over.
#[derive(Debug)]
pub(crate) struct Ending {
    /// How the process ended.
    pub(crate) end: End,
    /// The last signal that asked the client to end.
    pub(crate) told: Option<c_int>,
    /// Everything that the enter step reported.
    pub(crate) reports: Vec<Report>,
    /// Why the daemon does not record any more.
    pub(crate) lost: Option<ClientError>,
}

/// Waits for the command.
///
/// # Errors
/// When the kernel refuses what a wrapper needs.
pub(crate) fn supervise(
    child: &Child,
    channel: UnixStream,
    lease: &mut Connection,
    signals: &mut Signals,
) -> io::Result<Ending> {
    channel.set_nonblocking(true)?;
    let mut watch = Watch {
        command: Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?),
        channel: Some(channel),
        heard: Vec::new(),
        told: None,
        lost: None,
        deadline: None,
    };
    let end = loop {
        if let Some(end) = watch.look(signals)? {
            break end;
        }
        watch.wait(lease, signals)?;
    };
    watch.listen()?;
    Ok(Ending {
        end,
        told: watch.told,
        reports: reports(&watch.heard),
        lost: watch.lost,
    })
}

struct Watch {
    command: Pid,
    channel: Option<UnixStream>,
    heard: Vec<u8>,
    told: Option<c_int>,
    lost: Option<ClientError>,
    /// When the command must have ended.
    deadline: Option<Instant>,
}

impl Watch {
    /// Takes changes of the command's state; comes back with its end.
    fn look(&mut self, signals: &mut Signals) -> io::Result<Option<End>> {
        signals.take_child_changes()?;
        while let Some(status) = change(self.command)? {
            if let Some(status) = status.code() {
                return Ok(Some(End::Exited(status)));
            }
            if let Some(signal) = status.signal() {
                return Ok(Some(End::Signaled(signal)));
            }
            if let Some(signal) = status.stopped_signal() {
                signals.stop_like(Signal::try_from(signal)?)?;
            }
        }
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            if self.lost.is_none() {
                return Ok(Some(End::Overdue));
            }
            // Nobody else is left to do it.
            end(self.command, Signal::SIGKILL)?;
            self.deadline = None;
        }
        Ok(None)
    }

    /// Waits for anything to happen and deals with it.
    fn wait(&mut self, lease: &mut Connection, signals: &mut Signals) -> io::Result<()> {
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let told = {
            let mut fds = vec![
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.child_changed(), PollFlags::POLLIN),
            ];
            if self.lost.is_none() {
                fds.push(PollFd::new(lease.as_fd(), PollFlags::POLLIN));
            }
            if let Some(channel) = &self.channel {
                fds.push(PollFd::new(channel.as_fd(), PollFlags::POLLIN));
            }
            match poll(&mut fds, poll_timeout(left)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(cause) => return Err(cause.into()),
            }
            fds[0].any().unwrap_or(false)
        };
        if told {
            for signal in signals.forward_all(self.command)? {
                self.hear(signal);
            }
        }
        self.listen()?;
        if self.lost.is_none() {
            self.mind(lease)?;
        }
        Ok(())
    }

    /// Remembers a signal that asks to end.
    fn hear(&mut self, signal: c_int) {
        if asks_to_end(signal) {
            self.told = Some(signal);
            if signal == libc::SIGTERM {
                self.deadline.get_or_insert(Instant::now() + TERM_GRACE);
            }
        }
    }

    /// Takes what the enter step says.
    fn listen(&mut self) -> io::Result<()> {
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        match channel.read_to_end(&mut self.heard) {
            Ok(_) => self.channel = None,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The step ended with words of the client unread; what it said itself has been read.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.channel = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Looks after the lease. The daemon says nothing on it until it is asked to seal, so whatever comes is its end, and a job
    /// that is not recorded any more is not worth to go on.
    fn mind(&mut self, lease: &mut Connection) -> io::Result<()> {
        let what = "record the job";
        self.lost = match lease.received(what) {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => Some(ClientError::Unexpected(what)),
            Err(error) => Some(error),
        };
        self.deadline = Some(Instant::now() + TERM_GRACE);
        end(self.command, Signal::SIGTERM)
    }
}

/// The next change of a child's state, without waiting. By the plain call: nix has no word for a death by a real-time signal.
fn change(child: Pid) -> io::Result<Option<ExitStatus>> {
    let mut status = 0;
    let flags = libc::WNOHANG | libc::WUNTRACED;
    // SAFETY: `status` is valid for the kernel to write.
    match unsafe { libc::waitpid(child.as_raw(), &raw mut status, flags) } {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Some(ExitStatus::from_raw(status))),
    }
}

/// Ends a process, unless it has ended or may not be signalled.
fn end(process: Pid, signal: Signal) -> io::Result<()> {
    match signal::kill(process, signal) {
        // Set-user-id programs (sudo) take signals from root only. The daemon, or its successor, ends them.
        Ok(()) | Err(Errno::EPERM | Errno::ESRCH) => Ok(()),
        Err(cause) => Err(cause.into()),
    }
}

/// The messages in what was heard; a half one, of a step that was killed, is none.
fn reports(heard: &[u8]) -> Vec<Report> {
    heard
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}
