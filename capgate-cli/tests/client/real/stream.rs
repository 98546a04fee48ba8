//! Watching a job from a second terminal, and looking at it later.

use std::process::Command;

use crate::{
    real::service::{Repository, SOMEBODY, Service},
    stand::{Watched, fails, output, text},
};

/// `capgate tail` of the only job.
fn tail(service: &Service, options: &[&str]) -> Command {
    let mut command = service.capgate(0, "/".as_ref());
    command
        .args(["tail", &service.job(), "--socket"])
        .arg(service.socket())
        .args(options);
    command
}

#[test]
fn a_running_job_is_followed_from_its_backlog_to_its_end() {
    let service = Service::start();
    let repository = Repository::new();
    let script = "echo > first; echo ready; read line; echo > second";
    let mut run = service.run(
        &repository,
        &["--record", "--label", "watched"],
        &["sh", "-c", script],
    );
    run.stdin(std::process::Stdio::piped());
    let mut client = Watched::start(&mut run);
    assert_eq!(client.line(), "ready");
    let mut human = Watched::start(&mut tail(&service, &[]));
    let mut json = Watched::start(&mut tail(&service, &["--json", "--kind", "file"]));
    while !human.line().contains("first") {}
    let line = json.line();
    assert!(line.contains(r#""subject":"first""#), "{line}");
    // What came before is backlog now, for everybody.
    let mut fresh = Watched::start(&mut tail(
        &service,
        &["--json", "--kind", "file", "--no-backlog"],
    ));
    assert!(service.ask(&["ps"]).contains("watched"));
    // Whoever wants no backlog has to be there before it goes on.
    let mut last = String::new();
    crate::stand::until("the third one follows", || {
        last = service.ask(&["status", "--json"]);
        follows(&fresh)
    });
    client.write(b"go on\n");
    while !human.line().contains("second") {}
    let line = json.line();
    assert!(line.contains(r#""subject":"second""#), "{line}");
    let line = fresh.line();
    assert!(line.contains(r#""subject":"second""#), "{line}");
    assert_eq!(client.output().status.code(), Some(0));
    assert!(text(&human.output().stdout).ends_with("the job has ended: recorded\n"));
    for reader in [json, fresh] {
        let rest = text(&reader.output().stdout);
        assert_eq!(rest, "{\"line\":\"end\",\"verdict\":[\"recorded\"]}\n");
    }
}

/// Whether a `tail` waits for the daemon's next word: it has sent its request and reads.
fn follows(reader: &Watched) -> bool {
    let pid = reader.pid();
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    // poll and ppoll, x86-64 and arm64.
    ["7 ", "271 ", "73 "]
        .iter()
        .any(|number| call.starts_with(number))
}

#[test]
fn a_finished_job_is_shown_to_its_user_and_to_root() {
    let service = Service::start();
    let repository = Repository::of(SOMEBODY);
    let run = output(&mut service.run_as(SOMEBODY, &repository, &[], &["touch", "new"]));
    assert_eq!(run.status.code(), Some(120), "{}", text(&run.stderr));
    let job = service.job();
    let shown = service.ask(&["show", &job]);
    assert_eq!(shown.lines().next(), text(&run.stderr).lines().next());
    assert!(shown.contains("+ `new`"), "{shown}");
    let ledger = std::fs::read_to_string(repository.path("tests/capability.actual.json")).unwrap();
    assert_eq!(service.ask(&["show", &job, "--ledger"]), ledger);
    assert!(
        service
            .ask(&["show", &job, "--evidence"])
            .contains("\"entries\"")
    );
    assert!(
        service
            .ask(&["show", &job, "--format", "markdown"])
            .starts_with("### capgate: `writes`")
    );
    let mut other = service.capgate(SOMEBODY + 1, "/".as_ref());
    other.args(["show", &job, "--socket"]).arg(service.socket());
    fails(&mut other, 125, &["job"]);
    assert!(service.ask(&["doctor"]).contains("serves at"));
    assert!(service.ask(&["status"]).contains("tracepoint"));
}
