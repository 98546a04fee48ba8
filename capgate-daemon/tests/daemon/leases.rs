//! A job from its start to its seal, and who may do what with it.

use std::time::{Duration, Instant};

use capgate_common::{protocol::Response, verdict::Verdict};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use crate::harness::{
    ALICE, BOB, Daemon, Started, Talker, TestCgroup, contract, enter, eventually, exited,
    job_cgroup, runs, show, start, stop,
};

#[test]
fn a_job_is_recorded_from_start_to_seal_and_leaves_nothing() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let cgroup = job_cgroup(&job.job).expect("the job has a cgroup");
    let mut command = daemon
        .client(ALICE)
        .enter_and_run(&job, "echo x > made; exec 3> kept");
    assert!(command.wait().success());
    let sealed = client.finish("lease", &exited(0));
    let names: Vec<_> = sealed.ledger.recording.write_paths.iter().collect();
    assert_eq!(names, ["kept", "made"]);
    assert_eq!(sealed.ledger.verdict, [Verdict::Writes]);
    assert_eq!(sealed.exit_code, 120);
    assert!(!cgroup.exists());

    let stored = client.ask("lease", &show(&job.job));
    let Response::Sealed(stored) = stored else {
        panic!("{stored:?}");
    };
    assert_eq!(stored.ledger, sealed.ledger);
    let jobs = client.jobs("lease");
    assert_eq!(jobs.len(), 1);
    assert_eq!((jobs[0].state.as_str(), jobs[0].uid), ("done", ALICE));
    assert_eq!(jobs[0].verdict, ["writes"]);
    assert_eq!(jobs[0].labels, ["a-label"]);

    let mut root = daemon.root().connected("c");
    eventually("the probes are detached", || {
        root.status("c").attached.is_empty()
    });
}

#[test]
fn one_connection_can_start_a_job_after_another() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    for _ in 0..3 {
        let job = client.start_job("lease", Some(&contract(30)));
        daemon.client(ALICE).enter_and_run(&job, "true").wait();
        let sealed = client.finish("lease", &exited(0));
        assert_eq!(sealed.ledger.verdict, [Verdict::Match]);
        let again = client.refused("lease", &json!({"request": "finish", "outcome": exited(0)}));
        assert!(again.contains("only the connection"), "{again}");
    }
}

#[test]
fn a_token_is_good_for_one_process_of_its_user_in_its_place() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", None);

    let mut bob = daemon.client(BOB).connected("c");
    let refusal = bob.refused("c", &enter(&job.token));
    assert!(refusal.contains("belongs to uid 64101"), "{refusal}");

    let mut root = daemon.root().connected("c");
    let refusal = root.refused("c", &enter(&job.token));
    assert!(refusal.contains("belongs to uid 64101"), "{refusal}");

    let elsewhere = TestCgroup::new("elsewhere");
    let mut other = Talker::new(&daemon)
        .user(ALICE)
        .in_cgroup(&elsewhere.0)
        .start()
        .connected("c");
    let refusal = other.refused("c", &enter(&job.token));
    assert!(refusal.contains("not in the cgroup"), "{refusal}");

    let mut guess = daemon.client(ALICE).connected("c");
    let refusal = guess.refused("c", &enter(&"0".repeat(64)));
    assert!(refusal.contains("the token is not"), "{refusal}");

    // None of them has used it up.
    let mut command = daemon.client(ALICE).enter_and_run(&job, "sleep 60");
    let mut replay = daemon.client(ALICE).connected("c");
    let refusal = replay.refused("c", &enter(&job.token));
    assert!(refusal.contains("used before"), "{refusal}");
    command.kill();
    client.finish("lease", &json!({"how": "signaled", "code": 9}));
    let mut late = daemon.client(ALICE).connected("c");
    let refusal = late.refused("c", &enter(&job.token));
    assert!(refusal.contains("the token is not"), "{refusal}");
}

#[test]
fn a_client_that_dies_takes_its_job_along() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let mut command = daemon
        .client(ALICE)
        .enter_and_run(&job, "(setsid sleep 600 &) ; sleep 600");
    client.kill();
    command.wait();
    eventually("the cgroup is gone", || job_cgroup(&job.job).is_none());
    let mut other = daemon.client(ALICE).connected("c");
    eventually("the job is lost", || other.jobs("c")[0].state == "lost");
    let Response::Sealed(sealed) = other.ask("c", &show(&job.job)) else {
        panic!("what was recorded is kept");
    };
    assert!(!sealed.ledger.complete);
    assert!(sealed.ledger.verdict.contains(&Verdict::Incomplete));
    assert_eq!(sealed.outcome, None);
}

#[test]
fn a_job_that_is_only_recorded_is_not_judged_and_has_no_budget() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let mut contract: serde_json::Value = serde_json::from_str(&contract(0)).unwrap();
    contract["ignore_writes"] = json!(["cache/**"]);
    let mut start = start(Some(&contract.to_string()));
    start["record"] = json!(true);
    let Response::Started { job, token, .. } = client.try_start("lease", &start) else {
        panic!("not started");
    };
    let job = Started { job, token };
    let script =
        "mkdir cache; echo > cache/a; echo > b; i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done";
    daemon.client(ALICE).enter_and_run(&job, script).wait();
    let sealed = client.finish("lease", &exited(0));
    assert_eq!(sealed.ledger.verdict, [Verdict::Recorded]);
    assert_eq!(sealed.ledger.cpu_budget, None);
    let names: Vec<_> = sealed.ledger.recording.write_paths.iter().collect();
    assert_eq!(names, ["b"], "what the contract ignores does not count");
}

#[test]
fn what_outlives_the_command_is_given_five_seconds_and_named() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let mut command = daemon
        .client(ALICE)
        .enter_and_run(&job, "sleep 600 & sleep 1.5 & exit 0");
    assert!(command.wait().success());
    let began = Instant::now();
    let sealed = client.finish("lease", &exited(0));
    let took = began.elapsed();
    assert!(
        (Duration::from_secs(4)..Duration::from_secs(30)).contains(&took),
        "{took:?}"
    );
    assert!(
        sealed.notes[0].contains("1 process outlived"),
        "{:?}",
        sealed.notes
    );
    assert!(sealed.notes[0].contains("sleep"), "{:?}", sealed.notes);
    assert_eq!(sealed.evidence.leftovers.len(), 1);
    let pid = i32::try_from(sealed.evidence.leftovers[0].pid).unwrap();
    assert!(!runs(pid));
}

#[test]
fn a_command_that_never_entered_has_no_ledger() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let refusal = client.refused("lease", &json!({"request": "finish", "outcome": exited(0)}));
    assert!(refusal.contains("did not enter"), "{refusal}");
    assert!(job_cgroup(&job.job).is_none());
    let refusal = client.refused("lease", &show(&job.job));
    assert!(refusal.contains("was lost"), "{refusal}");
}

#[test]
fn a_lease_that_leaked_into_the_job_is_of_no_use_there() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let fd = client.tell("leak lease");
    daemon.client(ALICE).enter_and_run(&job, "true").wait();
    let forged = json!({"request": "finish", "outcome": exited(0)});
    client.tell(&format!("run echo '{forged}' >&{fd}"));
    let said = client.tell("receive lease");
    assert!(said.contains("another process made"), "{said}");
    eventually("the job is lost", || {
        let mut other = daemon.client(ALICE).connected("c");
        other.jobs("c")[0].state == "lost"
    });
}

#[test]
fn a_lease_does_not_outlive_its_client_even_if_somebody_holds_it_open() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let command = daemon.client(ALICE).enter_and_run(&job, "sleep 600");
    client.tell("leak lease");
    let holder: i32 = client.tell("spawn exec sleep 600").parse().unwrap();
    client.kill();
    eventually("the command is gone", || !runs(command.pid()));
    eventually("the cgroup is gone", || job_cgroup(&job.job).is_none());
    assert!(runs(holder), "it was outside");
    kill(Pid::from_raw(holder), Signal::SIGKILL).unwrap();
}

#[test]
fn a_job_is_stopped_by_its_lease_and_by_root_alone() {
    let daemon = Daemon::start("");
    for by_root in [false, true] {
        let mut client = daemon.client(ALICE).connected("lease").connected("other");
        let job = client.start_job("lease", Some(&contract(30)));
        let mut command = daemon.client(ALICE).enter_and_run(&job, "sleep 600");
        let refusal = client.refused("other", &stop(&job.job));
        assert!(refusal.contains("and by root"), "{refusal}");
        let mut bob = daemon.client(BOB).connected("c");
        let refusal = bob.refused("c", &stop(&job.job));
        assert!(refusal.contains("there is no job"), "{refusal}");

        let response = if by_root {
            daemon.root().connected("c").ask("c", &stop(&job.job))
        } else {
            client.ask("lease", &json!({"request": "stop", "job": null}))
        };
        assert!(matches!(response, Response::Stopped), "{response:?}");
        command.wait();
        let sealed = client.finish("lease", &json!({"how": "signaled", "code": 9}));
        assert!(!sealed.ledger.complete);
        let who = if by_root { "by root" } else { "by its client" };
        assert!(sealed.notes[0].contains(who), "{:?}", sealed.notes);
    }
}

#[test]
fn a_job_over_its_cpu_budget_is_told_and_then_killed() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(0)));
    // It does not listen: only the kill ends it.
    let mut command = daemon
        .client(ALICE)
        .enter_and_run(&job, "trap '' XCPU; while :; do :; done");
    let began = Instant::now();
    command.wait();
    let took = began.elapsed();
    assert!(took > Duration::from_secs(5), "{took:?}");
    let sealed = client.finish("lease", &json!({"how": "signaled", "code": 9}));
    assert_eq!(sealed.ledger.verdict[0], Verdict::CpuKill);
    assert_eq!(sealed.exit_code, 124);
    assert!(sealed.ledger.recording.cpu_sec >= 5);
    assert!(sealed.ledger.complete, "all that it did was seen");
}
