//! A project in a real repository, and what is done in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use capgate_common::{contract::Contract, evidence::Evidence, ledger::Ledger};

use crate::{
    repository::Repository,
    service::{Launch, Service, as_user},
};

/// The interpreter that every user can execute.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
/// Where tools are looked for: the same everywhere, and nothing of the test runner's own first.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A daemon with its defaults.
pub(crate) fn serve() -> Service {
    Service::launch(&Launch::default())
}

/// A project: a repository at `root`, a home of its own beside it, and temporary files beside that.
pub(crate) struct Project {
    dir: tempfile::TempDir,
    pub(crate) repository: Repository,
    uid: u32,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    /// Asserts an exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Asserts that it says something, on either stream.
    #[track_caller]
    pub(crate) fn says(self, phrase: &str) -> Self {
        assert!(
            self.stdout.contains(phrase) || self.stderr.contains(phrase),
            "{phrase}\nstdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Asserts that it does not say something.
    #[track_caller]
    pub(crate) fn leaves_out(self, phrase: &str) -> Self {
        assert!(
            !self.stdout.contains(phrase) && !self.stderr.contains(phrase),
            "{phrase}\nstdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }
}

impl Project {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in ["home", "tmp"] {
            fs::create_dir(top.join(name)).unwrap();
        }
        Self {
            repository: Repository::init(&top.join("root")),
            dir,
            uid: 0,
        }
    }

    /// Another checkout of the same commit, of another user.
    pub(crate) fn checkout(&self, uid: u32) -> Self {
        let Self { dir, .. } = Self::new();
        let top = dir.path().canonicalize().unwrap();
        fs::remove_dir_all(top.join("root")).unwrap();
        let repository = self.repository.clone(&top.join("root"), &[]);
        let mut give = Command::new("chown");
        give.arg("-R").arg(format!("{uid}:{uid}")).arg(&top);
        assert!(give.status().unwrap().success());
        Self {
            dir,
            repository,
            uid,
        }
    }

    /// Something in the repository.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.beside("root").join(name)
    }

    /// Something beside it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// A command in the repository.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .current_dir(self.path(""))
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("HOME", self.beside("home"))
            .env("TMPDIR", self.beside("tmp"))
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        as_user(&mut command, self.uid);
        command
    }

    /// Runs a command of capgate that only reads and writes files.
    pub(crate) fn capgate(&self, arguments: &[&str]) -> Done {
        finish(self.command(env!("CARGO_BIN_EXE_capgate")).args(arguments))
    }

    /// `capgate init OPTIONS` of a shell script.
    pub(crate) fn init(&self, service: &Service, options: &[&str], script: &str) -> Done {
        self.on(service, "init", options, script)
    }

    /// `capgate run OPTIONS` of a shell script.
    pub(crate) fn run(&self, service: &Service, options: &[&str], script: &str) -> Done {
        self.on(service, "run", options, script)
    }

    fn on(&self, service: &Service, what: &str, options: &[&str], script: &str) -> Done {
        let mut command = self.command(service.client());
        command.arg(what).arg("--socket").arg(service.socket());
        command.args(options).args(["--", "sh", "-c", script]);
        finish(&mut command)
    }

    pub(crate) fn contract_text(&self) -> String {
        fs::read_to_string(self.path("tests/capability.ledger.json")).unwrap()
    }

    pub(crate) fn contract(&self) -> Contract {
        Contract::from_json(self.contract_text().as_bytes()).unwrap()
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::from_json(&fs::read(self.path("tests/capability.actual.json")).unwrap()).unwrap()
    }

    pub(crate) fn evidence(&self, name: &str) -> Evidence {
        Evidence::from_json(&fs::read(self.path(name)).unwrap()).unwrap()
    }
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Done {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}
