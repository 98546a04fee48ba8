//! The signals that reach the client while it wraps a command: read one by one, and forwarded when the command has not got them.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use nix::{
    errno::Errno,
    libc::c_int,
    sys::{
        signal::{self, SaFlags, SigAction, SigHandler, SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::{self, Pid},
};

use crate::{
    inherited::{self, Inherited},
    witness::Witness,
};

/// Signals that ask a process to end.
const ENDING: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// All signals of this process, held back and read here.
pub(crate) struct Signals {
    /// What the command has to find.
    pub(crate) inherited: Inherited,
    arrived: SignalFd,
    witness: Option<Witness>,
}

impl Signals {
    /// Holds signals back from here on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn hold() -> io::Result<Self> {
        let inherited = Inherited::hold_signals()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            inherited,
            arrived: SignalFd::with_flags(&inherited::held(), flags)?,
            witness: None,
        })
    }

    /// Starts the process that tells what the group got. It has to be younger than this process and older than the command.
    ///
    /// # Errors
    /// When there is no process.
    pub(crate) fn start_witness(&mut self) -> io::Result<()> {
        self.witness = Some(Witness::start()?);
        Ok(())
    }

    /// The next signal that came from outside, without waiting. SIGCHLD is not among them: whoever waits for a child looks.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn next(&mut self) -> io::Result<Option<c_int>> {
        let own = u32::try_from(unistd::getpid().as_raw()).unwrap_or(0);
        loop {
            let Some(info) = self.arrived.read_signal()? else {
                return Ok(None);
            };
            let signal = c_int::try_from(info.ssi_signo).unwrap_or(0);
            // What this process did to itself, such as writing to a closed pipe, is not for the command.
            let by_itself = info.ssi_code <= 0 && info.ssi_pid == own;
            if signal != libc::SIGCHLD && !by_itself {
                return Ok(Some(signal));
            }
        }
    }

    /// The next signal that asks this process to end and that its caller did not have ignored.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn next_ending(&mut self) -> io::Result<Option<c_int>> {
        while let Some(signal) = self.next()? {
            if asks_to_end(signal) {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }

    /// Gives `signal` to the command unless it got it as a member of the group.
    ///
    /// # Errors
    /// When the witness cannot be asked.
    pub(crate) fn forward(&mut self, signal: c_int, command: Pid) -> io::Result<()> {
        // The witness has to be asked in any case: what it keeps belongs to this signal.
        let to_the_group = match &mut self.witness {
            Some(witness) => witness.saw(signal)?,
            None => false,
        };
        // A command that made a group of its own, as an interactive shell does, gets nothing through this one.
        let same_group = unistd::getpgid(Some(command)) == Ok(unistd::getpgrp());
        if !(to_the_group && same_group) {
            // SAFETY: kill(2) has no memory effects. nix knows no real-time signals, so it is called by number. A command that
            // may not be signalled (sudo) could not have been signalled by the sender either.
            unsafe { libc::kill(command.as_raw(), signal) };
        }
        Ok(())
    }

    /// Stops this process as the command was stopped, so that whoever waits for it sees a stopped job; comes back when it is
    /// continued.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn stop_like(&mut self, signal: Signal) -> io::Result<()> {
        if signal != Signal::SIGSTOP {
            let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
            // SAFETY: the default disposition runs no code of ours.
            unsafe { signal::sigaction(signal, &default) }?;
        }
        // While it is held back, a copy that came with the group and this one are one.
        signal::kill(unistd::getpid(), signal)?;
        let mut only = SigSet::empty();
        only.add(signal);
        only.thread_unblock()?;
        // Stopped here. In an orphaned group, where nobody could continue it, the kernel lets it go on at once.
        only.thread_block()?;
        // That copy was the group's, if it was anybody's, and this process has answered to it.
        match &mut self.witness {
            Some(witness) => witness.forget(signal as c_int),
            None => Ok(()),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

/// Whether a signal asks this process to end, and its caller did not have it ignored.
pub(crate) fn asks_to_end(signal: c_int) -> bool {
    ENDING.contains(&signal) && !Inherited::ignores(signal)
}

/// The name of a signal: `SIGTERM`.
pub(crate) fn name(signal: c_int) -> String {
    Signal::try_from(signal).map_or_else(|_: Errno| format!("signal {signal}"), |it| it.to_string())
}
