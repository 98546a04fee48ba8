//! The hidden step: a process that enters the job and becomes the command.
//!
//! The daemon moves the process that presents the token, and knows which one that is from its socket's peer credentials.
//! So the process that will be the command has to connect itself. The token comes over a socket that is closed on
//! exec, and never stands in arguments or environment, where others can read it.

use std::{
    ffi::{CString, OsStr, OsString},
    io::{self, BufRead, BufReader, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command},
};

use capgate_common::{
    capability::SOCKET_VARIABLE,
    pathform,
    protocol::{Request, Response},
    seal::EnvPattern,
    verdict::EXIT_ERROR,
};
use nix::{
    errno::Errno,
    fcntl::{self, FcntlArg, FdFlag},
    sys::prctl,
    unistd,
};
use serde::{Deserialize, Serialize};

use crate::{
    args::{ENTER, EnterArgs, OWN_PROGRAM},
    client::{ClientError, Connection},
    inherited::{self, Inherited},
    seal::{self, Environment},
    shown::shown,
};

/// What the step tells the client. When it has become the command the channel is closed without a further word.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub(crate) enum Report {
    /// It is in the job.
    Entered,
    /// It could not enter: the sentence.
    Refused {
        /// What to tell the user.
        sentence: String,
    },
    /// It is in the job and could not become the command.
    NoCommand {
        /// Nothing of that name was found; else what was found cannot be executed.
        missing: bool,
        /// What to tell the user.
        sentence: String,
    },
}

/// What the client hands to the step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Handover {
    /// The job's token.
    pub(crate) token: String,
    /// Where the daemon listens, escaped, if the command may ask it something.
    pub(crate) announced: Option<String>,
    /// What of the environment the command does not get: the texts of patterns.
    pub(crate) sealed: Vec<String>,
    /// The directory that comes first on its `PATH`, escaped.
    pub(crate) shims: Option<String>,
}

/// Starts the step as a child of the client, with a channel to it, and hands it the token.
///
/// # Errors
/// When there is no socket or no process.
pub(crate) fn start(
    socket: &Path,
    handover: &Handover,
    command: &[OsString],
    inherited: Inherited,
) -> io::Result<(Child, UnixStream)> {
    // The standard library makes both ends close-on-exec; the child opens its own up again.
    let (mine, theirs) = UnixStream::pair()?;
    let mut step = Command::new(OWN_PROGRAM);
    step.arg0("capgate")
        .arg(ENTER)
        .arg("--channel")
        .arg(theirs.as_raw_fd().to_string())
        .arg("--socket")
        .arg(socket)
        .arg("--")
        .args(command);
    inherited.give_on(&mut step);
    let keep = theirs.as_raw_fd();
    let open_up = move || {
        // SAFETY: the descriptor is open in the child: it was in the parent, which outlives the call.
        let keep = unsafe { std::os::fd::BorrowedFd::borrow_raw(keep) };
        fcntl::fcntl(keep, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls may be made: fcntl is.
    unsafe { step.pre_exec(open_up) };
    let child = step.spawn()?;
    drop(theirs);
    let mut line = serde_json::to_vec(handover)?;
    line.push(b'\n');
    (&mine).write_all(&line)?;
    Ok((child, mine))
}

/// The step itself. Comes back only when the command could not be started; what went wrong has been reported then.
pub(crate) fn enter(args: &EnterArgs) -> i32 {
    // Somebody called it by hand.
    let Ok(channel) = own(args) else {
        return EXIT_ERROR;
    };
    let report = match join(&channel, &args.socket) {
        Ok(environment) => {
            tell(&channel, &Report::Entered);
            seal::apply(&environment);
            become_command(&args.command)
        }
        Err(sentence) => Report::Refused { sentence },
    };
    tell(&channel, &report);
    EXIT_ERROR
}

/// Takes the channel: a stream socket that only this process has, closed on exec.
fn own(args: &EnterArgs) -> io::Result<UnixStream> {
    // By number, since a wrong one, given by hand, must not be owned.
    // SAFETY: the call touches no memory.
    let done = unsafe { libc::fcntl(args.channel, libc::F_SETFD, libc::FD_CLOEXEC) };
    if done == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open: the client left it open for this process, and nothing else here uses it.
    let channel = unsafe { OwnedFd::from_raw_fd(args.channel) };
    let channel = UnixStream::from(channel);
    channel.peer_addr()?;
    Ok(channel)
}

fn tell(channel: &UnixStream, report: &Report) {
    let mut channel = channel;
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        // A client that is gone has lost the lease, and the daemon ends this process.
        let _ = channel.write_all(&line);
    }
}

/// Reads what the client hands over and presents the token.
fn join(channel: &UnixStream, socket: &Path) -> Result<Environment, String> {
    // While it holds the token nobody else may read this process. Executing the command makes it readable again.
    prctl::set_dumpable(false)
        .map_err(|cause| format!("cannot protect the enter step: {cause}"))?;
    let mut line = String::new();
    BufReader::new(channel)
        .read_line(&mut line)
        .map_err(|cause| format!("cannot read the job's token: {cause}"))?;
    if line.is_empty() {
        return Err("the client ended before it gave the job's token".to_owned());
    }
    let Handover {
        token,
        announced,
        sealed,
        shims,
    } = serde_json::from_str(&line)
        .map_err(|cause| format!("cannot read the job's token: {cause}"))?;
    // Before anything of the job runs: what cannot be kept from it must not reach it.
    let sealed: Result<Vec<EnvPattern>, String> = sealed.iter().map(|text| text.parse()).collect();
    let environment = Environment {
        sealed: sealed.map_err(|problem| format!("cannot seal the environment: {problem}"))?,
        first: shims.as_deref().and_then(pathform::unescape),
        added: announced
            .as_deref()
            .and_then(pathform::unescape)
            .map(|path| {
                let mut entry = SOCKET_VARIABLE.as_bytes().to_vec();
                entry.push(b'=');
                entry.extend(path);
                entry
            }),
    };
    present(socket, token).map_err(|error| error.to_string())?;
    Ok(environment)
}

fn present(socket: &Path, token: String) -> Result<(), ClientError> {
    let what = "enter the job";
    let mut daemon = Connection::open(socket)?;
    match daemon.ask(what, &Request::Enter { token })? {
        Response::Entered => Ok(()),
        _ => Err(ClientError::Unexpected(what)),
    }
}

/// Becomes the command; comes back with the reason why not.
fn become_command(command: &[OsString]) -> Report {
    let name = command.first().map(OsString::as_os_str).unwrap_or_default();
    let arguments: Result<Vec<CString>, _> = command
        .iter()
        .map(|argument| CString::new(argument.as_bytes()))
        .collect();
    let cause = match arguments {
        // Arguments come from the kernel, which ends them at a NUL.
        Err(_) => Errno::EINVAL,
        Ok(arguments) => match arguments.first() {
            None => Errno::ENOENT,
            Some(program) => inherited::restore_sigpipe()
                .and_then(|()| unistd::execvp(program, &arguments))
                .err()
                .unwrap_or(Errno::UnknownErrno),
        },
    };
    no_command(name, cause)
}

fn no_command(name: &OsStr, cause: Errno) -> Report {
    let program = shown(name);
    let (missing, sentence) = match (cause, find(name)) {
        (Errno::ENOENT, None) if name.as_bytes().contains(&b'/') => {
            (true, format!("cannot run {program}: there is no such file"))
        }
        (Errno::ENOENT, None) => (
            true,
            format!(
                "cannot run {program}: no directory of PATH has it; give its path, or check the spelling"
            ),
        ),
        (Errno::ENOENT, Some(found)) => (
            false,
            format!(
                "cannot run {}: the interpreter or loader that it names does not exist",
                shown(found)
            ),
        ),
        (Errno::ENOTDIR, _) => (true, format!("cannot run {program}: {cause}")),
        (Errno::EACCES, found) => (
            false,
            format!(
                "cannot run {}: permission denied; is it a file with execute permission (chmod +x)?",
                found.map_or(program, shown)
            ),
        ),
        (cause, found) => (
            false,
            format!("cannot run {}: {cause}", found.map_or(program, shown)),
        ),
    };
    Report::NoCommand { missing, sentence }
}

/// The file that a command name means, executable or not.
fn find(name: &OsStr) -> Option<PathBuf> {
    let exists = |path: PathBuf| path.exists().then_some(path);
    if name.is_empty() {
        return None;
    }
    if name.as_bytes().contains(&b'/') {
        return exists(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).find_map(|directory| exists(directory.join(name)))
}
