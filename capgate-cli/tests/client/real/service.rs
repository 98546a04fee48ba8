//! A daemon of the test's own, a repository, and clients of several users.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use capgate_common::ledger::Ledger;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

pub(crate) use crate::daemon::{Service, as_user};
use crate::{
    daemon::Launch,
    stand::{EMPTY, bare, output, text},
};

/// A user that needs no entry anywhere.
pub(crate) const SOMEBODY: u32 = 64_111;

/// A repository of a user's.
pub(crate) struct Repository {
    dir: tempfile::TempDir,
}

impl Repository {
    /// With the contract of a job that does nothing.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let repository = Self { dir };
        fs::create_dir_all(repository.path(".git")).unwrap();
        fs::write(repository.path(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::create_dir(repository.path("tests")).unwrap();
        repository.contract(EMPTY);
        repository
    }

    /// Gives it to a user.
    pub(crate) fn of(uid: u32) -> Self {
        let repository = Self::new();
        for name in ["", ".git", "tests", "tests/capability.ledger.json"] {
            std::os::unix::fs::chown(repository.path(name), Some(uid), Some(uid)).unwrap();
        }
        repository
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("repo").join(name)
    }

    pub(crate) fn contract(&self, text: &str) {
        fs::write(self.path("tests/capability.ledger.json"), text).unwrap();
    }

    pub(crate) fn ledger(&self) -> Ledger {
        let path = self.path("tests/capability.actual.json");
        Ledger::from_json(&fs::read(path).unwrap()).unwrap()
    }

    pub(crate) fn has_ledger(&self) -> bool {
        self.path("tests/capability.actual.json").exists()
    }

    /// `capgate run OPTIONS -- COMMAND` in it, with a private daemon.
    pub(crate) fn run_local(&self, options: &[&str], command: &[&str]) -> Command {
        let mut capgate = bare();
        capgate
            .current_dir(self.path(""))
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .args(["run", "--local"])
            .args(options)
            .arg("--")
            .args(command)
            .stdin(Stdio::null());
        capgate
    }

    /// What a private daemon left beside the repository.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.ends_with("repo"))
            .collect()
    }
}

impl Service {
    pub(crate) fn start() -> Self {
        Self::with_store(|_| {})
    }

    /// With something done to the directory of its store first.
    pub(crate) fn with_store(prepare: impl Fn(&Path)) -> Self {
        Self::launch(&Launch {
            prepare: &|dir| prepare(&dir.join("store")),
            ..Launch::default()
        })
    }

    /// `capgate` of a user in the group, in a directory.
    pub(crate) fn capgate(&self, uid: u32, directory: &Path) -> Command {
        let mut command = bare_at(&self.client());
        command.current_dir(directory).stdin(Stdio::null());
        as_user(&mut command, uid);
        command
    }

    /// `capgate run OPTIONS -- COMMAND` of root.
    pub(crate) fn run(
        &self,
        repository: &Repository,
        options: &[&str],
        command: &[&str],
    ) -> Command {
        self.run_as(0, repository, options, command)
    }

    /// `capgate run OPTIONS -- COMMAND` of a user.
    pub(crate) fn run_as(
        &self,
        uid: u32,
        repository: &Repository,
        options: &[&str],
        command: &[&str],
    ) -> Command {
        let mut capgate = self.capgate(uid, &repository.path(""));
        capgate.args(["run", "--socket"]).arg(self.socket());
        capgate.args(options).arg("--").args(command);
        capgate
    }

    /// What another command of root says on stdout.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let mut capgate = self.capgate(0, Path::new("/"));
        capgate.args(arguments).arg("--socket").arg(self.socket());
        let output = output(&mut capgate);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The jobs that it knows.
    pub(crate) fn jobs(&self) -> Vec<serde_json::Value> {
        let lines = self.ask(&["ps", "--json"]);
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The id of the only job.
    pub(crate) fn job(&self) -> String {
        let jobs = self.jobs();
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        jobs[0]["job"].as_str().unwrap().to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().unwrap().id();
        signal::kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// Waits for its end, and starts a successor.
    pub(crate) fn restart(&mut self) {
        self.child.as_mut().unwrap().wait().unwrap();
        self.serve();
    }
}

/// A program in the environment of [`bare`].
fn bare_at(path: &Path) -> Command {
    let like = bare();
    let mut command = Command::new(path);
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}
