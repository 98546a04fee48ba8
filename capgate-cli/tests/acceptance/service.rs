//! A daemon of the test's own, and its clients.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::{
        fs::PermissionsExt,
        net::UnixStream,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Longest time that one job, or one thing that is waited for, may take. Machines that run these tests are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A group that every Debian has, for those who may record.
const GROUP: &str = "daemon";
/// Its number.
const GID: u32 = 1;
pub(crate) const ROOT: u32 = 0;
/// Users that need no entry anywhere.
pub(crate) const ALICE: u32 = 64_121;
pub(crate) const BOB: u32 = 64_122;

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The daemon's program, which cargo builds beside the client's when it tests the workspace.
fn capgated() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_capgate")).with_file_name("capgated");
    assert!(
        path.exists(),
        "there is no {}: run cargo build -p capgate-daemon first",
        path.display()
    );
    path
}

/// Copies a program to where every user can execute it. By another process: one that this process wrote could still be open for
/// writing in a child that another test forks at the moment, and then nobody may execute it.
fn install(from: &Path, to: &Path) {
    let mut install = Command::new("install");
    succeed(install.args(["-m", "755"]).args([from, to]));
}

/// Runs a command that a test needs done.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A running daemon.
pub(crate) struct Service {
    dir: tempfile::TempDir,
    child: Child,
}

impl Service {
    /// With the configuration that is installed.
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// With lines of configuration.
    pub(crate) fn with(config: &str) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "these tests make cgroups and load probes: run them as root"
        );
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        // A key before the first table is one of the top.
        let config = format!("group = \"{GROUP}\"\nlinger_seconds = 0\n{config}");
        fs::write(dir.path().join("config.toml"), config).unwrap();
        install(
            env!("CARGO_BIN_EXE_capgate").as_ref(),
            &dir.path().join("capgate"),
        );
        let mut service = Self {
            child: spawn(dir.path()),
            dir,
        };
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

    /// Where jobs are kept.
    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// The client, where every user can execute it.
    pub(crate) fn capgate(&self) -> PathBuf {
        self.dir.path().join("capgate")
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Starts a successor of one that has ended.
    pub(crate) fn restart(&mut self) {
        self.wait();
        self.child = spawn(self.dir.path());
        self.until_it_serves();
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
        if uid != ROOT {
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
        command
    }

    /// What a command of capgate other than `run` comes to: exit code, stdout and stderr.
    pub(crate) fn ask(&self, uid: u32, arguments: &[&str]) -> (i32, String, String) {
        let mut command = self.command(uid, self.capgate());
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

impl Drop for Service {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            for signal in [Signal::SIGCONT, Signal::SIGTERM] {
                let _gone = kill(Pid::from_raw(self.pid()), signal);
            }
            let _ended = self.child.wait();
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
    Command::new(capgated())
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

/// The exit code as a shell shows it.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap())
}
