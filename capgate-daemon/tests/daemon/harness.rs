//! A daemon of the test's own, and clients of all kinds.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use capgate_common::protocol::{JobInfo, Response, Sealed, Status};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A group that every Debian has, for those who may record.
pub(crate) const GROUP: &str = "daemon";
/// Its number.
pub(crate) const GID: u32 = 1;
/// Users that need no entry anywhere.
pub(crate) const ALICE: u32 = 64_101;
pub(crate) const BOB: u32 = 64_102;
/// The contract of a job that does nothing.
pub(crate) const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where cgroup2 is mounted.
pub(crate) fn cgroup_root() -> PathBuf {
    let host = capgate_daemon::support::Host::look().unwrap();
    host.cgroup2.expect("this host has no cgroup2")
}

/// The cgroup of a job, wherever it is.
pub(crate) fn job_cgroup(job: &str) -> Option<PathBuf> {
    let name = format!("capgate-{job}");
    let mut open = vec![cgroup_root()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() == *name {
                    return Some(entry.path());
                }
                open.push(entry.path());
            }
        }
    }
    None
}

/// A cgroup of the test's own, removed at the end.
pub(crate) struct TestCgroup(pub(crate) PathBuf);

impl TestCgroup {
    pub(crate) fn new(name: &str) -> Self {
        let path = cgroup_root().join(format!("test-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Gives it to a user, as a service manager delegates.
    pub(crate) fn delegate(&self, uid: u32) {
        for name in [
            "",
            "cgroup.procs",
            "cgroup.threads",
            "cgroup.subtree_control",
        ] {
            std::os::unix::fs::chown(self.0.join(name), Some(uid), Some(uid)).unwrap();
        }
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ended = fs::write(self.0.join("cgroup.kill"), "1");
        eventually_or("the test's cgroup goes", || {
            !self.0.exists() || fs::remove_dir(&self.0).is_ok()
        });
    }
}

/// [`eventually`], without a panic on the way out of another one.
fn eventually_or(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > deadline {
            eprintln!("never happened: {what}");
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A directory that everybody may enter, with what clients need.
pub(crate) struct Place {
    directory: TempDir,
    /// The talking program, where every user can execute it.
    talk: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "these tests make cgroups and load probes: run them as root"
        );
        let directory = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open.clone()).unwrap();
        let built = std::env::current_exe().unwrap();
        let built = built.ancestors().nth(2).unwrap().join("examples/talk");
        let talk = directory.path().join("talk");
        fs::copy(&built, &talk).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        fs::set_permissions(&talk, open).unwrap();
        Self { directory, talk }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A fresh directory of a user's own.
    pub(crate) fn home(&self, uid: u32) -> PathBuf {
        let path = self.path(&format!("home-{uid}"));
        fs::create_dir_all(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(uid), Some(uid)).unwrap();
        path
    }
}

/// A running daemon.
pub(crate) struct Daemon {
    pub(crate) place: Place,
    child: Child,
    log: PathBuf,
    wrapper: Vec<String>,
}

impl Daemon {
    /// A daemon with a configuration of its own.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_in(Place::new(), config)
    }

    pub(crate) fn start_in(place: Place, config: &str) -> Self {
        Self::start_through(place, config, &[])
    }

    /// Executed by another program.
    pub(crate) fn start_through(place: Place, config: &str, wrapper: &[String]) -> Self {
        // A key before the first table is one of the top.
        let config = format!("group = \"{GROUP}\"\nlinger_seconds = 0\n{config}");
        fs::write(place.path("config.toml"), config).unwrap();
        fs::create_dir_all(place.path("run")).unwrap();
        fs::set_permissions(place.path("run"), fs::Permissions::from_mode(0o755)).unwrap();
        let log = place.path("log");
        let mut daemon = Self {
            child: Self::spawn(&place, &log, wrapper),
            place,
            log,
            wrapper: wrapper.to_vec(),
        };
        daemon.wait_until_serving();
        daemon
    }

    fn command(place: &Place, wrapper: &[String]) -> Command {
        let program = [env!("CARGO_BIN_EXE_capgated").to_owned()];
        let words = [wrapper, &program].concat();
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("--socket")
            .arg(place.path("run/sock"))
            .arg("--store")
            .arg(place.path("store"))
            .arg("--config")
            .arg(place.path("config.toml"))
            .stdin(Stdio::null());
        command
    }

    fn spawn(place: &Place, log: &Path, wrapper: &[String]) -> Child {
        let log = File::options().create(true).append(true).open(log).unwrap();
        Self::command(place, wrapper).stderr(log).spawn().unwrap()
    }

    /// Runs a second one at the same place to its end: what it said.
    pub(crate) fn second(&self) -> String {
        let output = Self::command(&self.place, &[]).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn wait_until_serving(&mut self) {
        let socket = self.socket();
        let deadline = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(&socket).is_err() {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "the daemon does not serve: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.place.path("run/sock")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// A client of a user who may record, in a directory of its own.
    pub(crate) fn client(&self, uid: u32) -> Talk {
        Talker::new(self).user(uid).start()
    }

    pub(crate) fn root(&self) -> Talk {
        self.client(0)
    }

    /// Kills it as a crash would, and starts it again.
    pub(crate) fn crash_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Self::spawn(&self.place, &self.log, &self.wrapper);
        self.wait_until_serving();
    }

    /// Tells it to end, and waits until it has.
    pub(crate) fn stop(&mut self) -> std::process::ExitStatus {
        kill(Pid::from_raw(self.pid()), Signal::SIGTERM).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ended = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
            let _ended = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the daemon said:\n{}", self.log());
        }
    }
}

/// How a client is to be.
pub(crate) struct Talker<'a> {
    place: &'a Place,
    socket: PathBuf,
    uid: u32,
    member: bool,
    wrapper: Vec<String>,
    cgroup: Option<PathBuf>,
}

impl<'a> Talker<'a> {
    pub(crate) fn new(daemon: &'a Daemon) -> Self {
        Self::at(&daemon.place, daemon.socket())
    }

    /// A client of whoever serves at that socket.
    pub(crate) fn at(place: &'a Place, socket: PathBuf) -> Self {
        Self {
            place,
            socket,
            uid: 0,
            member: true,
            wrapper: Vec::new(),
            cgroup: None,
        }
    }

    pub(crate) fn user(mut self, uid: u32) -> Self {
        self.uid = uid;
        self
    }

    /// Not in the group.
    pub(crate) fn stranger(mut self) -> Self {
        self.member = false;
        self
    }

    /// Executed by another program: `unshare --mount`.
    pub(crate) fn through(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// In a cgroup, by its directory.
    pub(crate) fn in_cgroup(mut self, directory: &Path) -> Self {
        self.cgroup = Some(directory.to_owned());
        self
    }

    pub(crate) fn start(self) -> Talk {
        let place = self.place;
        let mut words = self.wrapper.clone();
        words.push(place.talk.display().to_string());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(place.home(self.uid))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let procs = self.cgroup.map(|directory| directory.join("cgroup.procs"));
        let groups: Vec<u32> = if self.member { vec![GID] } else { vec![] };
        let uid = self.uid;
        // SAFETY: the child of a test process has one thread; what it calls before exec takes no lock that another thread
        // of the test may have held, but for the allocator's, which the C library makes usable after fork.
        unsafe {
            command.pre_exec(move || {
                if let Some(procs) = &procs {
                    fs::write(procs, "0")?;
                }
                let groups: Vec<_> = groups.iter().map(|&gid| gid.into()).collect();
                nix::unistd::setgroups(&groups)?;
                nix::unistd::setgid(uid.into())?;
                nix::unistd::setuid(uid.into())?;
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        Talk {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            socket: self.socket,
        }
    }
}

/// A talking client, see `examples/talk.rs`.
pub(crate) struct Talk {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    socket: PathBuf,
}

/// A job as its client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) job: String,
    pub(crate) token: String,
}

impl Talk {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// One command, one line.
    pub(crate) fn tell(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    /// A command whose answer is not waited for.
    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut said = String::new();
        self.stdout.read_line(&mut said).unwrap();
        said.trim_end().to_owned()
    }

    /// Makes a connection and greets.
    pub(crate) fn connect(&mut self, name: &str) -> String {
        let socket = self.socket.display().to_string();
        self.tell(&format!("connect {name} {socket}"))
    }

    pub(crate) fn open(&mut self, name: &str) -> String {
        let socket = self.socket.display().to_string();
        self.tell(&format!("open {name} {socket}"))
    }

    /// Makes a connection that is greeted.
    pub(crate) fn connected(mut self, name: &str) -> Self {
        let said = self.connect(name);
        assert!(said.contains("\"hello\""), "{said}");
        self
    }

    pub(crate) fn ask(&mut self, name: &str, request: &Value) -> Response {
        let said = self.tell(&format!("ask {name} {request}"));
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{said}: {error}"))
    }

    /// A request that has to be refused: the sentence.
    pub(crate) fn refused(&mut self, name: &str, request: &Value) -> String {
        match self.ask(name, request) {
            Response::Error { message } => message,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(crate) fn try_start(&mut self, name: &str, start: &Value) -> Response {
        let said = self.tell(&format!("start {name} {start}"));
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{said}: {error}"))
    }

    /// Starts a job on a connection.
    pub(crate) fn start_job(&mut self, name: &str, contract: Option<&str>) -> Started {
        match self.try_start(name, &start(contract)) {
            Response::Started { job, token, .. } => Started { job, token },
            other => panic!("not started: {other:?}"),
        }
    }

    /// Enters on a connection made for that, and then runs a command instead of this process.
    pub(crate) fn enter_and_run(mut self, job: &Started, command: &str) -> Talk {
        self.connect("enter");
        let response = self.ask("enter", &enter(&job.token));
        assert!(matches!(response, Response::Entered), "{response:?}");
        self.say(&format!("exec {command}"));
        self
    }

    /// Ends a job whose command has ended.
    pub(crate) fn finish(&mut self, name: &str, outcome: &Value) -> Sealed {
        let request = json!({"request": "finish", "outcome": outcome});
        match self.ask(name, &request) {
            Response::Sealed(sealed) => *sealed,
            other => panic!("not sealed: {other:?}"),
        }
    }

    pub(crate) fn jobs(&mut self, name: &str) -> Vec<JobInfo> {
        match self.ask(name, &json!({"request": "ps"})) {
            Response::Jobs { jobs } => jobs,
            other => panic!("no list: {other:?}"),
        }
    }

    pub(crate) fn status(&mut self, name: &str) -> Status {
        match self.ask(name, &json!({"request": "status"})) {
            Response::Status(status) => *status,
            other => panic!("no status: {other:?}"),
        }
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

pub(crate) fn start(contract: Option<&str>) -> Value {
    json!({
        "request": "start",
        "argv": ["test"],
        "cwd": "/",
        "contract": contract,
        "contract_source": null,
        "contract_path": null,
        "record": contract.is_none(),
        "env": {},
        "labels": ["a-label"],
        "tmpdir": null,
    })
}

pub(crate) fn contract(cpu_budget: u64) -> String {
    json!({"allow_net": [], "cpu_budget": cpu_budget, "writes": EMPTY}).to_string()
}

pub(crate) fn enter(token: &str) -> Value {
    json!({"request": "enter", "token": token})
}

pub(crate) fn exited(status: i32) -> Value {
    json!({"how": "exited", "code": status})
}

pub(crate) fn show(job: &str) -> Value {
    json!({"request": "show", "job": job})
}

pub(crate) fn stop(job: &str) -> Value {
    json!({"request": "stop", "job": job})
}

/// Whether a process is there and not a zombie.
pub(crate) fn runs(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
