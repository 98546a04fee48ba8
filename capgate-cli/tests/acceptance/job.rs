//! Directories of several users, and the jobs that they run there with the real client.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::Write,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use capgate_common::{
    evidence::{Column, Entry, Evidence},
    ledger::Ledger,
};

use crate::service::{PATIENCE, Service, code, until};

/// A fresh directory of a user's own: `root` is the root of its jobs, what they leave for the test lies beside it.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    pub(crate) uid: u32,
}

impl Place {
    pub(crate) fn of(uid: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        chown(dir.path(), Some(uid), Some(uid)).unwrap();
        let place = Self { dir, uid };
        place.directory("root");
        place
    }

    /// Makes a directory of the user's beside the root, or in it: `root/d`.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.beside(name);
        fs::create_dir(&path).unwrap();
        self.give(&path);
        path
    }

    /// Gives a file or directory to the user.
    pub(crate) fn give(&self, path: &Path) {
        chown(path, Some(self.uid), Some(self.uid)).unwrap();
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        // As the kernel names it: a link on the way would give entries another beginning.
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.beside("root")
    }

    /// Writes a contract beside the root, where no job writes it by chance.
    pub(crate) fn contract(&self, text: &str) -> PathBuf {
        let path = self.beside("contract.json");
        fs::write(&path, text).unwrap();
        path
    }

    /// A job of the place's user that is not started yet.
    pub(crate) fn job<'a>(&'a self, service: &'a Service, command: &[&str]) -> Job<'a> {
        let mut capgate = service.command(self.uid, service.client());
        capgate
            .current_dir(self.root())
            .args(["run", "--socket"])
            .arg(service.socket())
            .arg("--root")
            .arg(self.root());
        for (option, file) in [("--ledger", "ledger.json"), ("--evidence", "evidence.json")] {
            capgate.arg(option).arg(self.beside(file));
        }
        Job {
            place: self,
            capgate,
            gated: false,
            command: command.iter().map(|&word| word.to_owned()).collect(),
        }
    }

    /// Records a command and waits for its end.
    pub(crate) fn record(&self, service: &Service, command: &[&str]) -> Done {
        self.job(service, command).start().wait()
    }

    /// Records a shell script and waits for its end.
    pub(crate) fn script(&self, service: &Service, script: &str) -> Done {
        self.record(service, &["sh", "-c", script])
    }
}

/// A job that is not started yet.
pub(crate) struct Job<'a> {
    place: &'a Place,
    capgate: Command,
    gated: bool,
    command: Vec<String>,
}

impl<'a> Job<'a> {
    /// Judged by a contract, and not only recorded.
    pub(crate) fn gated(mut self, contract: &Path) -> Self {
        self.capgate.arg("--contract").arg(contract);
        self.gated = true;
        self
    }

    /// With another option of `capgate run`.
    pub(crate) fn option(mut self, option: &str) -> Self {
        self.capgate.arg(option);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.capgate.env(name, value);
        self
    }

    /// Starts it; it waits for a word on its stdin if it reads there.
    pub(crate) fn start(mut self) -> Running<'a> {
        if !self.gated {
            self.capgate.arg("--record");
        }
        let stream = |name| File::create(self.place.beside(name)).unwrap();
        self.capgate
            .arg("--")
            .args(&self.command)
            .stdin(Stdio::piped())
            .stdout(stream("stdout"))
            .stderr(stream("stderr"));
        Running {
            place: self.place,
            child: Some(self.capgate.spawn().unwrap()),
            command: self.command.join(" "),
        }
    }
}

/// A job that runs.
pub(crate) struct Running<'a> {
    place: &'a Place,
    child: Option<Child>,
    command: String,
}

impl Running<'_> {
    /// Waits until it has said a word on stdout.
    pub(crate) fn until_it_says(&mut self, word: &str) {
        let path = self.place.beside("stdout");
        let child = self.child.as_mut().unwrap();
        until(&format!("{} says {word}", self.command), || {
            let said = fs::read_to_string(&path).unwrap();
            let ended = child.try_wait().unwrap();
            assert!(
                said.contains(word) || ended.is_none(),
                "{} ended without saying {word}: {}",
                self.command,
                fs::read_to_string(self.place.beside("stderr")).unwrap()
            );
            said.contains(word)
        });
    }

    /// Gives it a line to read.
    pub(crate) fn tell(&mut self, line: &str) {
        let stdin = self.child.as_mut().unwrap().stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    /// Ends its stdin, and waits for the job's end.
    pub(crate) fn wait(mut self) -> Done {
        let mut child = self.child.take().unwrap();
        drop(child.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("not within {PATIENCE:?}: {}", self.command);
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let read = |name| fs::read(self.place.beside(name)).ok();
        let text = |name| String::from_utf8_lossy(&read(name).unwrap()).into_owned();
        Done {
            command: std::mem::take(&mut self.command),
            code: code(status),
            stdout: text("stdout"),
            stderr: text("stderr"),
            ledger: read("ledger.json").map(|bytes| Ledger::from_json(&bytes).unwrap()),
            evidence: read("evidence.json").map(|bytes| Evidence::from_json(&bytes).unwrap()),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

/// A job that has ended.
pub(crate) struct Done {
    command: String,
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) ledger: Option<Ledger>,
    pub(crate) evidence: Option<Evidence>,
}

impl Done {
    /// Its ledger, which nothing is missing from: the command succeeded, and every count adds up.
    #[track_caller]
    pub(crate) fn complete(&self) -> &Ledger {
        let ledger = self.sealed();
        assert!(
            ledger.complete && ledger.recording.lost.is_empty(),
            "{}: {:?} {:?}",
            self.command,
            ledger.recording.lost,
            ledger.recording.coverage
        );
        assert_eq!(self.code, 0, "{}: {}", self.command, self.stderr);
        ledger
    }

    /// Its ledger, which says that it does not say all, as the exit code does.
    #[track_caller]
    pub(crate) fn incomplete(&self) -> &Ledger {
        let ledger = self.sealed();
        assert!(!ledger.complete, "{}: {}", self.command, self.stderr);
        assert_eq!(self.code, 121, "{}: {}", self.command, self.stderr);
        ledger
    }

    /// Its ledger, with evidence whose counts add up.
    #[track_caller]
    pub(crate) fn sealed(&self) -> &Ledger {
        assert_eq!(self.evidence().counts.imbalance(), None, "{}", self.command);
        let ledger = self.ledger.as_ref();
        ledger.unwrap_or_else(|| panic!("{}: no ledger: {}", self.command, self.stderr))
    }

    #[track_caller]
    pub(crate) fn evidence(&self) -> &Evidence {
        let evidence = self.evidence.as_ref();
        evidence.unwrap_or_else(|| panic!("{}: no evidence: {}", self.command, self.stderr))
    }

    /// What is known about a member of a column.
    #[track_caller]
    pub(crate) fn entry(&self, column: Column, entry: &str) -> &Entry {
        let mut entries = self.evidence().entries.iter();
        let found = entries.find(|it| it.column == column && it.entry == entry);
        found.unwrap_or_else(|| panic!("{}: no evidence of {entry}", self.command))
    }
}
