//! A daemon of the test's own. What more a test binary does with it is in that binary, as another `impl Service`.

use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Longest time that one job, or one thing that is waited for, may take. Machines that run these tests are busy, and some are
/// emulated.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A group that every Debian has, for those who may record.
const GROUP: &str = "daemon";
/// Its number.
const GID: u32 = 1;

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where cargo put the programs.
pub(crate) fn built() -> &'static Path {
    let client = Path::new(env!("CARGO_BIN_EXE_capgate"));
    client.parent().unwrap_or(client)
}

/// Copies a program to where every user can execute it. By another process: one that this process wrote could still be open for
/// writing in a child that another test forks at the moment, and then nobody may execute it.
pub(crate) fn install(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    let done = copy.args([from, to]).status();
    assert!(done.unwrap().success(), "{copy:?}");
    fs::set_permissions(to, Permissions::from_mode(0o755)).unwrap();
}

/// Makes a command run as a user who may record. Root always may.
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

/// How a daemon is started.
pub(crate) struct Launch<'a> {
    /// Where `capgate` and `capgated` are.
    pub(crate) programs: &'a Path,
    /// How long probes stay attached after the last job, in seconds.
    pub(crate) linger: u32,
    /// Lines of configuration.
    pub(crate) config: &'a str,
    /// Further arguments.
    pub(crate) arguments: &'a [&'a str],
    /// What is done to its directory first.
    pub(crate) prepare: &'a dyn Fn(&Path),
}

impl Default for Launch<'_> {
    fn default() -> Self {
        Self {
            programs: built(),
            linger: 0,
            config: "",
            arguments: &[],
            prepare: &|_| {},
        }
    }
}

/// A running daemon.
pub(crate) struct Service {
    /// Its socket, store, configuration and log, and a copy of the client.
    pub(crate) dir: tempfile::TempDir,
    /// The daemon's process, while there is one.
    pub(crate) child: Option<Child>,
    command: (PathBuf, Vec<OsString>),
}

impl Service {
    pub(crate) fn launch(launch: &Launch<'_>) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "these tests make cgroups and load probes: run them as root"
        );
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        // A key before the first table is one of the top.
        let Launch { linger, config, .. } = launch;
        let config = format!("group = \"{GROUP}\"\nlinger_seconds = {linger}\n{config}");
        fs::write(dir.path().join("config.toml"), config).unwrap();
        fs::create_dir(dir.path().join("store")).unwrap();
        (launch.prepare)(dir.path());
        install(
            &launch.programs.join("capgate"),
            &dir.path().join("capgate"),
        );
        let daemon = launch.programs.join("capgated");
        assert!(
            daemon.exists(),
            "there is no {}: run cargo build -p capgate-daemon first",
            daemon.display()
        );
        let mut arguments: Vec<OsString> = launch.arguments.iter().map(OsString::from).collect();
        for (option, file) in [
            ("--socket", "sock"),
            ("--store", "store"),
            ("--config", "config.toml"),
        ] {
            arguments.extend([option.into(), dir.path().join(file).into()]);
        }
        let mut service = Self {
            dir,
            command: (daemon, arguments),
            child: None,
        };
        service.serve();
        service
    }

    /// Starts the daemon, or its successor, and waits until it serves.
    pub(crate) fn serve(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .unwrap();
        let (program, arguments) = &self.command;
        let mut daemon = Command::new(program);
        daemon.args(arguments).stdin(Stdio::null());
        let mut child = daemon.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        // It listens before it has loaded its probes, which takes an emulated machine longer than a client waits for an answer.
        until("the daemon serves", || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon ended: {}", self.log());
            let mut status = Command::new(self.client());
            status.args(["status", "--socket"]).arg(self.socket());
            status.output().unwrap().status.success()
        });
        self.child = Some(child);
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    /// The client, where every user can execute it.
    pub(crate) fn client(&self) -> PathBuf {
        self.dir.path().join("capgate")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child
            && child.try_wait().is_ok_and(|ended| ended.is_none())
            && let Ok(pid) = i32::try_from(child.id())
        {
            for signal in [Signal::SIGCONT, Signal::SIGTERM] {
                let _gone = kill(Pid::from_raw(pid), signal);
            }
            let _ended = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the daemon said:\n{}", self.log());
        }
    }
}
