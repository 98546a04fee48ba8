//! Every signal reaches the command once, whoever it was sent to.

use std::{fs, os::unix::process::CommandExt, process::Command, time::Duration};

use capgate_common::protocol::Outcome;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::stand::{Stand, Watched, is_alive, output, state, text, until};

/// Says each signal that it gets; ends with status 0 at SIGUSR2, and by itself after a while.
pub(crate) const REPORTER: &str = r#"
    for my $signal (qw(HUP INT QUIT TERM USR1 WINCH CONT URG ALRM NUM40)) {
        $SIG{$signal} = sub { syswrite STDOUT, "$signal\n" };
    }
    $SIG{USR2} = sub { exit 0 };
    syswrite STDOUT, "ready $$\n";
    my $end = time + 60;
    select undef, undef, undef, 1 while time < $end;
"#;

/// What it says of each; WINCH, CONT and the like are harmless everywhere else.
pub(crate) const NAMES: [(i32, &str); 10] = [
    (libc::SIGHUP, "HUP"),
    (libc::SIGINT, "INT"),
    (libc::SIGQUIT, "QUIT"),
    (libc::SIGUSR1, "USR1"),
    (libc::SIGWINCH, "WINCH"),
    (libc::SIGCONT, "CONT"),
    (libc::SIGURG, "URG"),
    (libc::SIGALRM, "ALRM"),
    (40, "NUM40"),
    (libc::SIGTERM, "TERM"),
];

pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: kill(2) has no memory effects; nix knows no real-time signals.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Starts the reporter in a group of its own; comes back with its process id too.
fn reporter(stand: &Stand) -> (Watched, i32) {
    let mut client = Watched::start_in_group(&mut stand.run(&["perl", "-e", REPORTER]));
    let ready = client.line();
    let pid = ready.strip_prefix("ready ").unwrap().parse().unwrap();
    (client, pid)
}

/// Ends the reporter and expects that it has nothing more to say.
#[track_caller]
fn nothing_more(client: Watched, reporter: i32) {
    kill(reporter, libc::SIGUSR2);
    let output = client.output();
    assert_eq!(text(&output.stdout), "");
}

/// Whether a signal waits for a process.
fn is_pending(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let pending = status.lines().find(|it| it.starts_with("ShdPnd:")).unwrap();
    !pending.ends_with("0000000000000000")
}

/// Signals the group, and waits until the client has taken it: two signals of one kind that wait together are one.
pub(crate) fn signal_group(client: &mut Watched, signal: i32, name: &str) {
    let pid = client.pid();
    kill(-pid.as_raw(), signal);
    assert_eq!(client.line(), name);
    until("the client has taken it", || !is_pending(pid));
}

/// The other processes of the client's: the command and the witness.
fn children(pid: Pid) -> Vec<i32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap()
        .split_whitespace()
        .map(|it| it.parse().unwrap())
        .collect()
}

#[test]
fn a_signal_to_the_client_alone_is_forwarded_once() {
    let stand = Stand::new();
    let (mut client, pid) = reporter(&stand);
    for (signal, name) in NAMES {
        kill(client.pid().as_raw(), signal);
        assert_eq!(client.line(), name);
    }
    nothing_more(client, pid);
}

#[test]
fn a_signal_to_the_group_is_not_forwarded() {
    let stand = Stand::new();
    let (mut client, pid) = reporter(&stand);
    for (signal, name) in NAMES {
        signal_group(&mut client, signal, name);
    }
    nothing_more(client, pid);
}

#[test]
fn many_signals_to_the_group_and_to_the_client_are_told_apart() {
    let stand = Stand::new();
    let (mut client, pid) = reporter(&stand);
    for round in 0..200 {
        if round % 3 == 0 {
            kill(client.pid().as_raw(), libc::SIGUSR1);
            assert_eq!(client.line(), "USR1");
        } else {
            signal_group(&mut client, libc::SIGUSR1, "USR1");
        }
    }
    nothing_more(client, pid);
}

#[test]
fn a_manager_that_signals_everyone_one_by_one_gives_one_copy() {
    let stand = Stand::new();
    let (mut client, pid) = reporter(&stand);
    for _ in 0..20 {
        kill(client.pid().as_raw(), libc::SIGUSR1);
        for child in children(client.pid()) {
            // SAFETY: as in `kill`. A child of the client's own can have ended since it was listed; the reporter has not, or it
            // would not answer.
            let _gone = unsafe { libc::kill(child, libc::SIGUSR1) };
        }
        assert_eq!(client.line(), "USR1");
    }
    nothing_more(client, pid);
}

#[test]
fn a_client_whose_helper_was_killed_still_forwards() {
    let stand = Stand::new();
    let (mut client, pid) = reporter(&stand);
    for child in children(client.pid()) {
        if child != pid {
            kill(child, libc::SIGKILL);
        }
    }
    for _ in 0..3 {
        kill(client.pid().as_raw(), libc::SIGUSR1);
        assert_eq!(client.line(), "USR1");
    }
    nothing_more(client, pid);
}

#[test]
fn a_signal_by_name_means_the_client_alone() {
    let stand = Stand::new();
    let label = format!("only-this-one-{}", std::process::id());
    let mut command = stand.run_with(&["--label", &label], &["perl", "-e", REPORTER]);
    let mut client = Watched::start_in_group(&mut command);
    let pid = client
        .line()
        .strip_prefix("ready ")
        .unwrap()
        .parse()
        .unwrap();
    let named = Command::new("pkill")
        .args(["-INT", "-f", &label])
        .status()
        .unwrap();
    assert!(named.success());
    assert_eq!(client.line(), "INT");
    // And its helper does not answer to its name.
    for child in children(client.pid()) {
        let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap();
        let line = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap();
        assert!(
            !name.contains("capgate") && !line.contains("capgate"),
            "{name} {line}"
        );
    }
    nothing_more(client, pid);
}

#[test]
fn a_command_in_a_group_of_its_own_gets_what_this_group_gets() {
    let stand = Stand::new();
    let script = format!("setpgrp; {REPORTER}");
    let mut client = Watched::start_in_group(&mut stand.run(&["perl", "-e", &script]));
    let pid = client
        .line()
        .strip_prefix("ready ")
        .unwrap()
        .parse()
        .unwrap();
    kill(-client.pid().as_raw(), libc::SIGINT);
    assert_eq!(client.line(), "INT");
    nothing_more(client, pid);
}

#[test]
fn an_alarm_that_the_caller_set_reaches_the_command() {
    let stand = Stand::new();
    let mut command = stand.run(&["perl", "-e", REPORTER]);
    // SAFETY: alarm is async-signal-safe. It outlives exec and not fork.
    unsafe {
        command.pre_exec(|| {
            libc::alarm(1);
            Ok(())
        })
    };
    let mut client = Watched::start(&mut command);
    let pid = client
        .line()
        .strip_prefix("ready ")
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(client.line(), "ALRM");
    nothing_more(client, pid);
}

#[test]
fn a_job_that_is_told_to_end_is_interrupted() {
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        let stand = Stand::new();
        let script = "ulimit -c 0; echo $$; exec sleep 1000";
        let mut client = Watched::start(&mut stand.run(&["sh", "-c", script]));
        let command: i32 = client.line().parse().unwrap();
        signal::kill(client.pid(), signal).unwrap();
        let output = client.output();
        let number = signal as i32;
        assert_eq!(
            output.status.code(),
            Some(128 + number),
            "{}",
            text(&output.stderr)
        );
        assert!(matches!(stand.daemon.outcome(), Outcome::Interrupted(it) if it == number));
        assert!(!is_alive(command));
        let ledger = stand.ledger();
        assert!(!ledger.complete);
        assert_eq!(ledger.recording.lost["interrupted"], 1);
    }
}

#[test]
fn an_interrupted_command_keeps_its_own_exit_code() {
    for (status, outcome) in [
        (2, Outcome::Interrupted(libc::SIGINT)),
        (0, Outcome::Exited(0)),
    ] {
        let stand = Stand::new();
        let script = format!(
            r#"$SIG{{INT}} = sub {{ exit {status} }}; syswrite STDOUT, "ready\n"; sleep 60"#
        );
        let mut client = Watched::start(&mut stand.run(&["perl", "-e", &script]));
        assert_eq!(client.line(), "ready");
        signal::kill(client.pid(), Signal::SIGINT).unwrap();
        assert_eq!(client.output().status.code(), Some(status));
        assert_eq!(stand.daemon.outcome(), outcome);
    }
}

#[test]
fn a_command_that_ends_well_after_sigterm_was_interrupted_all_the_same() {
    let stand = Stand::new();
    let script = r#"$SIG{TERM} = sub { exit 0 }; syswrite STDOUT, "ready\n"; sleep 60"#;
    let mut client = Watched::start(&mut stand.run(&["perl", "-e", script]));
    assert_eq!(client.line(), "ready");
    signal::kill(client.pid(), Signal::SIGTERM).unwrap();
    assert_ne!(client.output().status.code(), Some(0));
    assert_eq!(stand.daemon.outcome(), Outcome::Interrupted(libc::SIGTERM));
}

#[test]
fn a_command_that_outlives_sigterm_is_killed_and_sealed() {
    let stand = Stand::new();
    let script = r#"$SIG{TERM} = "IGNORE"; syswrite STDOUT, "$$\n"; sleep 60 while 1"#;
    let mut client = Watched::start(&mut stand.run(&["perl", "-e", script]));
    let command: i32 = client.line().parse().unwrap();
    signal::kill(client.pid(), Signal::SIGTERM).unwrap();
    let output = client.output();
    assert_eq!(output.status.code(), Some(128 + libc::SIGTERM));
    assert_eq!(stand.daemon.outcome(), Outcome::Interrupted(libc::SIGTERM));
    assert!(!is_alive(command));
}

#[test]
fn a_signal_that_the_caller_ignores_interrupts_nothing() {
    let stand = Stand::new();
    let script = "echo ready; read line; exit 0";
    let mut command = stand.run(&["sh", "-c", script]);
    command.stdin(std::process::Stdio::piped());
    // SAFETY: signal is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGTERM, libc::SIG_IGN);
            Ok(())
        })
    };
    let mut client = Watched::start(&mut command);
    assert_eq!(client.line(), "ready");
    signal::kill(client.pid(), Signal::SIGTERM).unwrap();
    client.write(b"go on\n");
    assert_eq!(client.output().status.code(), Some(0));
    assert_eq!(stand.daemon.outcome(), Outcome::Exited(0));
}

#[test]
fn a_stopped_command_stops_the_client_and_goes_on_with_it() {
    for group in [false, true] {
        let stand = Stand::new();
        let (mut client, command) = reporter(&stand);
        let pid = client.pid().as_raw();
        let target = if group { -pid } else { pid };
        for _ in 0..3 {
            kill(target, libc::SIGTSTP);
            until("both are stopped", || {
                state(command) == Some('T') && state(pid) == Some('T')
            });
            kill(target, libc::SIGCONT);
            assert_eq!(client.line(), "CONT");
            until("both go on", || {
                state(command) != Some('T') && state(pid) != Some('T')
            });
        }
        // After all that it still tells the group from itself.
        signal_group(&mut client, libc::SIGUSR1, "USR1");
        kill(pid, libc::SIGUSR1);
        assert_eq!(client.line(), "USR1");
        nothing_more(client, command);
    }
}

#[test]
fn a_command_that_stops_itself_stops_the_client() {
    let stand = Stand::new();
    let script = r#"kill STOP => $$; syswrite STDOUT, "went on\n""#;
    let mut client = Watched::start(&mut stand.run(&["perl", "-e", script]));
    let pid = client.pid().as_raw();
    until("the client is stopped", || state(pid) == Some('T'));
    kill(pid, libc::SIGCONT);
    assert_eq!(client.line(), "went on");
    assert_eq!(client.output().status.code(), Some(0));
}

#[test]
fn a_killed_client_gives_up_its_lease() {
    let stand = Stand::new();
    let (client, command) = reporter(&stand);
    let helpers = children(client.pid());
    kill(client.pid().as_raw(), libc::SIGKILL);
    assert!(!stand.daemon.until_lease_ends(), "nobody asked to finish");
    kill(command, libc::SIGKILL);
    until("its helper ends too", || {
        !helpers.iter().any(|&pid| is_alive(pid))
    });
    assert!(!stand.has_ledger());
}

#[test]
fn a_signal_before_the_command_runs_ends_the_client_without_a_ledger() {
    let stand = Stand::with(|manner| manner.silent_at_start = true);
    let client = Watched::start(&mut stand.run(&["true"]));
    until("the job is asked for", || stand.daemon.was_started());
    signal::kill(client.pid(), Signal::SIGINT).unwrap();
    let output = client.output();
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("told to end by SIGINT"));
    assert!(!stand.has_ledger());
}

#[test]
fn two_signals_while_the_job_is_sealed_end_the_client_without_a_ledger() {
    let stand = Stand::with(|manner| manner.silent_at_finish = true);
    let client = Watched::start(&mut stand.run(&["true"]));
    until("it is asked to seal", || stand.daemon.was_asked_to_seal());
    let pid = client.pid();
    signal::kill(pid, Signal::SIGINT).unwrap();
    until("the first one is taken", || !is_pending(pid));
    signal::kill(pid, Signal::SIGTERM).unwrap();
    let output = client.output();
    assert_eq!(output.status.code(), Some(143));
    assert!(!stand.has_ledger());
}

#[test]
fn a_background_process_does_not_keep_the_callers_pipe_open_through_our_helpers() {
    let stand = Stand::new();
    let begin = std::time::Instant::now();
    let output = output(&mut stand.run(&["echo", "done"]));
    assert_eq!(text(&output.stdout), "done\n");
    assert!(begin.elapsed() < Duration::from_secs(10));
}
