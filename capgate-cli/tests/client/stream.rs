//! `tail` and `show`.

use capgate_common::protocol::{Response, StreamEvent};

use crate::stand::{Stand, Watched, fails, output, text};

fn event(seq: u64, subject: &str) -> Response {
    Response::Event(Box::new(StreamEvent {
        seq,
        ms: 120 * seq,
        kind: "file".to_owned(),
        pid: 7,
        exe: Some("/bin/sh".to_owned()),
        op: "create".to_owned(),
        subject: subject.to_owned(),
    }))
}

fn end() -> Response {
    Response::End {
        verdict: vec!["match".to_owned()],
    }
}

fn tail(events: Vec<Response>, options: &[&str]) -> std::process::Command {
    let stand = Stand::with(|it| it.events = events);
    let mut command = stand.capgate(["tail", "j-1", "--socket"]);
    command.arg(stand.outside("sock")).args(options);
    // The stand-in goes on to listen when its directory is gone, but nobody could connect any more.
    std::mem::forget(stand);
    command
}

#[test]
fn events_are_shown_until_the_end() {
    let events = vec![
        event(1, "a"),
        Response::Lagged { missed: 5 },
        event(9, "evil\u{202e}\u{9b}"),
        end(),
    ];
    let human = output(&mut tail(events.clone(), &[]));
    assert_eq!(human.status.code(), Some(0));
    assert_eq!(
        text(&human.stdout),
        "   0.120 s  file    create    a  /bin/sh[7]\n\
         … 5 events missed: they came faster than they were read\n   \
         1.080 s  file    create    evil\\u{202e}\\u{9b}  /bin/sh[7]\n\
         the job has ended: match\n"
    );
    let json = output(&mut tail(events, &["--json"]));
    let lines: Vec<serde_json::Value> = text(&json.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(json.stdout.is_ascii());
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0]["line"], "event");
    assert_eq!(lines[0]["subject"], "a");
    assert_eq!(lines[1]["missed"], 5);
    assert_eq!(lines[2]["subject"], "evil\u{202e}\u{9b}");
    assert_eq!(lines[3]["verdict"][0], "match");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let events = (1..20_000).map(|seq| event(seq, "a")).chain([end()]);
    let mut tail = Watched::start(&mut tail(events.collect(), &[]));
    assert!(tail.line().ends_with("/bin/sh[7]"));
    tail.close();
    let output = tail.output();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_job_that_is_not_there_is_said_so() {
    let stand = Stand::new();
    for name in ["show", "stop"] {
        let mut command = stand.capgate([name, "nope", "--socket"]);
        command.arg(stand.outside("sock"));
        fails(&mut command, 125, &["cannot find job nope"]);
    }
}
