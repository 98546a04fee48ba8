//! A daemon of the test's own, a repository, and clients of several users.

use std::{
    fs::{self, File, Permissions},
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use capgate_common::ledger::Ledger;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::stand::{EMPTY, bare, install, output, text, until};

/// A group that every Debian has, for those who may record.
const GROUP: &str = "daemon";
/// Its number.
const GID: u32 = 1;
/// A user that needs no entry anywhere.
pub(crate) const SOMEBODY: u32 = 64_111;

/// The daemon's program, which cargo builds beside the client's when it tests the workspace.
pub(crate) fn program() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_capgate")).with_file_name("capgated");
    assert!(
        path.exists(),
        "there is no {}: run cargo build -p capgate-daemon first",
        path.display()
    );
    path
}

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
        let _program = program();
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

/// A running daemon.
pub(crate) struct Service {
    dir: tempfile::TempDir,
    child: Child,
    client: PathBuf,
}

impl Service {
    pub(crate) fn start() -> Self {
        Self::with_store(|_| {})
    }

    /// With something done to the directory of its store first.
    pub(crate) fn with_store(prepare: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::write(
            dir.path().join("config.toml"),
            format!("group = \"{GROUP}\"\nlinger_seconds = 0\n"),
        )
        .unwrap();
        fs::create_dir(dir.path().join("store")).unwrap();
        prepare(&dir.path().join("store"));
        let client = dir.path().join("capgate");
        install(env!("CARGO_BIN_EXE_capgate").as_ref(), &client);
        let child = spawn(dir.path());
        let mut service = Self { dir, child, client };
        service.until_it_serves();
        service
    }

    fn until_it_serves(&mut self) {
        let socket = self.socket();
        until("the daemon serves", || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon ended: {}", self.log());
            UnixStream::connect(&socket).is_ok()
        });
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// `capgate` of a user in the group, in a directory.
    pub(crate) fn capgate(&self, uid: u32, directory: &Path) -> Command {
        let mut command = bare_at(&self.client);
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

    pub(crate) fn signal(&mut self, signal: Signal) {
        signal::kill(
            Pid::from_raw(i32::try_from(self.child.id()).unwrap()),
            signal,
        )
        .unwrap();
    }

    /// Waits for its end, and starts a successor.
    pub(crate) fn restart(&mut self) {
        self.child.wait().unwrap();
        self.child = spawn(self.dir.path());
        self.until_it_serves();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal(Signal::SIGTERM);
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the daemon said:\n{}", self.log());
        }
    }
}

fn spawn(dir: &Path) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .unwrap();
    Command::new(program())
        .arg("--socket")
        .arg(dir.join("sock"))
        .arg("--store")
        .arg(dir.join("store"))
        .arg("--config")
        .arg(dir.join("config.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
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

/// Makes a command run as a user who may record.
pub(crate) fn as_user(command: &mut Command, uid: u32) {
    if uid == 0 {
        return;
    }
    // SAFETY: the calls are async-signal-safe: plain system calls in a process with one thread.
    unsafe {
        command.pre_exec(move || {
            nix::unistd::setgroups(&[GID.into()])?;
            nix::unistd::setgid(uid.into())?;
            nix::unistd::setuid(uid.into())?;
            Ok(())
        })
    };
}
