//! The daemon as a service manager runs it: with few privileges, and telling how it is.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::{fd::AsRawFd, unix::net::UnixDatagram},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use capgate_common::protocol::Response;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::{
    absent,
    harness::{
        ALICE, Daemon, Place, Talker, TestCgroup, contract, exited, job_cgroup, runs, start,
    },
};

/// A line of `/proc/PID/status`.
fn status(pid: i32, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap().trim().to_owned()
}

/// The capabilities that the unit leaves to the service, as setpriv names them.
fn of_the_unit() -> Vec<String> {
    let unit = include_str!("../../dist/capgated.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .unwrap();
    line.split_whitespace()
        .map(|name| name.strip_prefix("CAP_").unwrap().to_ascii_lowercase())
        .collect()
}

#[test]
fn the_capabilities_of_the_unit_are_enough_for_everything() {
    // In a cgroup of its own, as every service is.
    let own = TestCgroup::new("service");
    let kept = of_the_unit().join(",+");
    let wrapper = [
        "sh".to_owned(),
        "-c".to_owned(),
        format!("echo $$ > {}/cgroup.procs; exec \"$@\"", own.0.display()),
        "sh".to_owned(),
        "setpriv".to_owned(),
        "--no-new-privs".to_owned(),
        "--bounding-set".to_owned(),
        format!("-all,+{kept}"),
    ];
    let mut daemon = Daemon::start_through(Place::new(), "", &wrapper);
    // The second time after a crash.
    for _ in 0..2 {
        let mut client = daemon.client(ALICE).connected("lease");
        let home = daemon.place.home(ALICE);
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(home, closed).unwrap();
        let job = client.start_job("lease", Some(&contract(0)));
        let script =
            "mkdir -p -m 700 d; echo > d/made; rm d/made; trap '' XCPU; while :; do :; done";
        daemon.client(ALICE).enter_and_run(&job, script).wait();
        let sealed = client.finish("lease", &exited(137));
        assert_eq!(sealed.exit_code, 124, "{:?}", sealed.judgement);
        assert!(sealed.ledger.complete, "{:?}", sealed.ledger.recording.lost);
        let lost = client.start_job("lease", None);
        let command = daemon.client(ALICE).enter_and_run(&lost, "sleep 600");
        let cgroup = job_cgroup(&lost.job).unwrap();
        assert!(cgroup.starts_with(&own.0), "{}", cgroup.display());
        daemon.crash_and_restart();
        daemon.client(ALICE).connected("c").status("c");
        assert!(!cgroup.exists() && !runs(command.pid()));
    }
}

#[test]
fn it_keeps_no_capability_that_it_does_not_need() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("c");
    client.status("c");
    let kept = u64::from_str_radix(&status(daemon.pid(), "CapEff:"), 16).unwrap();
    // CAP_CHOWN, CAP_SETUID, CAP_SYS_MODULE, CAP_SYS_BOOT (linux/capability.h).
    for gone in [0, 7, 16, 22] {
        assert_eq!(kept & (1 << gone), 0, "{kept:x}");
    }
    assert_eq!(status(daemon.pid(), "NoNewPrivs:"), "1");
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    for thread in threads {
        let text = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        assert!(text.contains(&format!("CapPrm:\t{kept:016x}")), "{text}");
    }
}

#[test]
fn the_service_manager_is_told_that_it_is_ready_lives_and_stops() {
    let place = Place::new();
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let wrapper = [
        "env".to_owned(),
        format!("NOTIFY_SOCKET={}", path.display()),
        "WATCHDOG_USEC=200000".to_owned(),
    ];
    let mut daemon = Daemon::start_through(place, "", &wrapper);
    let hear = || {
        let mut bytes = [0; 256];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).trim().to_owned()
    };
    assert_eq!(hear(), "READY=1");
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(hear(), "WATCHDOG=1");
    }
    assert!(began.elapsed() > Duration::from_millis(300));
    assert!(daemon.stop().success());
    socket.set_nonblocking(true).unwrap();
    let mut said = Vec::new();
    let mut bytes = [0; 256];
    loop {
        match socket.recv(&mut bytes) {
            Ok(len) => said.push(String::from_utf8_lossy(&bytes[..len]).trim().to_owned()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(said.last().map(String::as_str), Some("STOPPING=1"));
}

#[test]
fn little_locked_memory_is_enough() {
    let wrapper = ["prlimit", "--memlock=65536:65536"].map(str::to_owned);
    let daemon = Daemon::start_through(Place::new(), "", &wrapper);
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    daemon.client(ALICE).enter_and_run(&job, "true").wait();
    assert_eq!(client.finish("lease", &exited(0)).exit_code, 0);
}

/// A file system that never answers, until this is dropped.
struct Silent {
    device: Option<File>,
    place: std::path::PathBuf,
}

impl Silent {
    fn mount(place: std::path::PathBuf) -> Self {
        fs::create_dir(&place).unwrap();
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .unwrap();
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        mount(
            Some("silent"),
            &place,
            Some("fuse"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .unwrap();
        Self {
            device: Some(device),
            place,
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        drop(self.device.take());
        umount2(&self.place, MntFlags::MNT_DETACH).unwrap();
    }
}

#[test]
fn a_file_system_that_does_not_answer_delays_nobody_but_its_own_job() {
    let name = "a_file_system_that_does_not_answer_delays_nobody_but_its_own_job";
    if absent::skip(name, "fuse").unwrap() {
        return;
    }
    let daemon = Daemon::start("[per_uid]\njobs = 1\n");
    let silent = Silent::mount(daemon.place.path("silent"));
    let mut stuck = Talker::new(&daemon).user(ALICE).start().connected("lease");
    let began = Instant::now();
    stuck.say(&format!(
        "start-at {} lease {}",
        silent.place.display(),
        start(None)
    ));
    // Everybody else is served meanwhile.
    let mut root = daemon.root().connected("lease");
    let job = root.start_job("lease", None);
    daemon.root().enter_and_run(&job, "true").wait();
    root.finish("lease", &exited(0));
    assert!(began.elapsed() < Duration::from_secs(10));

    let said = stuck.hear();
    assert!(said.contains("does not answer"), "{said}");
    // Its place is taken for as long as a thread hangs there, and no longer.
    match stuck.try_start("lease", &start(None)) {
        Response::Error { message } => assert!(message.contains("per_uid.jobs"), "{message}"),
        other => panic!("{other:?}"),
    }
    drop(silent);
    crate::harness::eventually("the place is free", || {
        matches!(
            stuck.try_start("lease", &start(None)),
            Response::Started { .. }
        )
    });
}

#[test]
fn the_version_and_the_help_need_no_root() {
    for option in ["--version", "--help"] {
        let output = Command::new(env!("CARGO_BIN_EXE_capgated"))
            .arg(option)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success() && !output.stdout.is_empty());
    }
}
