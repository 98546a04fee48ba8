//! What the caller handed to this process, taken down before Rust's runtime changes it, and given on to the command unchanged.
//!
//! Before `main`, the runtime sets SIGPIPE to ignored and opens `/dev/null` on each closed standard descriptor. A wrapped
//! command would inherit both, so a hook in `.init_array`, which the loader runs first, looks at them and closes that door.

use std::{
    io,
    os::unix::process::CommandExt,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use nix::sys::signal::{self, SigHandler, SigSet, SigmaskHow, Signal};

/// Whether SIGPIPE was ignored when this process began.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls each entry of this section once, before `main`, as a C function; further arguments are
// allowed and unused. `before_main` needs nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    for fd in 0..3 {
        // A closed standard descriptor gets a placeholder that vanishes on exec: files that this process opens cannot land
        // there, and the command finds it closed, as it would without the wrapper.
        // SAFETY: neither call touches memory of this process but the constant path.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) == -1 {
                // The lowest free descriptor is `fd`. When this fails the runtime ends the process itself.
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            }
        }
    }
    SIGPIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

/// Whether a signal's disposition is "ignore". By number: nix has no query that leaves the disposition alone.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all-zero is a valid sigaction for the kernel to overwrite, and a null new action changes nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// The signal state that the command has to find.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inherited {
    mask: SigSet,
    sigpipe_ignored: bool,
    sigchld_ignored: bool,
}

impl Inherited {
    /// Takes down what the caller set, and holds back every signal that can be forwarded: from here on they are read, not
    /// delivered. SIGCHLD goes back to its default, since the exit status of a child is lost where it is ignored.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn hold_signals() -> io::Result<Self> {
        let sigchld_ignored = is_ignored(libc::SIGCHLD);
        // SAFETY: the default disposition runs no code of ours.
        unsafe { signal::signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
        let mask = held().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self {
            mask,
            sigpipe_ignored: SIGPIPE_IGNORED.load(Ordering::Relaxed),
            sigchld_ignored,
        })
    }

    /// Whether the caller had this signal ignored, as a shell does for INT and QUIT of a background job.
    pub(crate) fn ignores(signal: libc::c_int) -> bool {
        is_ignored(signal)
    }

    /// Makes the child of `command` begin with the signal state that this process began with.
    pub(crate) fn give_on(self, command: &mut Command) {
        let restore = move || {
            set_ignored(Signal::SIGPIPE, self.sigpipe_ignored)?;
            set_ignored(Signal::SIGCHLD, self.sigchld_ignored)?;
            self.mask.thread_set_mask()?;
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe calls may be made: sigaction and sigprocmask are.
        unsafe { command.pre_exec(restore) };
    }
}

/// Every signal that is read from a descriptor. Faults stay out: a bug of ours must end us at once.
pub(crate) fn held() -> SigSet {
    let mut set = SigSet::all();
    for fault in [
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGFPE,
        Signal::SIGILL,
        Signal::SIGTRAP,
        Signal::SIGSYS,
    ] {
        set.remove(fault);
    }
    set
}

/// Undoes the runtime's change of SIGPIPE in a process that is about to become the command.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn restore_sigpipe() -> nix::Result<()> {
    set_ignored(Signal::SIGPIPE, SIGPIPE_IGNORED.load(Ordering::Relaxed))
}

fn set_ignored(signal: Signal, ignored: bool) -> nix::Result<()> {
    let handler = if ignored {
        SigHandler::SigIgn
    } else {
        SigHandler::SigDfl
    };
    // SAFETY: neither disposition runs code of ours.
    unsafe { signal::signal(signal, handler) }?;
    Ok(())
}
