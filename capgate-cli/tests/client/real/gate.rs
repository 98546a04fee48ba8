//! The table of exit codes by what jobs really do, through the service and with a private daemon.

use std::{fs, os::unix::process::CommandExt, process::Command};

use capgate_common::{evidence::Evidence, verdict::Verdict};

use crate::{
    real::{
        service::{Repository, SOMEBODY, Service},
        wrapper::cgroups_of,
    },
    signals::kill,
    stand::{EMPTY, Watched, fails, is_alive, output, text},
};

/// A connection attempt that needs no program.
const CONNECT: &str = "exec 3<>/dev/tcp/127.0.0.1/9";
/// A second of user CPU time, however busy the machine is.
const BURN: &str = "perl -e 'do { $_++ for 1..100_000 } while (times)[0] < 1.2'";

/// What is run, under which contract, with which options; the exit code and the verdict.
type Row<'a> = (&'a str, String, &'a [&'a str], i32, &'a [Verdict]);

/// The contract of a job that does nothing, with a budget and further keys.
fn contract(cpu_budget: u32, more: &str) -> String {
    EMPTY
        .replace("30", &cpu_budget.to_string())
        .replace('}', &format!("{more}}}"))
}

#[test]
fn every_row_of_the_table() {
    let empty = || contract(30, "");
    let rows: [Row<'_>; 16] = [
        ("true", empty(), &[], 0, &[Verdict::Match]),
        ("exit 3", empty(), &[], 3, &[Verdict::JobFailed]),
        (
            CONNECT,
            contract(30, "").replace("[]", r#"["127.0.0.1:9"]"#),
            &[],
            1,
            &[Verdict::JobFailed],
        ),
        (
            &format!("({CONNECT}) 2>/dev/null; true"),
            empty(),
            &[],
            120,
            &[Verdict::Net],
        ),
        (
            &format!("({CONNECT}) 2>/dev/null; true"),
            contract(30, "").replace("[]", r#"["127.0.0.0/8:*"]"#),
            &[],
            0,
            &[Verdict::Match],
        ),
        (
            CONNECT,
            empty(),
            &[],
            1,
            &[Verdict::JobFailed, Verdict::Net],
        ),
        ("echo > new", empty(), &[], 120, &[Verdict::Writes]),
        (
            "echo > new",
            contract(30, r#", "ignore_writes": ["new"]"#),
            &[],
            0,
            &[Verdict::Match],
        ),
        (
            "echo > t; mv t t2; rm t2",
            contract(30, r#", "write_paths": []"#),
            &[],
            0,
            &[Verdict::Match],
        ),
        (
            "/bin/true",
            contract(30, r#", "allow_exec": ["/**/bash"]"#),
            &[],
            120,
            &[Verdict::Execs],
        ),
        (BURN, contract(0, ""), &[], 120, &[Verdict::Cpu]),
        (
            &format!("echo > new; {BURN}; ({CONNECT}) 2>/dev/null; true"),
            contract(0, ""),
            &[],
            120,
            &[Verdict::Net, Verdict::Cpu, Verdict::Writes],
        ),
        (
            "echo > new; exit 4",
            empty(),
            &["--record"],
            4,
            &[Verdict::JobFailed, Verdict::Recorded],
        ),
        (
            "echo > new",
            empty(),
            &["--record"],
            0,
            &[Verdict::Recorded],
        ),
        ("exec /nowhere/x", empty(), &[], 127, &[Verdict::JobFailed]),
        (
            "while :; do :; done",
            contract(0, ""),
            &[],
            124,
            &[Verdict::CpuKill],
        ),
    ];
    let service = Service::start();
    for (script, contract, options, code, verdict) in rows {
        let repository = Repository::new();
        repository.contract(&contract);
        let output = output(&mut service.run(&repository, options, &["bash", "-c", script]));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{script}: {stderr}");
        let ledger = repository.ledger();
        assert_eq!(ledger.verdict, verdict, "{script}: {stderr}");
        assert!(ledger.complete, "{script}: {stderr}");
    }
}

#[test]
fn a_command_that_could_not_be_started() {
    let service = Service::start();
    let repository = Repository::new();
    fails(
        &mut service.run(&repository, &[], &["no-such-command"]),
        127,
        &["cannot run no-such-command"],
    );
    fails(
        &mut service.run(&repository, &[], &["./tests"]),
        126,
        &["permission denied"],
    );
}

#[test]
fn a_way_out_of_the_cgroup_is_an_escape() {
    let service = Service::start();
    let repository = Repository::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let root = mounts
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .and_then(|line| line.split(' ').nth(4))
        .unwrap();
    let script = format!("sleep 0.1 & echo $! > {root}/cgroup.procs; wait");
    let output = output(&mut service.run(&repository, &[], &["bash", "-c", &script]));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(120), "{stderr}");
    assert!(stderr.contains("cgroup-leave"), "{stderr}");
    assert!(
        repository
            .ledger()
            .recording
            .escapes
            .contains("cgroup-leave")
    );
}

#[test]
fn a_job_that_writes_its_own_contract_fails_by_the_old_one() {
    let service = Service::start();
    let repository = Repository::new();
    let wider = EMPTY.replace("[]", r#"["*:*"]"#);
    let script =
        format!("echo '{wider}' > tests/capability.ledger.json; ({CONNECT}) 2>/dev/null; true");
    let output = output(&mut service.run(&repository, &[], &["bash", "-c", &script]));
    assert_eq!(output.status.code(), Some(120));
    assert_eq!(
        repository.ledger().verdict,
        [Verdict::Net, Verdict::Writes, Verdict::Escapes]
    );
    assert!(
        repository
            .ledger()
            .recording
            .escapes
            .contains("contract-written")
    );
}

#[test]
fn the_report_says_who_did_it() {
    let service = Service::start();
    let repository = Repository::of(SOMEBODY);
    let script = "sh -c 'touch sub-file'; true";
    let mut run = service.run_as(
        SOMEBODY,
        &repository,
        &["--evidence", "evidence.json"],
        &["sh", "-c", script],
    );
    let output = output(&mut run);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(120), "{stderr}");
    let who = stderr
        .lines()
        .find(|line| line.contains("by `touch sub-file`"))
        .unwrap();
    assert!(
        who.contains(" < `sh -c touch sub-file`")
            && who.contains("first at ")
            && who.contains("once"),
        "{who}"
    );
    let evidence =
        Evidence::from_json(&fs::read(repository.path("evidence.json")).unwrap()).unwrap();
    assert_eq!(evidence.counts.imbalance(), None);
    assert!(
        evidence
            .entries
            .iter()
            .any(|entry| entry.entry == "sub-file")
    );
    // And the files are the user's.
    use std::os::unix::fs::MetadataExt as _;
    for name in ["evidence.json", "tests/capability.actual.json"] {
        assert_eq!(fs::metadata(repository.path(name)).unwrap().uid(), SOMEBODY);
    }
}

#[test]
fn plain_programs_are_green() {
    let service = Service::start();
    let repository = Repository::new();
    for script in [
        "ls -l / >/dev/null",
        "id",
        "tar cf - /etc/passwd >/dev/null 2>&1",
        "git --version",
        "getent passwd root",
    ] {
        let output = output(&mut service.run(&repository, &[], &["sh", "-c", script]));
        assert_eq!(
            output.status.code(),
            Some(0),
            "{script}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn the_same_behaviour_gives_the_same_bytes() {
    let service = Service::start();
    let repository = Repository::new();
    let script = format!(
        "mkdir -p d; for i in 3 1 2; do echo > d/$i; done; mv d/1 d/4; ({CONNECT}) 2>/dev/null; true"
    );
    let mut seen = Vec::new();
    for _ in 0..3 {
        let _ = fs::remove_dir_all(repository.path("d"));
        output(&mut service.run(&repository, &["--record"], &["bash", "-c", &script]));
        seen.push(fs::read_to_string(repository.path("tests/capability.actual.json")).unwrap());
    }
    assert!(seen.iter().all(|ledger| *ledger == seen[0]), "{seen:#?}");
}

#[test]
fn a_full_disk_is_no_ledger() {
    let service = Service::with_store(|store| {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k,nr_inodes=64", "none"])
            .arg(store)
            .status()
            .unwrap();
        assert!(mounted.success());
    });
    let store = service.socket().with_file_name("store");
    let unmount = Unmount(store.clone());
    let repository = Repository::new();
    // The daemon keeps what it needs to notice a crash; what is left is taken away.
    let filled = Command::new("sh")
        .args(["-c", "cat /dev/zero > filler 2>/dev/null; test -s filler"])
        .current_dir(&store)
        .status()
        .unwrap();
    assert!(filled.success());
    let run = output(&mut service.run(&repository, &[], &["true"]));
    let stderr = text(&run.stderr);
    assert_eq!(run.status.code(), Some(125), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(!repository.has_ledger());
    drop(service);
    drop(unmount);
}

/// Takes a mount away at the end.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_private_daemon_gates_one_job_and_leaves_nothing() {
    let repository = Repository::new();
    let green = output(&mut repository.run_local(&[], &["true"]));
    assert_eq!(green.status.code(), Some(0), "{}", text(&green.stderr));
    assert!(
        text(&green.stderr).starts_with("capgate: match (job "),
        "{}",
        text(&green.stderr)
    );
    let red = output(&mut repository.run_local(
        &["--probe-set", "tracepoint", "--format", "json"],
        &["touch", "new"],
    ));
    assert_eq!(red.status.code(), Some(120), "{}", text(&red.stderr));
    let report: serde_json::Value = serde_json::from_slice(&red.stdout).unwrap();
    assert_eq!(report["verdict"], serde_json::json!(["writes"]));
    assert_eq!(report["ledger"]["write_paths"], serde_json::json!(["new"]));
    assert_eq!(cgroups_of(report["job"].as_str().unwrap()), 0);
    assert_eq!(repository.left(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn little_locked_memory_is_enough() {
    let repository = Repository::new();
    let mut run = repository.run_local(&[], &["true"]);
    // SAFETY: setrlimit is async-signal-safe.
    unsafe {
        run.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 64 << 10,
                rlim_max: 64 << 10,
            };
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit);
            Ok(())
        })
    };
    let output = output(&mut run);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_private_daemon_ends_with_a_client_that_is_killed() {
    let repository = Repository::new();
    let mut client =
        Watched::start(&mut repository.run_local(&[], &["sh", "-c", "echo $$; exec sleep 1000"]));
    let command: i32 = client.line().parse().unwrap();
    let pid = client.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let children: Vec<i32> = children
        .split_whitespace()
        .map(|it| it.parse().unwrap())
        .collect();
    // The daemon, the witness and the command.
    assert_eq!(children.len(), 3);
    kill(pid.as_raw(), libc::SIGKILL);
    crate::stand::until("all of them are gone", || {
        !is_alive(command) && !children.iter().any(|&pid| is_alive(pid))
    });
}

#[test]
fn a_key_during_a_private_job_ends_the_job_and_not_its_recorder() {
    let repository = Repository::new();
    let mut command = repository.run_local(&[], &["sh", "-c", "echo ready; exec sleep 1000"]);
    let mut terminal = crate::terminal::Terminal::start(&mut command);
    terminal.expect("ready");
    terminal.type_in("\x03");
    terminal.expect("capgate: job-failed, also: incomplete");
    assert_eq!(terminal.wait().code(), Some(130));
    assert_eq!(repository.ledger().recording.lost["interrupted"], 1);
    assert_eq!(repository.left(), Vec::<std::path::PathBuf>::new());
}
