//! What these tests do with a daemon of their own.

use std::{
    ffi::OsStr,
    fs,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shared::{Launch, as_user};
pub(crate) use shared::{PATIENCE, Service, until};

#[path = "../support/service.rs"]
mod shared;

pub(crate) const ROOT: u32 = 0;
/// Users that need no entry anywhere.
pub(crate) const ALICE: u32 = 64_121;
pub(crate) const BOB: u32 = 64_122;

/// Runs a command that a test needs done.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Service {
    /// With the configuration that is installed.
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// With lines of configuration.
    pub(crate) fn with(config: &str) -> Self {
        Self::launch(&Launch {
            config,
            ..Launch::default()
        })
    }

    /// Where jobs are kept.
    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.as_mut().unwrap().wait().unwrap()
    }

    /// Starts a successor of one that has ended.
    pub(crate) fn restart(&mut self) {
        self.wait();
        self.serve();
    }

    /// Memory that is resident now, in KiB.
    pub(crate) fn rss(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Most memory that was resident since [`Service::forget_peak`], in KiB.
    pub(crate) fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.unwrap().parse().unwrap()
    }

    pub(crate) fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").unwrap();
    }

    /// A command of a user in the group.
    pub(crate) fn command(&self, uid: u32, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").stdin(Stdio::null());
        for name in [
            "NO_COLOR",
            "CLICOLOR_FORCE",
            "GIT_DIR",
            "GIT_WORK_TREE",
            "PYTHONDONTWRITEBYTECODE",
        ] {
            command.env_remove(name);
        }
        as_user(&mut command, uid);
        command
    }

    /// What a command of capgate other than `run` comes to: exit code, stdout and stderr.
    pub(crate) fn ask(&self, uid: u32, arguments: &[&str]) -> (i32, String, String) {
        let mut command = self.command(uid, self.client());
        command
            .args(arguments)
            .arg("--socket")
            .arg(self.socket())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = command.output().unwrap();
        (
            code(output.status),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    /// The jobs that a user sees.
    pub(crate) fn jobs(&self, uid: u32) -> Vec<serde_json::Value> {
        let (code, lines, said) = self.ask(uid, &["ps", "--json"]);
        assert_eq!(code, 0, "{said}");
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The id of a user's only job.
    pub(crate) fn job(&self, uid: u32) -> String {
        let jobs = self.jobs(uid);
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        jobs[0]["job"].as_str().unwrap().to_owned()
    }
}

/// The exit code as a shell shows it.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap())
}
