//! Tells a signal that the whole process group got from one that only this process got.
//!
//! The command runs in this process's group, so that the terminal reaches it directly. A signal to the group (a key on the
//! terminal, `kill -- -PGID`, a service manager that signals everyone) is then already with the command and must not be
//! forwarded; a signal to this process alone must. Its origin does not tell them apart. So a second process of ours sits in
//! the group with every signal held back: what is pending there too went to the group.
//!
//! The kernel signals a group's members from the youngest to the oldest, under one lock. The witness is younger than this
//! process: when this process has a signal of the group's, the witness has it already, scheduled or not.

use std::{
    convert::Infallible,
    ffi::CStr,
    fs, io,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc::c_int,
    poll::poll,
    sys::{
        prctl,
        signal::{self, Signal},
        wait::waitpid,
    },
    unistd::{self, ForkResult, Pid},
};

/// This very program, even when its file has been replaced since it started.
const PROGRAM: &CStr = c"/proc/self/exe";
/// The name of the witness in process lists. It must not match the client's, or `pkill capgate` would look like a signal to
/// the group.
const NAME: &CStr = c"signal-witness";
/// How the witness is asked for, see [`crate::args::WITNESS`].
const ARGUMENT: &CStr = c"__witness";
/// How long a service manager, which signals one process after the other, may take from this process to the witness. A signal to
/// this process alone is forwarded that much later.
const GRACE: Duration = Duration::from_millis(20);
/// How often the witness is looked at meanwhile, in milliseconds.
const TICK: u8 = 1;

/// A process in the group that keeps the signals it gets.
///
/// Standard signals of one kind that wait together are one, here as there. So that a second one is not lost in the first, a fresh
/// witness takes over *before* this process takes its signals: then whatever comes later waits for both again.
pub(crate) struct Witness {
    process: Pid,
    /// Bit N-1: an earlier witness got signal N, and this process has not asked for it yet.
    seen: u64,
}

impl Witness {
    /// Starts a witness in this process's group. All signals must be held back already.
    ///
    /// # Errors
    /// When there is no process.
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self {
            process: fork_witness()?,
            seen: 0,
        })
    }

    /// Lets a fresh witness take over and remembers what the old one got. To be called before signals are taken.
    ///
    /// # Errors
    /// When the witness cannot be looked at, or not be relieved.
    pub(crate) fn relieve(&mut self) -> io::Result<()> {
        // It is there before the old one goes, so that no signal finds none.
        let fresh = fork_witness()?;
        self.seen |= pending(self.process)?;
        end(std::mem::replace(&mut self.process, fresh));
        Ok(())
    }

    /// Whether the group got `signal`, which this process has just taken. Answers once for each time.
    ///
    /// # Errors
    /// When the witness cannot be looked at.
    pub(crate) fn saw(&mut self, signal: c_int) -> io::Result<bool> {
        let bit = bit(signal);
        if self.seen & bit != 0 {
            self.seen &= !bit;
            return Ok(true);
        }
        let deadline = Instant::now() + GRACE;
        loop {
            if pending(self.process)? & bit != 0 {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            match poll(&mut [], TICK) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(cause) => return Err(cause.into()),
            }
        }
    }

    /// Forgets what this process has answered to: whatever the group got and does not wait here. To be called when signals have
    /// been taken.
    ///
    /// # Errors
    /// When the witness cannot be looked at, or not be relieved.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        // The witness first: what comes in between waits here by then.
        let kept = pending(self.process)?;
        let here = pending(unistd::getpid())?;
        if kept & !here != 0 {
            self.relieve()?;
        }
        self.seen &= pending(unistd::getpid())?;
        Ok(())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        end(self.process);
    }
}

/// Ends and collects a witness. It can be gone only by somebody else's SIGKILL, and then there is nothing to do.
fn end(process: Pid) {
    let _ = signal::kill(process, Signal::SIGKILL);
    let _ = waitpid(process, None);
}

/// The signals that wait for a process, as procfs shows them (proc_pid_status(5)).
fn pending(process: Pid) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let of = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0)
    };
    Ok(of("SigPnd:") | of("ShdPnd:"))
}

fn bit(signal: c_int) -> u64 {
    u32::try_from(signal)
        .ok()
        .and_then(|signal| signal.checked_sub(1))
        .and_then(|place| 1_u64.checked_shl(place))
        .unwrap_or(0)
}

/// Makes a witness by the plain calls: the standard library's way to a new process lets signals through for a moment.
fn fork_witness() -> io::Result<Pid> {
    let parent = unistd::getpid();
    // SAFETY: the child makes only async-signal-safe calls until it executes or exits.
    match unsafe { unistd::fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            become_witness(parent);
            // SAFETY: _exit(2) runs nothing of this process.
            unsafe { libc::_exit(1) }
        }
    }
}

/// Turns a forked child into a witness. Executes, so that the witness is not found under this process's command line, and holds
/// none of its descriptors, which would keep a caller's pipe from its end.
fn become_witness(parent: Pid) {
    if prctl::set_pdeathsig(Signal::SIGKILL).is_err() || unistd::getppid() != parent {
        return;
    }
    close_from(0);
    // The array ends with a null pointer. Nothing is left to do when the call fails.
    let arguments = [NAME.as_ptr(), ARGUMENT.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];
    // SAFETY: both arrays hold pointers to constant strings and end with null.
    unsafe { libc::execve(PROGRAM.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
}

/// Closes every descriptor from `first` on at exec: what the caller handed to this process is the command's alone. Fit for the
/// time between fork and exec. Where the call is forbidden (old container runtimes) they stay open until the helper ends,
/// which is with the client.
pub(crate) fn close_from(first: u32) {
    // SAFETY: the call only sets a flag on descriptors; nothing of this process is freed.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

/// The witness itself: keeps its signals, and waits for the client's end to be its own.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn watch() -> io::Result<Infallible> {
    prctl::set_name(NAME)?;
    loop {
        // Every signal is held back, so that nothing but SIGKILL ends this.
        unistd::pause();
    }
}
