//! What is too much, too long or not the protocol.

use capgate_common::protocol::Response;
use serde_json::json;

use crate::harness::{ALICE, BOB, Daemon, contract, exited, start};

#[test]
fn what_is_not_the_protocol_is_refused_in_a_sentence() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE);
    let mut check = |line: &str, expect: &str| {
        client.open("c");
        let said = client.tell(&format!("ask c {line}"));
        assert!(said.contains(expect), "{line}: {said}");
        assert_eq!(client.tell("receive c"), "closed", "{line}");
    };
    check("", "not a message of this protocol");
    check("{}", "not a message of this protocol");
    check("GET / HTTP/1.1", "not a message of this protocol");
    check(
        r#"{"request": "status", "version": 1}"#,
        "begins with hello",
    );
    check(
        r#"{"request": "hello", "version": 99, "program": "x", "new": [1]}"#,
        "install the same release of both",
    );
    check(
        r#"{"request": "hello", "version": 0, "program": "x"}"#,
        "speaks version 0",
    );

    let mut greeted = daemon.client(ALICE).connected("c");
    let refusal = greeted.refused("c", &json!({"request": "steal"}));
    assert!(
        refusal.contains("not a message of this protocol"),
        "{refusal}"
    );
    let mut twice = daemon.client(ALICE).connected("c");
    let hello = json!({"request": "hello", "version": 1, "program": "x"});
    assert!(twice.refused("c", &hello).contains("comes once"));
}

#[test]
fn a_line_without_end_is_cut_off() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("c");
    client.tell("flood c 6000000");
    let said = client.tell("receive c");
    assert!(
        said.contains("more than 4194304 bytes") || said == "closed",
        "{said}"
    );
    // It did not hurt anybody.
    daemon.client(ALICE).connected("c").status("c");
}

#[test]
fn a_contract_of_a_megabyte_fits() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let mut text = contract(30);
    text.push_str(&" ".repeat((1 << 20) - text.len()));
    let job = client.start_job("lease", Some(&text));
    daemon.client(ALICE).enter_and_run(&job, "true").wait();
    assert_eq!(client.finish("lease", &exited(0)).exit_code, 0);
    text.push(' ');
    let response = client.try_start("lease", &start(Some(&text)));
    assert!(
        matches!(&response, Response::Error { message } if message.contains("more than the 1048576")),
        "{response:?}"
    );
}

#[test]
fn a_contract_that_cannot_be_used_leaves_nothing_behind() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    for (contract, expect) in [
        ("nonsense", "is not a JSON object"),
        (r#"{"allow_net": [], "cpu_budget": 1}"#, "has no `writes`"),
        (
            r#"{"allow_net": [], "cpu_budget": 1, "writes": "e3"}"#,
            "64 hex digits",
        ),
        (
            r#"{"allow_net": [], "cpu_budget": 1, "write": "e3"}"#,
            "unknown key `write`",
        ),
    ] {
        match client.try_start("lease", &start(Some(contract))) {
            Response::Error { message } => assert!(message.contains(expect), "{message}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(client.jobs("lease").is_empty());
    let names = std::fs::read_dir(daemon.place.path("store/jobs")).unwrap();
    assert_eq!(names.count(), 0);
}

#[test]
fn each_user_has_its_share_of_jobs_and_connections() {
    let daemon = Daemon::start("max_jobs = 3\n[per_uid]\njobs = 2\nconnections = 4\n");
    let mut alice = daemon.client(ALICE);
    for name in ["a", "b", "c", "d"] {
        assert!(alice.connect(name).contains("\"hello\""));
    }
    let said = alice.connect("e");
    assert!(
        said.contains("as many as per_uid.connections allows"),
        "{said}"
    );
    let refused = |response: Response| match response {
        Response::Error { message } => message,
        other => panic!("{other:?}"),
    };
    alice.start_job("a", None);
    alice.start_job("b", None);
    let sentence = refused(alice.try_start("c", &start(None)));
    assert!(
        sentence.contains("as many as per_uid.jobs allows"),
        "{sentence}"
    );
    let mut bob = daemon.client(BOB).connected("a").connected("b");
    bob.start_job("a", None);
    let sentence = refused(bob.try_start("b", &start(None)));
    assert!(
        sentence.contains("as many as max_jobs allows"),
        "{sentence}"
    );
    // What is given back can be had again.
    alice.tell("close a");
    crate::harness::eventually("a job's place is free", || {
        matches!(bob.try_start("b", &start(None)), Response::Started { .. })
    });
    alice.connected("e");
}

#[test]
fn many_connections_at_once_are_all_served() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE);
    for number in 0..100 {
        let said = client.connect(&format!("c{number}"));
        assert!(said.contains("\"hello\""), "{number}: {said}");
    }
    for number in 0..100 {
        client.status(&format!("c{number}"));
    }
}

#[test]
fn the_operator_can_demand_what_the_probes_cannot_do() {
    let daemon = Daemon::start("require_race_free = true\n");
    let mut client = daemon.client(ALICE).connected("lease");
    match client.try_start("lease", &start(None)) {
        Response::Error { message } => assert!(message.contains("require_race_free"), "{message}"),
        other => panic!("{other:?}"),
    }
}
