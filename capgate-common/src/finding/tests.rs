use super::{Finding, NameDifference, Note, Reason};
use crate::outcome::Outcome;

fn check(shown: impl std::fmt::Display, expect: &str) {
    assert_eq!(shown.to_string(), expect);
}

#[test]
fn each_finding_is_a_sentence() {
    check(
        Finding::CpuKill {
            cpu_sec: 36,
            cpu_budget: Some(30),
        },
        "the job was killed after 36 s of user CPU time, its budget is 30 s",
    );
    check(
        Finding::CpuKill {
            cpu_sec: 36,
            cpu_budget: None,
        },
        "the job was killed after 36 s of user CPU time",
    );
    check(
        Finding::Net {
            entry: "192.0.2.1:443".to_owned(),
        },
        "`allow_net` does not allow 192.0.2.1:443",
    );
    check(
        Finding::Cpu {
            cpu_sec: 31,
            cpu_budget: 30,
        },
        "the job used 31 s of user CPU time, its budget is 30 s",
    );
    check(
        Finding::Execs {
            entry: "tool".to_owned(),
        },
        "`allow_exec` does not allow tool",
    );
    check(
        Finding::Escapes {
            entry: "contract-written".to_owned(),
        },
        "the job wrote the contract that it is judged by",
    );
}

#[test]
fn another_write_set_is_told_with_numbers_of_names() {
    let writes = |names| Finding::Writes {
        expected: String::new(),
        found: String::new(),
        names,
    };
    check(
        writes(None),
        "the write set is not the contract's, which has no `write_paths` to tell the names that differ",
    );
    check(
        writes(Some(NameDifference {
            added: vec!["a".to_owned()],
            removed: Vec::new(),
        })),
        "the write set is not the contract's: 1 name added, 0 names removed",
    );
}

#[test]
fn the_end_of_a_job_is_a_sentence() {
    for (outcome, expect) in [
        (Outcome::Exited(3), "the command exited with status 3"),
        (Outcome::Signaled(11), "the command was killed by signal 11"),
        (
            Outcome::Interrupted(15),
            "the job was interrupted by signal 15 and killed",
        ),
        (
            Outcome::Abandoned,
            "the client went away, and the job was killed",
        ),
        (Outcome::Failed, "the command failed"),
    ] {
        check(Finding::JobFailed { outcome }, expect);
    }
    check(Outcome::NotFound, "the command was not found");
    check(Outcome::NotExecutable, "the command could not be executed");
    check(Outcome::CpuKilled, "the job was killed at its CPU budget");
}

#[test]
fn each_reason_of_incompleteness_is_told() {
    let lost = |kind: &str| Reason::Lost {
        kind: kind.to_owned(),
        count: 3,
    };
    let incomplete = |reason| Finding::Incomplete { reason };
    check(
        incomplete(lost("ring")),
        "the recording is not complete: 3 lost (ring)",
    );
    check(
        lost("interrupted"),
        "the job was interrupted before its end",
    );
    check(
        lost("race"),
        "the daemon's configuration requires probes free of races, and the ones here are not",
    );
    check(
        lost("lease"),
        "the client went away before the end of the job",
    );
    check(
        Reason::Unseen {
            name: "io_uring".to_owned(),
        },
        "the job opened, named, connected or sent by io_uring (io_uring), which the recorder cannot see",
    );
    check(
        Reason::NotRaceFree,
        "the contract requires probes free of races, and the ones here are not",
    );
}

#[test]
fn each_note_is_a_sentence() {
    check(
        Note::UnusedPattern {
            key: "scratch".to_owned(),
            pattern: "a/b".to_owned(),
        },
        "`a/b` in the contract's `scratch` matched nothing",
    );
    check(
        Note::NotWritten {
            names: vec!["a".to_owned(); 2],
        },
        "2 names of the contract's `write_paths` not written",
    );
    check(
        Note::Escaped {
            entry: "delegate:cron".to_owned(),
        },
        "the job talked to cron, which can run commands later outside the job, where nothing is recorded",
    );
}

#[test]
fn hostile_text_is_neutralised() {
    let hostile = "\u{1b}[2J\u{202e}";
    for shown in [
        Finding::Net {
            entry: hostile.to_owned(),
        }
        .to_string(),
        Finding::Execs {
            entry: hostile.to_owned(),
        }
        .to_string(),
        Finding::Escapes {
            entry: hostile.to_owned(),
        }
        .to_string(),
        Reason::Lost {
            kind: hostile.to_owned(),
            count: 1,
        }
        .to_string(),
        Reason::Unseen {
            name: hostile.to_owned(),
        }
        .to_string(),
        Note::UnusedPattern {
            key: "scratch".to_owned(),
            pattern: hostile.to_owned(),
        }
        .to_string(),
        Note::Escaped {
            entry: hostile.to_owned(),
        }
        .to_string(),
    ] {
        assert!(shown.contains(r"\x1b[2J\u{202e}"), "{shown:?}");
    }
}
