//! `run --local`: a private daemon for one job. Only the daemon is elevated, by sudo when needed.
//!
//! It serves this user and root on a socket that nobody else reaches, says on stdout when it serves, and ends when its stdin
//! ends, so also when this process is killed: a process that sudo started takes no signals from its user.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::{
        fd::AsFd,
        unix::{fs::PermissionsExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use nix::{
    errno::Errno,
    libc::c_int,
    poll::{PollFd, PollFlags, poll},
    unistd,
};

use crate::{
    client::poll_timeout,
    private::PrivateDirectory,
    shown::{harmless, shown},
    signals::Signals,
    witness::close_from,
};

/// The daemon's program.
const PROGRAM: &str = "capgated";
/// Where it is installed, as a service manager would start it.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/libexec", "/usr/sbin", "/usr/local/sbin"];
/// How long the daemon may take until it serves: it reads the kernel's type information first.
const READY: Duration = Duration::from_secs(60);
/// How long it may take to end.
const END: Duration = Duration::from_secs(30);
/// How much of the daemon's log is looked at for what went wrong.
const LOG_TAIL: u64 = 4096;

/// A private daemon.
pub(crate) struct Local {
    daemon: Child,
    /// Closing it ends the daemon.
    lifeline: Option<ChildStdin>,
    /// Where it has its files.
    _directory: PrivateDirectory,
    socket: PathBuf,
    log: File,
}

impl Local {
    /// Starts the daemon, without the environment variables that the job does not get either, and waits until it serves; or comes
    /// back with the signal that came in between.
    ///
    /// # Errors
    /// When there is no daemon to start, no way to elevate it, or it does not come up.
    pub(crate) fn start(
        probe_set: Option<&str>,
        sealed: &BTreeSet<OsString>,
        signals: &mut Signals,
    ) -> anyhow::Result<Result<Self, c_int>> {
        let program = find_daemon().with_context(|| {
            format!("cannot find {PROGRAM} beside this program, in PATH or in {}; install it, or use the service without --local", SYSTEM_DIRECTORIES.join(", "))
        })?;
        let mut command = elevated(&program, signals)?;
        for name in sealed {
            command.env_remove(name);
        }
        let directory = PrivateDirectory::create()?;
        let socket = directory.path().join("sock");
        let log_path = directory.path().join("log");
        let log = File::options()
            .read(true)
            .append(true)
            .create_new(true)
            .open(&log_path)
            .with_context(|| format!("cannot create {}", shown(&log_path)))?;
        command
            .arg("--private")
            .arg(unistd::getuid().to_string())
            .arg("--socket")
            .arg(&socket)
            .arg("--store")
            .arg(directory.path().join("store"));
        if let Some(set) = probe_set {
            command.arg("--probe-set").arg(set);
        }
        command
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().context("cannot duplicate a descriptor")?)
            // Keys on the terminal are for the job, not for its recorder.
            .process_group(0);
        // SAFETY: between fork and exec only async-signal-safe calls may be made: close_range is.
        unsafe {
            command.pre_exec(|| {
                close_from(3);
                Ok(())
            })
        };
        let mut daemon = command
            .spawn()
            .with_context(|| format!("cannot start {}", shown(command.get_program())))?;
        let lifeline = daemon.stdin.take();
        let ready = daemon.stdout.take();
        let mut local = Self {
            daemon,
            lifeline,
            _directory: directory,
            socket,
            log,
        };
        let Some(ready) = ready else {
            bail!("cannot read from {PROGRAM}");
        };
        match local.until_ready(ready, signals) {
            Ok(None) => Ok(Ok(local)),
            Ok(Some(told)) => {
                local.end();
                Ok(Err(told))
            }
            Err(error) => Err(local.explain(error)),
        }
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits for the daemon's word; comes back with a signal that asked to end.
    fn until_ready(
        &mut self,
        mut ready: ChildStdout,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<c_int>> {
        let deadline = Instant::now() + READY;
        loop {
            let mut fds = [
                PollFd::new(ready.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            let left = deadline.saturating_duration_since(Instant::now());
            match poll(&mut fds, poll_timeout(Some(left))) {
                Ok(0) => bail!(
                    "the private {PROGRAM} did not come up within {} s",
                    READY.as_secs()
                ),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(cause) => return Err(cause).context("cannot wait for the private daemon"),
            }
            let spoke = fds[0].any().unwrap_or(false);
            if let Some(signal) = signals.next_ending()? {
                return Ok(Some(signal));
            }
            if spoke {
                let mut byte = [0];
                return match ready.read(&mut byte) {
                    Ok(0) => Err(anyhow!("the private {PROGRAM} did not come up")),
                    Ok(_) => Ok(None),
                    Err(cause) => Err(cause).context("cannot read from the private daemon"),
                };
            }
        }
    }

    /// Adds to an error what the daemon last said, and ends it.
    pub(crate) fn explain(mut self, error: anyhow::Error) -> anyhow::Error {
        let said = self.last_words();
        self.end();
        match said {
            Some(said) => anyhow!("{error:#}; {PROGRAM} said: {said}"),
            None => error,
        }
    }

    /// The last line of the daemon's log.
    fn last_words(&mut self) -> Option<String> {
        // What it says last it says while it ends.
        if self.daemon.try_wait().ok()?.is_none() {
            self.lifeline = None;
            self.wait_for_end();
        }
        let length = self.log.metadata().ok()?.len();
        self.log
            .seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))
            .ok()?;
        let mut bytes = Vec::new();
        self.log.read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().rfind(|line| !line.trim().is_empty())?;
        Some(harmless(last.trim()))
    }

    /// Ends the daemon, and waits until nothing of it is left.
    pub(crate) fn end(mut self) {
        self.lifeline = None;
        self.wait_for_end();
    }

    fn wait_for_end(&mut self) {
        let deadline = Instant::now() + END;
        // Waiting with a limit needs a descriptor to poll: one that is readable when the process has ended.
        let Ok(ended) = pidfd(&self.daemon) else {
            let _ = self.daemon.wait();
            return;
        };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, poll_timeout(Some(left))) {
                Ok(0) => {
                    // It hangs. Where it runs by sudo this has no effect, and there is nothing more that this user could do.
                    let _ = self.daemon.kill();
                    let _ = self.daemon.try_wait();
                    return;
                }
                Ok(_) => {
                    let _ = self.daemon.wait();
                    return;
                }
                Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // On a way out by an error: the end of its stdin ends the daemon, and it removes what it made.
        self.lifeline = None;
        self.wait_for_end();
    }
}

fn pidfd(child: &Child) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd as _;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: pidfd_open(2) takes plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor, and nothing else knows of it.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
}

/// The daemon's program: beside this one, in PATH, or where systems install it.
pub(crate) fn find_daemon() -> Option<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    beside
        .into_iter()
        .chain(in_path)
        .chain(SYSTEM_DIRECTORIES.map(PathBuf::from))
        .map(|directory| directory.join(PROGRAM))
        .find(|candidate| is_executable(candidate))
}

/// Whether a path is a file that somebody may execute.
pub(crate) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The command that starts the daemon as root.
fn elevated(program: &Path, signals: &Signals) -> anyhow::Result<Command> {
    if unistd::geteuid().is_root() {
        return Ok(Command::new(program));
    }
    let Some(sudo) = find_in_path("sudo") else {
        bail!(
            "cannot start a private {PROGRAM}: it needs root, and there is no sudo; run as root, or use the service without --local"
        );
    };
    if io::IsTerminal::is_terminal(&io::stdin()) && !lets_through(&sudo, program) {
        // Asks for a password now, while this process is in the foreground; the daemon will not be.
        let mut ask = Command::new(&sudo);
        ask.arg("--validate");
        signals.inherited.give_on(&mut ask);
        let asked = ask
            .status()
            .with_context(|| format!("cannot run {}", shown(&sudo)))?;
        if !asked.success() {
            bail!(
                "cannot start a private {PROGRAM}: sudo does not let this user start it; run as root, or use the service without --local"
            );
        }
    }
    let mut command = Command::new(sudo);
    command.arg("--non-interactive").arg("--").arg(program);
    Ok(command)
}

/// Whether sudo starts the daemon's program without asking.
fn lets_through(sudo: &Path, program: &Path) -> bool {
    let mut probe = Command::new(sudo);
    probe
        .arg("--non-interactive")
        .arg("--")
        .arg(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// An executable file of this name in PATH. A relative directory there would mean another program in each directory, the
/// checkout's own among them.
pub(crate) fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|candidate| is_executable(candidate))
}
