//! The wrapper and the recorder together.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;

use crate::{
    real::service::{Repository, SOMEBODY, Service, as_user},
    signals::{NAMES, REPORTER, kill, signal_group},
    stand::{Watched, is_alive, output, text, until},
    terminal::Terminal,
};

#[test]
fn exit_codes_and_deaths_pass_through() {
    let service = Service::start();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 77", 77),
        ("exit 255", 255),
        ("kill -SEGV $$", 139),
        ("kill -KILL $$", 137),
    ] {
        let repository = Repository::new();
        let output = output(&mut service.run(&repository, &[], &["sh", "-c", script]));
        assert_eq!(
            output.status.code(),
            Some(code),
            "{script}: {}",
            text(&output.stderr)
        );
        assert!(repository.ledger().complete, "{script}");
    }
}

#[test]
fn each_signal_arrives_once() {
    let service = Service::start();
    for group in [false, true] {
        let repository = Repository::new();
        let mut command = service.run(&repository, &[], &["perl", "-e", REPORTER]);
        let mut client = Watched::start_in_group(&mut command);
        let pid: i32 = client
            .line()
            .strip_prefix("ready ")
            .unwrap()
            .parse()
            .unwrap();
        for (signal, name) in NAMES {
            if group {
                signal_group(&mut client, signal, name);
            } else {
                kill(client.pid().as_raw(), signal);
                assert_eq!(client.line(), name);
            }
        }
        kill(pid, libc::SIGUSR2);
        assert_eq!(text(&client.output().stdout), "");
    }
}

#[test]
fn after_sigterm_the_tree_is_gone_and_the_ledger_says_interrupted() {
    let service = Service::start();
    let repository = Repository::new();
    // One of them has left the session and ignores the signal.
    let script =
        "setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 1000' & sleep 1000 & echo $! $$; wait";
    let mut client = Watched::start(&mut service.run(&repository, &[], &["sh", "-c", script]));
    let pids: Vec<i32> = [client.line(), client.line()]
        .join(" ")
        .split(' ')
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 3);
    kill(client.pid().as_raw(), libc::SIGTERM);
    let output = client.output();
    assert_eq!(output.status.code(), Some(143), "{}", text(&output.stderr));
    assert!(!pids.iter().any(|&pid| is_alive(pid)), "{pids:?}");
    assert_eq!(repository.ledger().recording.lost["interrupted"], 1);
}

#[test]
fn a_runner_that_cancels_a_job_that_will_not_end() {
    let service = Service::start();
    let repository = Repository::new();
    let script = r#"$SIG{INT} = $SIG{TERM} = sub { syswrite STDOUT, "no\n" }; $| = 1; print fork ? "" : "$$\n", "\n"; sleep 9 while 1"#;
    let mut client = Watched::start(&mut service.run(&repository, &[], &["perl", "-e", script]));
    let mut pids = Vec::new();
    until("both have said who they are", || {
        pids.extend(client.line().parse::<i32>().ok());
        !pids.is_empty()
    });
    kill(client.pid().as_raw(), libc::SIGINT);
    while client.line() != "no" {}
    kill(client.pid().as_raw(), libc::SIGTERM);
    while client.line() != "no" {}
    kill(client.pid().as_raw(), libc::SIGKILL);
    until("the tree is gone", || {
        !pids.iter().any(|&pid| is_alive(pid))
    });
    until("the job is lost", || service.jobs()[0]["state"] == "lost");
    assert!(!repository.has_ledger());
}

#[test]
fn a_killed_client_takes_its_job_along() {
    let service = Service::start();
    let repository = Repository::new();
    let script = "setsid sleep 1000 & echo $! $$; exec sleep 1000";
    let mut client = Watched::start(&mut service.run(&repository, &[], &["sh", "-c", script]));
    let pids: Vec<i32> = client
        .line()
        .split(' ')
        .map(|pid| pid.parse().unwrap())
        .collect();
    kill(client.pid().as_raw(), libc::SIGKILL);
    until("the tree is gone", || {
        !pids.iter().any(|&pid| is_alive(pid))
    });
    until("the job is lost", || service.jobs()[0]["state"] == "lost");
    assert!(!repository.has_ledger());
}

#[test]
fn what_a_background_process_writes_late_is_recorded() {
    let service = Service::start();
    let repository = Repository::new();
    let script = "(sleep 1; echo x > late) & exit 0";
    let output = output(&mut service.run(&repository, &["--record"], &["sh", "-c", script]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(repository.ledger().recording.write_paths.contains("late"));
}

#[test]
fn what_is_left_over_is_killed_and_named() {
    let service = Service::start();
    let repository = Repository::new();
    let script = "setsid sleep 1000 & echo $!";
    let output = output(&mut service.run(&repository, &[], &["sh", "-c", script]));
    let pid: i32 = text(&output.stdout).trim().parse().unwrap();
    assert!(!is_alive(pid));
    assert!(
        text(&output.stderr).contains("sleep"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_first_system_call_is_recorded() {
    let service = Service::start();
    let repository = Repository::new();
    for round in 0..40 {
        let name = format!("f{round}");
        let output = output(&mut service.run(&repository, &["--record"], &["touch", &name]));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let recording = repository.ledger().recording;
        assert_eq!(recording.write_paths.iter().collect::<Vec<_>>(), [&name]);
        assert_eq!(recording.execs.len(), 1);
    }
}

#[test]
fn the_command_is_its_user_with_all_that_was() {
    let service = Service::start();
    let repository = Repository::of(SOMEBODY);
    let script = "id -u; id -g; id -G; umask; pwd; ulimit -n; env | grep -v '^_=' | sort; grep -E '^(NoNewPrivs|Sig|Cap)' /proc/self/status; ls /proc/self/fd; cat /proc/self/oom_score_adj; nice";
    let mut bare = Command::new("sh");
    bare.args(["-c", script])
        .current_dir(repository.path(""))
        .stdin(Stdio::null());
    let mut wrapped = service.run_as(SOMEBODY, &repository, &["--record"], &["sh", "-c", script]);
    as_user(&mut bare, SOMEBODY);
    for command in [&mut bare, &mut wrapped] {
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("ODD", "a\nb");
    }
    let (bare, wrapped) = (output(&mut bare), output(&mut wrapped));
    assert_eq!(wrapped.status.code(), Some(0), "{}", text(&wrapped.stderr));
    assert_eq!(text(&wrapped.stdout), text(&bare.stdout));
    assert!(text(&bare.stdout).contains("NoNewPrivs:\t0"));
}

#[test]
fn sudo_works_in_a_job() {
    let service = Service::start();
    let repository = Repository::new();
    let output = output(&mut service.run(&repository, &["--record"], &["sudo", "-n", "id", "-u"]));
    assert_eq!(text(&output.stdout), "0\n", "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
    assert!(
        repository
            .ledger()
            .recording
            .execs
            .iter()
            .any(|it| it.ends_with("/sudo"))
    );
}

#[test]
fn stdin_and_the_terminal_are_the_commands() {
    let service = Service::start();
    let repository = Repository::new();
    let mut child = service
        .run(&repository, &[], &["cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo").unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.stdout, b"one\ntwo");
    assert_eq!(done.status.code(), Some(0));

    let script = "test -t 0 -a -t 1 -a -t 2 && echo on a terminal; exec cat";
    let mut terminal = Terminal::start(&mut service.run(&repository, &[], &["sh", "-c", script]));
    terminal.expect("on a terminal");
    terminal.type_in("line\n");
    terminal.expect("line\r\nline\r\n");
    terminal.type_in("\x03");
    terminal.expect("capgate: job-failed, also: incomplete");
    assert_eq!(terminal.wait().code(), Some(130));
}

#[test]
fn no_job_starts_inside_a_job() {
    let service = Service::start();
    let (outer, inner) = (Repository::new(), Repository::new());
    let nested = format!(
        "cd {} && exec {} run --socket {} -- touch ran",
        inner.path("").display(),
        env!("CARGO_BIN_EXE_capgate"),
        service.socket().display()
    );
    let output = output(&mut service.run(&outer, &["--record"], &["sh", "-c", &nested]));
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("runs inside a job"),
        "{}",
        text(&output.stderr)
    );
    assert!(!inner.path("ran").exists() && !inner.has_ledger());
}

#[test]
fn a_daemon_that_is_killed_takes_no_ledger_with_it_and_its_successor_cleans_up() {
    let mut service = Service::start();
    let repository = Repository::new();
    fs::write(
        repository.path("tests/capability.actual.json"),
        "of an earlier run",
    )
    .unwrap();
    let script = "echo $$; exec sleep 1000";
    let mut client = Watched::start(&mut service.run(&repository, &[], &["sh", "-c", script]));
    let command: i32 = client.line().parse().unwrap();
    let job = service.job();
    service.signal(Signal::SIGKILL);
    let output = client.output();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(
        text(&output.stderr).lines().count(),
        1,
        "{}",
        text(&output.stderr)
    );
    assert!(!repository.has_ledger());
    assert!(!is_alive(command));

    service.restart();
    assert_eq!(service.jobs()[0]["job"], job.as_str());
    assert_eq!(service.jobs()[0]["state"], "lost");
    assert_eq!(cgroups_of(&job), 0);
    let output = crate::stand::output(&mut service.run(&repository, &[], &["true"]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_daemon_that_is_told_to_end_says_so_to_its_clients() {
    let service = Service::start();
    let repository = Repository::new();
    let script = "echo $$; exec sleep 1000";
    let mut client = Watched::start(&mut service.run(&repository, &[], &["sh", "-c", script]));
    let command: i32 = client.line().parse().unwrap();
    service.signal(Signal::SIGTERM);
    let output = client.output();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("capgated was stopped") && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert!(!repository.has_ledger());
    assert!(!is_alive(command));
}

#[test]
fn a_job_can_be_stopped_by_name() {
    let service = Service::start();
    let repository = Repository::new();
    let script = "echo $$; exec sleep 1000";
    let mut client = Watched::start(&mut service.run(&repository, &[], &["sh", "-c", script]));
    let command: i32 = client.line().parse().unwrap();
    service.ask(&["stop", &service.job()]);
    let output = client.output();
    assert!(!is_alive(command));
    assert_eq!(output.status.code(), Some(137), "{}", text(&output.stderr));
    assert_eq!(repository.ledger().recording.lost["interrupted"], 1);
}

/// How many cgroups a job still has, anywhere.
pub(crate) fn cgroups_of(job: &str) -> usize {
    let found = Command::new("find")
        .args(["/sys/fs/cgroup", "-type", "d", "-name"])
        .arg(format!("capgate-{job}"))
        .output()
        .unwrap();
    text(&found.stdout).lines().count()
}
