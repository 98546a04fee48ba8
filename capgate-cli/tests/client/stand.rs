//! A fresh directory with a stand-in daemon, and the real `capgate` in it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::PermissionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::PathBuf,
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
};

use capgate_common::ledger::Ledger;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

pub(crate) use crate::daemon::{install, until};
use crate::{
    daemon::PATIENCE,
    stand_in::{Manner, StandIn},
};

/// The contract of a job that does nothing, as the in-process harness writes it.
pub(crate) const EMPTY: &str = r#"{"allow_net": [], "cpu_budget": 30, "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}"#;

/// A repository with an empty contract, and a daemon that records nothing.
pub(crate) struct Stand {
    dir: tempfile::TempDir,
    /// The daemon.
    pub(crate) daemon: StandIn,
}

impl Stand {
    /// With a daemon that does everything right.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With a daemon of other manners.
    pub(crate) fn with(change: impl FnOnce(&mut Manner)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repo");
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::create_dir(root.join("tests")).unwrap();
        fs::write(root.join("tests/capability.ledger.json"), EMPTY).unwrap();
        let mut manner = Manner::default();
        change(&mut manner);
        let daemon = StandIn::listen(&dir.path().join("sock"), manner);
        Self { dir, daemon }
    }

    /// A file in the repository.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("repo").join(name)
    }

    /// A file beside the repository.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The ledger that a run left.
    pub(crate) fn ledger(&self) -> Ledger {
        let path = self.path("tests/capability.actual.json");
        Ledger::from_json(&fs::read(path).unwrap()).unwrap()
    }

    /// Whether there is a ledger.
    pub(crate) fn has_ledger(&self) -> bool {
        self.path("tests/capability.actual.json").exists()
    }

    /// Lets everybody in, with a copy of `capgate` for those who cannot reach the one that was built.
    pub(crate) fn open_to_all(&self) -> PathBuf {
        let everybody = fs::Permissions::from_mode(0o777);
        for path in [
            self.outside(""),
            self.path(""),
            self.path("tests"),
            self.outside("sock"),
        ] {
            fs::set_permissions(path, everybody.clone()).unwrap();
        }
        let copy = self.outside("capgate");
        install(env!("CARGO_BIN_EXE_capgate").as_ref(), &copy);
        copy
    }

    /// `capgate` in the repository, with these arguments.
    pub(crate) fn capgate<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = bare();
        command
            .current_dir(self.path(""))
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// `capgate run -- COMMAND`.
    pub(crate) fn run(&self, command: &[&str]) -> Command {
        self.run_with(&[], command)
    }

    /// `capgate run OPTIONS -- COMMAND`.
    pub(crate) fn run_with(&self, options: &[&str], command: &[&str]) -> Command {
        let mut capgate = self.capgate(["run", "--socket"]);
        capgate.arg(self.outside("sock"));
        capgate.args(options).arg("--").args(command);
        capgate
    }
}

/// `capgate` without anything that the test runner has in its environment for it.
pub(crate) fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capgate"));
    for name in [
        "NO_COLOR",
        "CLICOLOR_FORCE",
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GITHUB_STEP_SUMMARY",
        "XDG_RUNTIME_DIR",
        "CAPGATE_ABSENT",
        "CAPGATE_SOCKET",
    ] {
        command.env_remove(name);
    }
    command
}

/// Runs to the end.
pub(crate) fn output(command: &mut Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    Watched::over(child).output()
}

/// What a program said on one stream.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs and expects an exit code, and on stderr one sentence of capgate's that holds these words.
#[track_caller]
pub(crate) fn fails(command: &mut Command, code: i32, words: &[&str]) {
    let output = output(command);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let lines: Vec<&str> = stderr
        .lines()
        .filter(|line| line.starts_with("capgate: "))
        .collect();
    assert_eq!(lines.len(), 1, "one sentence: {stderr}");
    for word in words {
        assert!(lines[0].contains(word), "`{word}` in: {stderr}");
    }
}

/// A child that does not outlive the test.
pub(crate) struct Watched {
    child: Option<Child>,
    lines: Option<BufReader<ChildStdout>>,
    alarm: std::sync::mpsc::Sender<()>,
}

impl Watched {
    /// Starts it with its stdout on a pipe.
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::over(command.spawn().unwrap())
    }

    /// Starts it in a process group of its own.
    pub(crate) fn start_in_group(command: &mut Command) -> Self {
        command.process_group(0);
        Self::start(command)
    }

    fn over(mut child: Child) -> Self {
        let (alarm, quiet) = std::sync::mpsc::channel();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        std::thread::spawn(move || {
            if quiet
                .recv_timeout(PATIENCE)
                .is_err_and(|it| it == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                eprintln!("{pid} took longer than {PATIENCE:?}");
                let _ = signal::kill(pid, Signal::SIGKILL);
            }
        });
        let lines = child.stdout.take().map(BufReader::new);
        Self {
            child: Some(child),
            lines,
            alarm,
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.as_ref().unwrap().id()).unwrap())
    }

    /// The next line on its stdout, without the newline; empty at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    /// Writes to its stdin.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let child = self.child.as_mut().unwrap();
        child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Goes away as a reader.
    pub(crate) fn close(&mut self) {
        self.lines = None;
    }

    /// Waits for it.
    pub(crate) fn output(mut self) -> Output {
        let mut child = self.child.take().unwrap();
        let mut stderr = child.stderr.take();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(stderr) = &mut stderr {
                stderr.read_to_end(&mut bytes).unwrap();
            }
            bytes
        });
        let mut stdout = Vec::new();
        if let Some(lines) = &mut self.lines {
            lines.read_to_end(&mut stdout).unwrap();
        }
        let status = child.wait().unwrap();
        let _ = self.alarm.send(());
        Output {
            status,
            stdout,
            stderr: reader.join().unwrap(),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether a process is there and not a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// The state of a process, as ps shows it.
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold any character.
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

/// The exit code as a shell shows it.
pub(crate) fn shell_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap())
}
