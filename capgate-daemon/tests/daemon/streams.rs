//! Following a job.

use capgate_common::protocol::Response;
use serde_json::json;

use crate::harness::{ALICE, Daemon, Talk, contract, exited};

fn tail(job: &str, kinds: &[&str], backlog: bool) -> serde_json::Value {
    json!({"request": "tail", "job": job, "kinds": kinds, "backlog": backlog})
}

/// Reads until the end: what came, as text, and what was missed.
fn read(client: &mut Talk, first: Response) -> (Vec<String>, u64, Vec<String>) {
    let (mut events, mut missed) = (Vec::new(), 0);
    let mut response = first;
    loop {
        match response {
            Response::Event(event) => events.push(format!("{} {}", event.op, event.subject)),
            Response::Lagged { missed: more } => missed += more,
            Response::End { verdict } => return (events, missed, verdict),
            other => panic!("{other:?}"),
        }
        response = serde_json::from_str(&client.tell("receive tail")).unwrap();
    }
}

#[test]
fn a_reader_gets_what_was_then_what_comes_then_the_end() {
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let mut command = daemon.client(ALICE).enter_and_run(
        &job,
        "echo x > early; mkfifo pipe; read line < pipe; echo x > late",
    );
    let mut reader = daemon.client(ALICE).connected("tail");
    crate::harness::eventually("the early file is in the stream", || {
        let mut probe = daemon.client(ALICE).connected("tail");
        let (mut found, mut response) =
            (false, probe.ask("tail", &tail(&job.job, &["file"], true)));
        while let Response::Event(event) = response {
            found = event.subject == "early";
            if found {
                break;
            }
            response = serde_json::from_str(&probe.tell("receive tail")).unwrap();
        }
        found
    });
    let first = reader.ask("tail", &tail(&job.job, &["file"], true));
    std::fs::write(daemon.place.home(ALICE).join("pipe"), "go\n").unwrap();
    command.wait();
    client.finish("lease", &exited(0));
    let (events, missed, verdict) = read(&mut reader, first);
    let names: Vec<_> = events
        .iter()
        .filter_map(|event| event.split_once(' '))
        .map(|(_, name)| name)
        .filter(|name| ["early", "late"].contains(name))
        .collect();
    assert_eq!(names, ["early", "late"], "{events:?}");
    assert_eq!((missed, verdict), (0, vec!["writes".to_owned()]));

    // A job that is over has an end and nothing else.
    let over = reader.ask("tail", &tail(&job.job, &[], true));
    assert!(
        matches!(&over, Response::End { verdict } if *verdict == ["writes"]),
        "{over:?}"
    );
    let refusal = reader.refused("tail", &tail(&job.job, &["nothing"], true));
    assert!(refusal.contains("the kinds are file, name"), "{refusal}");
}

#[test]
fn a_reader_that_sleeps_is_told_what_it_missed_and_holds_nobody_up() {
    const NAMES: u64 = 20_000;
    let daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", None);
    let mut reader = daemon.client(ALICE).connected("tail");
    reader.say(&format!("ask tail {}", tail(&job.job, &[], true)));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let script = format!("i=0; while [ $i -lt {NAMES} ]; do : > n$i; i=$((i+1)); done");
    let mut command = daemon.client(ALICE).enter_and_run(&job, &script);
    assert!(command.wait().success());
    let sealed = client.finish("lease", &exited(0));
    assert!(sealed.ledger.complete, "{:?}", sealed.ledger.recording.lost);
    assert_eq!(
        sealed.ledger.recording.write_paths.len() as u64,
        NAMES,
        "nothing waits for a reader"
    );
    let first = serde_json::from_str(&reader.hear()).unwrap();
    let (events, missed, _) = read(&mut reader, first);
    assert!(missed > 0, "the socket cannot hold {NAMES} events");
    assert_eq!(
        events.len() as u64 + missed,
        sealed.evidence.counts.decoded,
        "{} read, {missed} missed",
        events.len()
    );
}
