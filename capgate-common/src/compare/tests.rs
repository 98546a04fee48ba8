use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Case, Finding, Judgement, NameDifference, Note, Outcome, Reason, judge, seal};
use crate::{
    contract::Contract,
    evidence::Addresses,
    ledger::{EMPTY_DIGEST, Ledger, ProbeSet, Recording, digest},
    pathform::Forms,
    rules::Rules,
    suite::{Counted, Tests},
    verdict::Verdict,
};

mod reach;
mod table;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The rules of a contract that allows nothing, but for some keys.
fn rules(keys: &Value) -> Rules {
    let mut contract = json!({ "allow_net": [], "cpu_budget": 30, "writes": EMPTY_DIGEST });
    for (key, value) in keys.as_object().expect("an object") {
        contract[key] = value.clone();
    }
    let contract = Contract::from_json(contract.to_string().as_bytes()).expect("a contract");
    let forms = Forms::new(b"/srv/repo", None, 1000).expect("a root");
    Rules::new(contract, &BTreeMap::new(), &forms, None).expect("rules")
}

fn nothing() -> Recording {
    Recording::empty(ProbeSet::Tracepoint, false)
}

fn case<'a>(recording: &'a Recording, rules: Option<&'a Rules>, outcome: Outcome) -> Case<'a> {
    Case {
        recording,
        rules,
        outcome,
        require_race_free: false,
        ignored: None,
        addresses: None,
    }
}

/// Judges a job that ended well.
fn judged(recording: &Recording, keys: &Value) -> Judgement {
    judge(&case(recording, Some(&rules(keys)), Outcome::Exited(0)))
}

fn summary(judgement: &Judgement) -> (&str, i32) {
    (&judgement.headline, judgement.exit_code)
}

#[test]
fn a_job_that_did_nothing_matches_a_contract_that_allows_nothing() {
    let judgement = judged(&nothing(), &json!({}));
    assert_eq!(summary(&judgement), ("match", 0));
    assert_eq!(judgement.verdict, [Verdict::Match]);
    assert!(judgement.complete && judgement.findings.is_empty() && judgement.notes.is_empty());
}

#[test]
fn the_exit_code_of_a_failed_job_is_its_own() {
    let rules = rules(&json!({}));
    for (outcome, expect) in [
        (Outcome::Exited(0), ("match", 0)),
        (Outcome::Exited(1), ("job-failed", 1)),
        (Outcome::Exited(77), ("job-failed", 77)),
        (Outcome::Exited(120), ("job-failed", 120)),
        (Outcome::Exited(126), ("job-failed", 126)),
        (Outcome::Exited(255), ("job-failed", 255)),
        (Outcome::Signaled(9), ("job-failed", 137)),
        (Outcome::Signaled(11), ("job-failed", 139)),
        (
            Outcome::Interrupted(15),
            ("job-failed, also: incomplete", 143),
        ),
        (Outcome::Abandoned, ("job-failed, also: incomplete", 137)),
        (Outcome::Failed, ("job-failed", 1)),
        (Outcome::CpuKilled, ("cpu-kill", 124)),
        (Outcome::NotExecutable, ("command not executable", 126)),
        (Outcome::NotFound, ("command not found", 127)),
    ] {
        let judgement = judge(&case(&nothing(), Some(&rules), outcome));
        assert_eq!(summary(&judgement), expect, "{outcome:?}");
    }
}

#[test]
fn every_violation_of_a_failed_job_is_reported() {
    let mut recording = nothing();
    recording.net = set(&["192.0.2.1:443"]);
    recording.write_paths = set(&["a"]);
    let judgement = judge(&case(
        &recording,
        Some(&rules(&json!({}))),
        Outcome::Exited(3),
    ));
    assert_eq!(summary(&judgement), ("job-failed, also: net, writes", 3));
}

#[test]
fn a_command_that_never_ran_neither_breaks_nor_keeps_its_contract() {
    let rules = rules(&json!({ "writes": digest(&set(&["a"])), "require_race_free": true }));
    let judgement = judge(&case(&nothing(), Some(&rules), Outcome::NotFound));
    assert_eq!(
        summary(&judgement),
        ("command not found, also: incomplete", 121)
    );
    let judgement = judge(&case(&nothing(), None, Outcome::NotExecutable));
    assert_eq!(summary(&judgement), ("command not executable", 126));
    assert!(judgement.verdict.is_empty());
}

#[test]
fn destinations_must_match_a_pattern() {
    let mut recording = nothing();
    recording.net = set(&["127.0.0.1:5432", "192.0.2.1:443", "unix:/run/x"]);
    let judgement = judged(
        &recording,
        &json!({ "allow_net": ["127.0.0.0/8:*", "unix:/run/*", "10.0.0.1:1"] }),
    );
    assert_eq!(summary(&judgement), ("net", 120));
    assert_eq!(
        judgement.findings,
        [Finding::Net {
            entry: "192.0.2.1:443".to_owned()
        }]
    );
    assert_eq!(
        judgement.notes,
        [Note::UnusedPattern {
            key: "allow_net".to_owned(),
            pattern: "10.0.0.1:1".to_owned()
        }]
    );
}

#[test]
fn a_destination_that_cannot_be_read_is_not_allowed() {
    let mut recording = nothing();
    recording.net = set(&["sctp:192.0.2.1:443"]);
    assert_eq!(
        summary(&judged(
            &recording,
            &json!({ "allow_net": ["192.0.2.1:443"] })
        )),
        ("net", 120)
    );
}

#[test]
fn a_destination_by_name_is_allowed_by_its_name_or_by_all_of_its_addresses() {
    let mut recording = nothing();
    recording.net = set(&["www.example.org:443", "resolver:53"]);
    let behind = |addr: &str| {
        let addr = addr.parse().expect("an address");
        BTreeMap::from([("www.example.org:443".to_owned(), BTreeSet::from([addr]))])
    };
    let judged = |pattern: &str, addresses: Option<&Addresses>| {
        let rules = rules(&json!({ "allow_net": [pattern, "resolver:53", "self"] }));
        let judgement = judge(&Case {
            addresses,
            ..case(&recording, Some(&rules), Outcome::Exited(0))
        });
        (judgement.headline, judgement.notes.len())
    };
    let (inside, outside) = (behind("192.0.2.1"), behind("198.51.100.1"));
    let verdict = |word: &str, notes| (word.to_owned(), notes);
    assert_eq!(judged("*.example.org:443", None), verdict("match", 0));
    assert_eq!(
        judged("*.example.org:443", Some(&outside)),
        verdict("match", 0)
    );
    assert_eq!(
        judged("192.0.2.0/24:443", Some(&inside)),
        verdict("match", 0)
    );
    // The pattern matches nothing then, and a note says so.
    assert_eq!(
        judged("192.0.2.0/24:443", Some(&outside)),
        verdict("net", 1)
    );
    assert_eq!(judged("192.0.2.0/24:443", None), verdict("net", 1));
}

#[test]
fn the_budget_itself_is_within_the_budget() {
    let mut recording = nothing();
    recording.cpu_sec = 30;
    assert_eq!(summary(&judged(&recording, &json!({}))), ("match", 0));
    recording.cpu_sec = 31;
    let judgement = judged(&recording, &json!({}));
    assert_eq!(summary(&judgement), ("cpu", 120));
    assert_eq!(
        judgement.findings,
        [Finding::Cpu {
            cpu_sec: 31,
            cpu_budget: 30
        }]
    );
}

#[test]
fn a_job_killed_at_its_budget_is_over_it_once() {
    let mut recording = nothing();
    recording.cpu_sec = 36;
    let judgement = judge(&case(
        &recording,
        Some(&rules(&json!({}))),
        Outcome::CpuKilled,
    ));
    assert_eq!(
        judgement.findings,
        [Finding::CpuKill {
            cpu_sec: 36,
            cpu_budget: Some(30)
        }]
    );
}

#[test]
fn another_write_set_is_reported_with_names_when_the_contract_has_them() {
    let mut recording = nothing();
    recording.write_paths = set(&["b", "c"]);
    let expected = set(&["a", "b"]);
    let finding = |names| Finding::Writes {
        expected: digest(&expected),
        found: recording.writes(),
        names,
    };
    let judgement = judged(&recording, &json!({ "writes": digest(&expected) }));
    assert_eq!(judgement.findings, [finding(None)]);
    let judgement = judged(
        &recording,
        &json!({ "writes": digest(&expected), "write_paths": expected }),
    );
    let names = NameDifference {
        added: vec!["c".to_owned()],
        removed: vec!["a".to_owned()],
    };
    assert_eq!(judgement.findings, [finding(Some(names))]);
    assert_eq!(summary(&judgement), ("writes", 120));
}

#[test]
fn within_the_names_missing_ones_are_a_note_and_extra_ones_fail() {
    let expected = set(&["a", "b"]);
    let keys =
        json!({ "writes": digest(&expected), "write_paths": expected, "compare_writes": "within" });
    let mut recording = nothing();
    recording.write_paths = set(&["b"]);
    let judgement = judged(&recording, &keys);
    assert_eq!(summary(&judgement), ("match", 0));
    assert_eq!(
        judgement.notes,
        [Note::NotWritten {
            names: vec!["a".to_owned()]
        }]
    );
    recording.write_paths = set(&["a", "b"]);
    assert_eq!(judged(&recording, &keys).notes, []);
    recording.write_paths = set(&["a", "b", "c"]);
    assert_eq!(summary(&judged(&recording, &keys)), ("writes", 120));
}

#[test]
fn programs_are_compared_only_when_the_contract_lists_some() {
    let mut recording = nothing();
    recording.execs = set(&["/usr/bin/make", "/usr/bin/cc", "tool"]);
    assert_eq!(summary(&judged(&recording, &json!({}))), ("match", 0));
    assert_eq!(
        judged(&recording, &json!({ "allow_exec": [] }))
            .findings
            .len(),
        3
    );
    let judgement = judged(
        &recording,
        &json!({ "allow_exec": ["/usr/bin/*", "/opt/x"] }),
    );
    assert_eq!(
        judgement.findings,
        [Finding::Execs {
            entry: "tool".to_owned()
        }]
    );
    assert_eq!(
        judgement.notes,
        [Note::UnusedPattern {
            key: "allow_exec".to_owned(),
            pattern: "/opt/x".to_owned()
        }]
    );
}

#[test]
fn an_accepted_blind_spot_stays_and_is_said_in_every_headline() {
    let keys = json!({ "allow_unseen": ["docker", "io_uring", "cron"] });
    let mut recording = nothing();
    recording.escapes = set(&["delegate:docker"]);
    recording.coverage.unseen = set(&["io_uring"]);
    let judgement = judged(&recording, &keys);
    assert_eq!(summary(&judgement), ("match, BLIND to docker, io_uring", 0));
    assert!(judgement.complete);
    assert_eq!(judgement.blind, ["docker", "io_uring"]);
    assert_eq!(
        judgement.notes,
        [Note::UnusedPattern {
            key: "allow_unseen".to_owned(),
            pattern: "cron".to_owned()
        }]
    );
    recording.net = set(&["unix:/run/docker.sock"]);
    let judgement = judged(&recording, &keys);
    assert_eq!(summary(&judgement), ("net, BLIND to docker, io_uring", 120));
    let ledger = seal(
        &case(&recording, Some(&rules(&keys)), Outcome::Exited(0)),
        &judgement,
    );
    assert_eq!(ledger.recording.escapes, set(&["delegate:docker"]));
}

#[test]
fn what_is_not_accepted_by_name_fails_the_gate() {
    let mut recording = nothing();
    recording.escapes = set(&["delegate:docker"]);
    assert_eq!(
        summary(&judged(&recording, &json!({ "allow_unseen": ["podman"] }))),
        ("escapes", 120)
    );
    let mut recording = nothing();
    recording.coverage.unseen = set(&["io_uring"]);
    let judgement = judged(&recording, &json!({ "allow_unseen": ["docker"] }));
    assert_eq!(summary(&judgement), ("incomplete", 121));
    assert!(!judgement.complete);
}

#[test]
fn loss_and_the_worst_escapes_are_never_acceptable() {
    // The names that `allow_unseen` takes, were they to be the same as a kind of loss or an escape.
    let keys = json!({ "allow_unseen": ["ring", "leave", "lost", "docker"] });
    let mut recording = nothing();
    recording.lose("ring", 3);
    assert_eq!(summary(&judged(&recording, &keys)), ("incomplete", 121));
    for escape in [
        "cgroup-leave",
        "ptrace-outside",
        "contract-written",
        "new-kind",
    ] {
        let mut recording = nothing();
        recording.escapes = set(&[escape]);
        assert_eq!(
            summary(&judged(&recording, &keys)),
            ("escapes", 120),
            "{escape}"
        );
    }
}

#[test]
fn freedom_from_races_is_needed_when_the_contract_or_the_daemon_demands_it() {
    let reason = [Finding::Incomplete {
        reason: Reason::NotRaceFree,
    }];
    assert_eq!(
        judged(&nothing(), &json!({ "require_race_free": true })).findings,
        reason
    );
    let free = Recording::empty(ProbeSet::Fentry, true);
    assert_eq!(
        judged(&free, &json!({ "require_race_free": true })).findings,
        []
    );
    let recording = nothing();
    let case = Case {
        require_race_free: true,
        ..case(&recording, None, Outcome::Exited(0))
    };
    let judgement = judge(&case);
    let lost = Reason::Lost {
        kind: "race".to_owned(),
        count: 1,
    };
    assert_eq!(judgement.findings, [Finding::Incomplete { reason: lost }]);
    assert_eq!(
        seal(&case, &judgement).recording.lost,
        BTreeMap::from([("race".to_owned(), 1)])
    );
}

#[test]
fn a_job_that_is_recorded_only_keeps_its_exit_code_unless_it_is_incomplete() {
    let mut recording = nothing();
    recording.net = set(&["192.0.2.1:443"]);
    recording.escapes = set(&["delegate:docker"]);
    let judgement = judge(&case(&recording, None, Outcome::Exited(0)));
    assert_eq!(summary(&judgement), ("recorded", 0));
    assert_eq!(
        judgement.notes,
        [Note::Escaped {
            entry: "delegate:docker".to_owned()
        }]
    );
    let judgement = judge(&case(&recording, None, Outcome::Exited(3)));
    assert_eq!(summary(&judgement), ("job-failed, also: recorded", 3));
    recording.lose("ring", 1);
    let judgement = judge(&case(&recording, None, Outcome::Exited(0)));
    assert_eq!(summary(&judgement), ("incomplete, also: recorded", 121));
}

#[test]
fn patterns_over_writes_that_ignored_nothing_are_told_when_that_is_known() {
    let rules = rules(&json!({ "ignore_writes": ["*.pyc", "*.tmp"], "scratch": ["build", "out"] }));
    let recording = nothing();
    let ignored = set(&["a.pyc", "build/x"]);
    let unused = |key: &str, pattern: &str| Note::UnusedPattern {
        key: key.to_owned(),
        pattern: pattern.to_owned(),
    };
    let known = Case {
        ignored: Some(&ignored),
        ..case(&recording, Some(&rules), Outcome::Exited(0))
    };
    assert_eq!(
        judge(&known).notes,
        [unused("ignore_writes", "*.tmp"), unused("scratch", "out")]
    );
    let unknown = case(&recording, Some(&rules), Outcome::Exited(0));
    assert_eq!(judge(&unknown).notes, []);
}

#[test]
fn a_sealed_ledger_is_judged_as_the_job_was() {
    let strict = rules(&json!({ "require_race_free": true }));
    let plain = rules(&json!({ "allow_unseen": ["io_uring"] }));
    let mut lossy = nothing();
    lossy.lose("ring", 1);
    let mut writing = nothing();
    writing.write_paths = set(&["a"]);
    let mut unseen = nothing();
    unseen.coverage.unseen = set(&["io_uring"]);
    for recording in [nothing(), lossy, writing, unseen] {
        for rules in [None, Some(&plain), Some(&strict)] {
            // A command that never ran wrote nothing.
            let possible = |outcome: &Outcome| {
                outcome.never_ran().is_none() || recording.write_paths.is_empty()
            };
            for outcome in OUTCOMES.into_iter().filter(possible) {
                for require_race_free in [false, true] {
                    let case = Case {
                        require_race_free,
                        ..case(&recording, rules, outcome)
                    };
                    let judgement = judge(&case);
                    let sealed = seal(&case, &judgement);
                    let read = Ledger::from_json(sealed.to_json().as_bytes()).expect("a ledger");
                    assert_eq!(read, sealed);
                    let again = judge(&Case::of_ledger(&read, rules));
                    assert_eq!(again.verdict, judgement.verdict, "{case:?}");
                    assert_eq!(again.complete, judgement.complete, "{case:?}");
                }
            }
        }
    }
}

#[test]
fn a_sealed_ledger_passes_once_a_human_has_accepted_what_was_unseen() {
    let mut recording = nothing();
    recording.coverage.unseen = set(&["io_uring"]);
    let before = rules(&json!({}));
    let before = case(&recording, Some(&before), Outcome::Exited(0));
    let ledger = seal(&before, &judge(&before));
    assert!(!ledger.complete);
    let after = rules(&json!({ "allow_unseen": ["io_uring"] }));
    let judgement = judge(&Case::of_ledger(&ledger, Some(&after)));
    assert_eq!(summary(&judgement), ("match, BLIND to io_uring", 0));
}

#[test]
fn the_end_of_an_interrupted_job_is_sealed_as_a_loss() {
    let recording = nothing();
    for (outcome, kind) in [
        (Outcome::Interrupted(15), "interrupted"),
        (Outcome::Abandoned, "lease"),
    ] {
        let case = case(&recording, None, outcome);
        let ledger = seal(&case, &judge(&case));
        assert_eq!(
            ledger.recording.lost,
            BTreeMap::from([(kind.to_owned(), 1)])
        );
        assert!(!ledger.complete);
    }
}

#[test]
fn a_judgement_crosses_the_protocol_unchanged() {
    let mut recording = nothing();
    recording.net = set(&["192.0.2.1:443"]);
    recording.write_paths = set(&["a"]);
    recording.cpu_sec = 99;
    recording.lose("ring", 2);
    recording.escapes = set(&["cgroup-leave"]);
    let rules = rules(&json!({ "allow_exec": [], "write_paths": [], "allow_net": ["10.0.0.1:1"] }));
    let judgement = judge(&case(&recording, Some(&rules), Outcome::Signaled(9)));
    let json = serde_json::to_string(&judgement).expect("JSON");
    assert_eq!(
        serde_json::from_str::<Judgement>(&json).expect("a judgement"),
        judgement
    );
}

/// One of each kind.
const OUTCOMES: [Outcome; 9] = [
    Outcome::Exited(0),
    Outcome::Exited(3),
    Outcome::Signaled(11),
    Outcome::NotExecutable,
    Outcome::NotFound,
    Outcome::Interrupted(15),
    Outcome::CpuKilled,
    Outcome::Abandoned,
    Outcome::Failed,
];

#[test]
fn each_pattern_tells_how_much_it_covered() {
    let mut recording = nothing();
    recording.net = set(&["192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1"]);
    recording.execs = set(&["/bin/sh"]);
    recording.coverage.unseen = set(&["io_uring"]);
    let rules = rules(&json!({
        "allow_net": ["192.0.2.1:*", "192.0.2.0/24:1", "192.0.2.9:9"],
        "ignore_writes": ["*.tmp"],
        "allow_exec": ["/bin/*"],
        "allow_unseen": ["docker", "io_uring"],
    }));
    let ignored = set(&["a.tmp", "b.tmp"]);
    let judgement = judge(&Case {
        ignored: Some(&ignored),
        ..case(&recording, Some(&rules), Outcome::Exited(0))
    });
    let uses: Vec<(&str, &str, usize)> = judgement
        .patterns
        .iter()
        .map(|it| (it.key.as_str(), it.pattern.as_str(), it.entries))
        .collect();
    assert_eq!(
        uses,
        [
            ("allow_net", "192.0.2.1:*", 2),
            ("allow_net", "192.0.2.0/24:1", 2),
            ("allow_net", "192.0.2.9:9", 0),
            ("ignore_writes", "*.tmp", 2),
            ("allow_exec", "/bin/*", 1),
            ("allow_unseen", "docker", 0),
            ("allow_unseen", "io_uring", 1),
        ]
    );
    // Those that covered nothing are remarked on, and no others.
    let remarks: Vec<&Note> = judgement.notes.iter().collect();
    assert!(
        matches!(remarks[..], [Note::UnusedPattern { pattern: one, .. }, Note::UnusedPattern { pattern: other, .. }]
            if one == "192.0.2.9:9" && other == "docker"),
        "{remarks:?}"
    );
}

#[test]
fn little_head_room_is_remarked_on_and_breaks_nothing() {
    for (cpu_sec, expect) in [(24, false), (25, true), (30, true), (31, false)] {
        let mut recording = nothing();
        recording.cpu_sec = cpu_sec;
        let judgement = judged(&recording, &json!({}));
        let close = Note::LittleHeadRoom {
            cpu_sec,
            cpu_budget: 30,
        };
        assert_eq!(judgement.notes.contains(&close), expect, "{cpu_sec}");
        assert_eq!(judgement.exit_code == 0, cpu_sec <= 30, "{cpu_sec}");
    }
    // Nothing of nothing is no cause for worry.
    assert!(
        judged(&nothing(), &json!({"cpu_budget": 1}))
            .notes
            .is_empty()
    );
}

#[test]
fn the_counts_that_a_job_claims_are_held_against_the_contract() {
    let keys = json!({
        "capabilities": {"network": "a network"},
        "tests": {"junit": "out.xml", "run_min": 110, "skipped": {"network": 33}}
    });
    let mut recording = nothing();
    recording.suite.absent = Some(set(&["network"]));
    recording.suite.skips = [("network".to_owned(), set(&["test_a"]))].into();
    let mut claim = |run, skipped| {
        recording.suite.tests = Some(Tests::Counted(Counted {
            run,
            failed: 0,
            skipped,
        }));
        judged(&recording, &keys)
    };
    let judgement = claim(110, 33);
    assert_eq!(summary(&judgement), ("match", 0));
    let notes: Vec<String> = judgement.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "ran 110, skipped 33 of 143 (claimed by the job)",
            "runner declares network absent: 1 unit skipped, and a skip is never coverage"
        ]
    );
    let judgement = claim(95, 48);
    assert_eq!(summary(&judgement), ("tests", 120));
    let findings: Vec<String> = judgement.findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        findings,
        [
            "ran 95, contract pins at least 110",
            "skipped 48, contract pins 33"
        ]
    );
    let unread = judged(&nothing(), &keys);
    assert_eq!(summary(&unread), ("tests", 120));
}
