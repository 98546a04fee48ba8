//! Who is served, and as whom.

use capgate_common::protocol::Response;
use serde_json::{Value, json};

use crate::harness::{ALICE, BOB, Daemon, Talker, contract, enter, exited, show, start, stop};

#[test]
fn only_root_and_the_group_come_in() {
    let daemon = Daemon::start("");
    let mut stranger = Talker::new(&daemon).user(ALICE).stranger().start();
    let said = stranger.open("c");
    assert!(said.contains("Permission denied"), "{said}");
    daemon.client(ALICE).connected("c");
    daemon.root().connected("c");

    // The socket's mode is one check, the peer's groups the other.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(daemon.socket(), open).unwrap();
    let said = stranger.connect("c");
    assert!(said.contains("may not use this capgated"), "{said}");
}

#[test]
fn users_do_not_see_each_other_and_root_sees_all() {
    let daemon = Daemon::start("");
    let mut alice = daemon.client(ALICE).connected("lease");
    let mut bob = daemon.client(BOB).connected("lease");
    let running = alice.start_job("lease", Some(&contract(30)));
    let done = bob.start_job("lease", None);
    daemon.client(BOB).enter_and_run(&done, "true").wait();
    bob.finish("lease", &exited(0));

    let ids = |jobs: Vec<capgate_common::protocol::JobInfo>| -> Vec<String> {
        jobs.into_iter().map(|job| job.job).collect()
    };
    assert_eq!(ids(alice.jobs("lease")), [&*running.job]);
    assert_eq!(ids(bob.jobs("lease")), [&*done.job]);
    let mut root = daemon.root().connected("c");
    assert_eq!(root.jobs("c").len(), 2);

    let tail = |job: &str| json!({"request": "tail", "job": job, "kinds": [], "backlog": true});
    for (client, other) in [(&mut alice, &done.job), (&mut bob, &running.job)] {
        for request in [show(other), stop(other), tail(other)] {
            let refusal = client.refused("lease", &request);
            assert_eq!(refusal, format!("there is no job {other}"));
        }
    }
    assert!(matches!(
        root.ask("c", &show(&done.job)),
        Response::Sealed(_)
    ));
}

#[test]
fn what_runs_inside_a_job_gets_no_service() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    // Connected before it entered, and after.
    let mut inside = daemon.client(ALICE).connected("before");
    inside.connect("enter");
    let entered = inside.ask("enter", &enter(&job.token));
    assert!(matches!(entered, Response::Entered), "{entered:?}");
    let refusal = inside.refused("before", &json!({"request": "ps"}));
    assert!(refusal.contains("inside a job"), "{refusal}");
    for (number, request) in [
        json!({"request": "ps"}),
        json!({"request": "status"}),
        show(&job.job),
        stop(&job.job),
        start(None),
        json!({"request": "finish", "outcome": exited(0)}),
        enter(&job.token),
    ]
    .iter()
    .enumerate()
    {
        let name = format!("after{number}");
        inside.connect(&name);
        let refusal = inside.refused(&name, request);
        assert!(refusal.contains("inside a job"), "{refusal}");
    }
    // Not from a cgroup that the job makes for itself either, nor by root.
    let cgroup = inside.tell("cgroup");
    assert!(
        cgroup.ends_with(&format!("capgate-{}", job.job)),
        "{cgroup}"
    );
    let directory = crate::harness::job_cgroup(&job.job).unwrap();
    std::fs::create_dir(directory.join("nested")).unwrap();
    let mut root = Talker::new(&daemon)
        .in_cgroup(&directory.join("nested"))
        .start()
        .connected("c");
    let refusal = root.refused("c", &stop(&job.job));
    assert!(refusal.contains("inside a job"), "{refusal}");
    drop(root);
    drop(inside);
    client.finish("lease", &exited(0));
    assert!(!directory.exists(), "the job's own cgroups go along");
}

/// A contract with a capability.
fn with_docker() -> String {
    let contract = contract(30);
    contract.replacen(
        '{',
        r#"{"capabilities": {"docker": "a docker daemon"}, "#,
        1,
    )
}

fn needs(name: &str, unit: &str) -> Value {
    json!({"request": "capability", "name": name, "unit": unit})
}

#[test]
fn a_job_asks_about_its_own_capabilities_alone() {
    let daemon = Daemon::start("absent = [\"docker\"]\n");
    let mut alice = daemon.client(ALICE).connected("lease");
    let job = alice.start_job("lease", Some(&with_docker()));
    let mut bob = daemon.client(BOB).connected("lease");
    let other = bob.start_job("lease", Some(&with_docker()));
    let mut inside = daemon.client(ALICE).connected("enter");
    let entered = inside.ask("enter", &enter(&job.token));
    assert!(matches!(entered, Response::Entered), "{entered:?}");
    for (name, unit, expect) in [
        ("podman", "test_a", "no capability is called `podman`"),
        ("docker", "", "a unit's name has"),
        ("docker", "two\nlines", "a unit's name has"),
    ] {
        inside.connect("c");
        let refusal = inside.refused("c", &needs(name, unit));
        assert!(refusal.contains(expect), "{refusal}");
    }
    // One question on a connection.
    inside.connect("c");
    let answer = inside.ask("c", &needs("docker", "test_a"));
    assert!(
        matches!(&answer, Response::Capability { meaning, absent: true } if meaning == "a docker daemon"),
        "{answer:?}"
    );
    assert_eq!(inside.tell("receive c"), "closed");
    // By its cgroup and not by its user: root inside the job is a part of it.
    let directory = crate::harness::job_cgroup(&job.job).unwrap();
    let mut root = Talker::new(&daemon).in_cgroup(&directory).start();
    root.connect("c");
    let answer = root.ask("c", &needs("docker", "test_b"));
    assert!(matches!(answer, Response::Capability { .. }), "{answer:?}");
    drop(root);
    // Outside there is nothing to ask about.
    let mut outside = daemon.root().connected("c");
    let refusal = outside.refused("c", &needs("docker", "test_c"));
    assert!(refusal.contains("only a process inside a job"), "{refusal}");
    drop(inside);
    let suite = alice.finish("lease", &exited(0)).ledger.recording.suite;
    assert!(suite.skips["docker"].iter().eq(["test_a", "test_b"]));
    daemon.client(BOB).enter_and_run(&other, "true").wait();
    let suite = bob.finish("lease", &exited(0)).ledger.recording.suite;
    assert!(suite.skips.is_empty() && suite.absent.is_some());
}

#[test]
fn root_of_another_mount_namespace_is_not_root_here() {
    let daemon = Daemon::start("");
    let mut alice = daemon.client(ALICE).connected("lease");
    let other = alice.start_job("lease", Some(&contract(30)));
    let mut root = daemon.root().connected("lease");
    let of_root = root.start_job("lease", None);

    let mut foreign = Talker::new(&daemon)
        .through(&["unshare", "--mount"])
        .start()
        .connected("lease");
    assert!(foreign.jobs("lease").is_empty());
    for job in [&other.job, &of_root.job] {
        let refusal = foreign.refused("lease", &stop(job));
        assert!(refusal.contains("there is no job"), "{refusal}");
        let refusal = foreign.refused("lease", &show(job));
        assert!(refusal.contains("there is no job"), "{refusal}");
    }
    // It gets what it started, and another namespace of the same uid does not.
    let own = foreign.start_job("lease", None);
    assert_eq!(foreign.jobs("lease").len(), 1);
    let mut third = Talker::new(&daemon)
        .through(&["unshare", "--mount"])
        .start()
        .connected("c");
    assert!(third.jobs("c").is_empty());
    let refusal = third.refused("c", &enter(&own.token));
    assert!(
        refusal.contains("not in the cgroup and the namespaces"),
        "{refusal}"
    );
    assert!(root.jobs("lease").iter().any(|job| job.job == own.job));
}

#[test]
fn a_user_namespace_makes_nobody_root() {
    let daemon = Daemon::start("");
    let mut root = daemon.root().connected("lease");
    let of_root = root.start_job("lease", None);
    let mut mapped = Talker::new(&daemon)
        .user(ALICE)
        .through(&["unshare", "--user", "--map-root-user"])
        .start();
    let said = mapped.connect("c");
    assert!(said.contains("\"hello\""), "{said}");
    assert!(mapped.jobs("c").is_empty());
    let refusal = mapped.refused("c", &stop(&of_root.job));
    assert!(refusal.contains("there is no job"), "{refusal}");
    let mut pids = Talker::new(&daemon)
        .through(&["unshare", "--pid", "--fork", "--mount-proc"])
        .start()
        .connected("c");
    assert!(pids.jobs("c").is_empty());
}

#[test]
fn a_client_whose_process_is_gone_is_nobody() {
    let daemon = Daemon::start("");
    // A shell that hands its connection to a child and ends: the child is not who connected.
    let mut client = daemon.client(ALICE).connected("c");
    let fd = client.tell("leak c");
    let status = json!({"request": "status"});
    client.tell(&format!(
        "spawn sleep 1; echo '{status}' >&{fd}; head -n 1 <&{fd} > said"
    ));
    client.kill();
    let said = daemon.place.home(ALICE).join("said");
    crate::harness::eventually("it is answered or refused", || {
        std::fs::read_to_string(&said).is_ok_and(|text| {
            assert!(!text.contains("\"status\""), "{text}");
            text.contains("another process made") || text.contains("has ended")
        })
    });
}

#[test]
fn a_start_needs_the_right_descriptors() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("c");
    let refusal = client.refused("c", &start(None));
    assert!(refusal.contains("two descriptors"), "{refusal}");
    assert_eq!(client.tell("directories c 5"), "sent");
    let said = client.tell("receive c");
    assert!(said.contains("more than 2 descriptors"), "{said}");
}
