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
    /// Apart from the others, because it comes all the time and is nobody else's.
    child_changed: SignalFd,
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
        let mut others = inherited::held();
        others.remove(Signal::SIGCHLD);
        let mut child = SigSet::empty();
        child.add(Signal::SIGCHLD);
        Ok(Self {
            inherited,
            arrived: SignalFd::with_flags(&others, flags)?,
            child_changed: SignalFd::with_flags(&child, flags)?,
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

    /// Where changes of children are announced.
    pub(crate) fn child_changed(&self) -> BorrowedFd<'_> {
        self.child_changed.as_fd()
    }

    /// Forgets announcements of changes of children. To be called before looking for them.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn take_child_changes(&mut self) -> io::Result<()> {
        while self.child_changed.read_signal()?.is_some() {}
        Ok(())
    }

    /// The next signal that came from outside, without waiting.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn next(&mut self) -> io::Result<Option<c_int>> {
        let own = u32::try_from(unistd::getpid().as_raw()).unwrap_or(0);
        while let Some(info) = self.arrived.read_signal()? {
            // What this process did to itself, such as writing to a closed pipe, is not for the command.
            let by_itself = info.ssi_code <= 0 && info.ssi_pid == own;
            if !by_itself {
                return Ok(c_int::try_from(info.ssi_signo).ok());
            }
        }
        Ok(None)
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

    /// Takes every signal that has come and gives the command those that it did not get as a member of the group; comes back with
    /// all of them.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn forward_all(&mut self, command: Pid) -> io::Result<Vec<c_int>> {
        self.ask(Witness::relieve);
        let mut taken = Vec::new();
        while let Some(signal) = self.next()? {
            self.forward(signal, command);
            taken.push(signal);
        }
        self.ask(Witness::settle);
        Ok(taken)
    }

    fn forward(&mut self, signal: c_int, command: Pid) {
        // The witness has to be asked in any case: what it keeps belongs to this signal.
        let to_the_group = self.ask(|witness| witness.saw(signal)).unwrap_or(false);
        // A command that made a group of its own, as an interactive shell does, gets nothing through this one.
        let same_group = unistd::getpgid(Some(command)) == Ok(unistd::getpgrp());
        if !(to_the_group && same_group) {
            // SAFETY: kill(2) has no memory effects. nix knows no real-time signals, so it is called by number. A command that
            // may not be signalled (sudo) could not have been signalled by the sender either.
            unsafe { libc::kill(command.as_raw(), signal) };
        }
    }

    /// Asks the witness. One that cannot do its work, as when no more processes may be made, is given up: the command then gets a
    /// signal twice rather than not at all, and the job goes on.
    fn ask<T>(&mut self, question: impl FnOnce(&mut Witness) -> io::Result<T>) -> Option<T> {
        let answer = question(self.witness.as_mut()?);
        if answer.is_err() {
            self.witness = None;
        }
        answer.ok()
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
        self.ask(Witness::settle);
        Ok(())
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
