//! A reader that does not read.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Stdio},
};

use serde_json::{Value, json};

use crate::{
    job::Place,
    programs::Programs,
    service::{ALICE, Service},
};

/// `capgate tail --json` of the only job.
struct Follower {
    child: Child,
    stdout: BufReader<ChildStdout>,
    events: Vec<Value>,
}

impl Follower {
    /// Starts it and reads its first line, so that it is there before anything else happens. From then on nobody reads.
    fn start(service: &Service, options: &[&str]) -> Self {
        let mut command = service.command(ALICE, service.client());
        command
            .args(["tail", &service.job(ALICE), "--json", "--socket"])
            .arg(service.socket())
            .args(options)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut follower = Self {
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            events: Vec::new(),
        };
        let first = follower.line().unwrap();
        assert_eq!(first["line"], "event");
        follower.events.push(first);
        follower
    }

    fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Reads what there is: its events, how many it missed, and the verdict.
    fn rest(mut self) -> (Vec<Value>, u64, Value) {
        let (mut missed, mut verdict) = (0, Value::Null);
        while let Some(line) = self.line() {
            assert_eq!(verdict, Value::Null, "nothing follows the end");
            match line["line"].as_str().unwrap() {
                "event" => self.events.push(line),
                "lagged" => missed += line["missed"].as_u64().unwrap(),
                _ => verdict = line["verdict"].clone(),
            }
        }
        assert!(self.child.wait().unwrap().success());
        (std::mem::take(&mut self.events), missed, verdict)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[test]
fn a_reader_that_does_not_read_is_told_what_it_missed_and_costs_no_event() {
    const NAMES: usize = 20_000;
    let programs = Programs::new();
    let create = programs.build("create");
    let service = Service::start();
    let place = Place::of(ALICE);
    let mut running = place
        .job(&service, &[&create, &NAMES.to_string(), "1"])
        .start();
    running.until_it_says("ready");
    let idle = Follower::start(&service, &[]);
    let filtered = Follower::start(&service, &["--kind", "exec"]);
    running.tell("go");
    let done = running.wait();
    let recording = &done.complete().recording;
    assert_eq!(
        recording.write_paths.len(),
        NAMES,
        "nothing waits for a reader"
    );

    let (events, missed, verdict) = idle.rest();
    assert!(missed > 0, "a pipe and a socket cannot hold {NAMES} events");
    let told = events.len() as u64;
    assert_eq!(told + missed, done.evidence().counts.decoded);
    assert_eq!(verdict, json!(["recorded"]));
    let numbers: Vec<u64> = events
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "in order, each once"
    );

    let (events, _, verdict) = filtered.rest();
    assert!(events.iter().all(|event| event["kind"] == "exec"));
    assert!(events.iter().any(|event| event["subject"] == create));
    assert_eq!(verdict, json!(["recorded"]));
}
