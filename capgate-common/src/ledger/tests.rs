use std::collections::BTreeSet;

use super::{EMPTY_DIGEST, KEYS, Ledger, ProbeSet, Recording, SCHEMA, digest};
use crate::{
    suite::{Counted, Tests},
    verdict::Verdict,
};

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn sample() -> Ledger {
    let mut recording = Recording::empty(ProbeSet::Tracepoint, false);
    recording.net = set(&["[::1]:80", "192.0.2.1:443", "10.0.0.1:1"]);
    recording.cpu_sec = 2;
    recording.write_paths = set(&["b", "a", "B"]);
    recording.execs = set(&["/usr/bin/python3.11"]);
    recording.escapes = set(&["delegate:docker"]);
    recording.coverage.unseen = set(&["io_uring"]);
    Ledger {
        recording,
        cpu_budget: Some(30),
        complete: true,
        verdict: vec![Verdict::Net, Verdict::Escapes],
    }
}

fn refuse(json: &str, phrase: &str) {
    let error = Ledger::from_json(json.as_bytes())
        .expect_err(json)
        .to_string();
    assert!(error.contains(phrase), "{error}");
}

/// The sample's JSON with one piece of text replaced.
fn but(from: &str, to: &str) -> String {
    let json = sample().to_json();
    assert!(json.contains(from), "{from}");
    json.replace(from, to)
}

#[test]
fn the_digest_of_no_names_is_that_of_no_bytes() {
    assert_eq!(digest(&BTreeSet::new()), EMPTY_DIGEST);
}

#[test]
fn the_digest_is_of_the_sorted_names_with_newlines_between() {
    // printf 'a\nb' | sha256sum
    let expect = "7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78";
    assert_eq!(digest(&set(&["b", "a"])), expect);
    assert_ne!(digest(&set(&["a", "b"])), digest(&set(&["a\\x0ab"])));
}

#[test]
fn names_are_sorted_by_bytes() {
    let names = set(&["é", "a", "Z", "a/b", "a-b", "~"]);
    let sorted: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(sorted, ["Z", "a", "a-b", "a/b", "~", "é"]);
}

#[test]
fn the_file_is_canonical_and_reads_back() {
    let expect = r#"{
  "schema": "capgate/ledger/1",
  "net": [
    "10.0.0.1:1",
    "192.0.2.1:443",
    "[::1]:80"
  ],
  "cpu_sec": 2,
  "cpu_budget": 30,
  "writes": "DIGEST",
  "write_paths": [
    "B",
    "a",
    "b"
  ],
  "execs": [
    "/usr/bin/python3.11"
  ],
  "escapes": [
    "delegate:docker"
  ],
  "complete": true,
  "lost": {},
  "verdict": [
    "net",
    "escapes"
  ],
  "coverage": {
    "probe_set": "tracepoint",
    "race_free": false,
    "unseen": [
      "io_uring"
    ]
  }
}
"#
    .replace("DIGEST", &digest(&set(&["a", "b", "B"])));
    let json = sample().to_json();
    assert_eq!(json, expect);
    assert_eq!(
        Ledger::from_json(json.as_bytes()).expect("a ledger"),
        sample()
    );
}

/// The sample, of a job whose suite skipped a unit.
fn with_suite() -> Ledger {
    let mut ledger = sample();
    let suite = &mut ledger.recording.suite;
    suite.absent = Some(set(&["docker", "ipv6"]));
    suite.skips = [("docker".to_owned(), set(&["test_b", "test_a"]))].into();
    suite.tests = Some(Tests::Counted(Counted {
        run: 3,
        failed: 0,
        skipped: 2,
    }));
    ledger
}

#[test]
fn what_a_suite_did_not_do_is_sealed() {
    let mut ledger = with_suite();
    let json = ledger.to_json();
    assert_eq!(
        Ledger::from_json(json.as_bytes()).expect("a ledger"),
        ledger
    );
    let undeclared = json.replace("    \"docker\",\n", "");
    refuse(
        &undeclared,
        "`skips` names a capability that `absent` does not have",
    );
    ledger.recording.suite.tests = Some(Tests::Unreadable {
        unreadable: "there is no such file".to_owned(),
    });
    let json = ledger.to_json();
    assert_eq!(
        Ledger::from_json(json.as_bytes()).expect("a ledger"),
        ledger
    );
    let both = json.replace("\"unreadable\"", "\"run\": 3, \"unreadable\"");
    assert!(Ledger::from_json(both.as_bytes()).is_err());
}

#[test]
fn the_keys_are_in_the_order_of_the_constant() {
    let mut ledger = with_suite();
    ledger.recording.reaches = Some(set(&["exec:/usr/bin/az"]));
    let json = ledger.to_json();
    assert_eq!(
        Ledger::from_json(json.as_bytes()).expect("a ledger"),
        ledger
    );
    let places: Vec<Option<usize>> = KEYS
        .iter()
        .map(|key| json.find(&format!("\n  \"{key}\":")))
        .collect();
    assert!(places.iter().all(Option::is_some));
    assert!(places.is_sorted());
    assert_eq!(json.matches("\n  \"").count(), KEYS.len());
}

#[test]
fn a_job_without_a_contract_has_a_budget_of_null() {
    let mut ledger = sample();
    ledger.cpu_budget = None;
    ledger.verdict = vec![Verdict::Recorded];
    assert!(ledger.to_json().contains("\"cpu_budget\": null"));
    let read = Ledger::from_json(ledger.to_json().as_bytes()).expect("a ledger");
    assert_eq!(read, ledger);
}

#[test]
fn counts_of_nothing_are_not_written() {
    let mut ledger = sample();
    ledger.recording.lost.insert("ring".to_owned(), 0);
    assert!(ledger.to_json().contains("\"lost\": {}"));
}

#[test]
fn losses_add_up_and_never_wrap() {
    let mut recording = Recording::empty(ProbeSet::Fentry, true);
    recording.lose("ring", 0);
    assert!(recording.lost.is_empty());
    recording.lose("ring", 2);
    recording.lose("ring", u64::MAX);
    assert_eq!(recording.lost.get("ring"), Some(&u64::MAX));
}

#[test]
fn members_are_sorted_and_unique_however_they_were_written() {
    let json = but(
        "\"10.0.0.1:1\",\n    \"192.0.2.1:443\",",
        "\"192.0.2.1:443\", \"10.0.0.1:1\", \"192.0.2.1:443\",",
    );
    let read = Ledger::from_json(json.as_bytes()).expect("a ledger");
    assert_eq!(read, sample());
}

#[test]
fn another_schema_is_refused_before_its_keys_are_read() {
    refuse(
        r#"{"schema": "capgate/ledger/2", "new": 1}"#,
        "the schema `capgate/ledger/2`",
    );
    refuse(r#"{"net": []}"#, "no `schema`");
    refuse(r#"{"schema": "\u001b[2J"}"#, r"`\x1b[2J`");
    assert_eq!(SCHEMA, "capgate/ledger/1");
}

#[test]
fn what_is_no_ledger_is_refused_with_the_place() {
    refuse("", "EOF");
    refuse("[]", "not a ledger");
    refuse("{", "line 1 column 1");
    refuse(
        &but("\"cpu_sec\": 2", "\"cpu_sec\": -2"),
        "invalid value: integer `-2`",
    );
    refuse(
        &but("\"cpu_budget\": 30,", ""),
        "missing field `cpu_budget`",
    );
    refuse(&but("\"net\"", "\"nets\""), "unknown field `nets`");
    refuse(
        &but("\"cpu_sec\": 2,", "\"cpu_sec\": 2, \"cpu_sec\": 2,"),
        "duplicate field `cpu_sec`",
    );
    refuse(&but("tracepoint", "kprobe"), "unknown variant `kprobe`");
    refuse(
        &but("\"escapes\"\n  ]", "\"fine\"\n  ]"),
        "unknown variant `fine`",
    );
    refuse(&(sample().to_json() + "x"), "trailing characters");
    refuse(
        &but("\"net\"", r#""\u001b[2J""#),
        r"unknown field `\x1b[2J`",
    );
}

#[test]
fn a_ledger_that_contradicts_itself_is_refused() {
    refuse(&but("\"b\"", "\"c\""), "not the digest");
    let mut free = sample();
    free.recording = Recording::empty(ProbeSet::Fentry, true);
    free.verdict = vec![Verdict::Incomplete];
    free.complete = false;
    refuse(&free.to_json(), "nothing says why");
    refuse(
        &but("\"lost\": {}", "\"lost\": {\"ring\": 1}"),
        "`lost` is not empty",
    );
    refuse(
        &but("\"complete\": true", "\"complete\": false"),
        "contradict",
    );
    refuse(
        &but("\"net\",\n    \"escapes\"", "\"incomplete\""),
        "contradict",
    );
    refuse(
        &but("\"net\",\n    \"escapes\"", "\"escapes\", \"net\""),
        "order",
    );
    refuse(
        &but("\"net\",\n    \"escapes\"", "\"net\", \"net\""),
        "order",
    );
}
