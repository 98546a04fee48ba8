use capgate_common::evidence::Column;

use crate::{
    event::{Event, Fact, NameOp, Top},
    refused::Refused,
    session::JobView,
    story::{Machine, Teller, forms, lost, record, rules, view, words},
};

/// A job that is refused some things; `more` are further keys of its contract.
fn refusing(refuse: &[&str], more: &str) -> JobView {
    let list = serde_json::to_string(refuse).expect("a list");
    let rules = rules(&format!(r#", "refuse": {list}{more}"#));
    let refused = Refused {
        refusals: rules
            .refuse()
            .followed(&forms(), &|_| None)
            .expect("usable"),
        originals: Vec::new(),
        shims: Some(b"/tmp/capgate-x".to_vec()),
    };
    JobView {
        rules: Some(rules),
        refused: Some(refused),
        ..view()
    }
}

/// The reaches of a job, and what was lost.
fn reaches(view: JobView, machine: &str, events: Vec<Event>) -> String {
    let record = record(view, Machine::new(machine), events);
    assert_eq!(lost(&record), "");
    words(&record.recording.reaches.expect("it was watched"))
}

fn check(refuse: &[&str], story: &str, machine: &str, expect: &str) {
    let events = Teller::new().tell(story);
    assert_eq!(
        reaches(refusing(refuse, ""), machine, events),
        expect,
        "{story}"
    );
}

#[test]
fn a_job_that_is_refused_nothing_has_no_reaches() {
    let events = Teller::new().tell("exec /usr/bin/az");
    let record = record(view(), Machine::default(), events);
    assert_eq!(record.recording.reaches, None);
    check(&["exec:az"], "exec /usr/bin/true; create az", "az", "");
}

#[test]
fn a_program_is_reached_under_any_of_its_names() {
    let az = &["exec:az"];
    check(az, "exec /usr/bin/az", "", "exec:/usr/bin/az");
    check(az, "exec tests/bin/az", "", "exec:tests/bin/az");
    check(az, "script /bin/sh /opt/az", "/opt/az", "exec:/opt/az");
    // Called by a link of that name, and by one of another name to it.
    check(az, "script /bin/sh az", "az->/opt/x /opt/x", "exec:az");
    check(az, "script /bin/sh x", "x->/opt/az /opt/az", "exec:/opt/az");
    check(az, "exec /usr/bin/az2; exec /usr/az/x", "", "");
    check(
        &["exec:/opt/az/**"],
        "exec /opt/az/bin/python3; exec /opt/b",
        "",
        "exec:/opt/az/bin/python3",
    );
}

#[test]
fn a_program_in_memory_is_reached_by_its_name() {
    let mut events = Teller::new().tell("exec /memfd:az");
    if let Fact::Exec(exec) = &mut events[0].fact {
        exec.exe.top = Top::Internal;
    }
    let refuse = refusing(&["exec:memfd:az"], "");
    assert_eq!(reaches(refuse, "", events), "exec:memfd:az");
}

#[test]
fn a_program_that_refuses_is_the_clients_and_counts_as_what_it_stands_for() {
    let events = Teller::new().tell("script /bin/sh /tmp/capgate-x/az");
    let machine = Machine::new("/tmp/capgate-x/az");
    let record = record(refusing(&["exec:az"], ""), machine, events);
    assert_eq!(
        words(&record.recording.reaches.expect("it was watched")),
        "exec:az"
    );
    assert_eq!(words(&record.recording.execs), "");
    assert_eq!(record.evidence.entries[0].column, Column::Reaches);
}

#[test]
fn a_destination_is_reached_however_it_counts() {
    let refuse = &[
        "net:192.0.2.1:*",
        "net:127.0.0.1:5432",
        "unix:/run/docker.sock",
        "unix:/dev/log",
    ];
    check(refuse, "tcp 192.0.2.1:80", "", "net:192.0.2.1:80");
    check(refuse, "tcp 192.0.2.2:80", "", "");
    // The job's own listener, host plumbing, and a socket that is not there.
    check(
        refuse,
        "listen 127.0.0.1:5432; tcp 127.0.0.1:5432",
        "",
        "net:127.0.0.1:5432",
    );
    check(refuse, "unix /dev/log", "/dev/log!", "unix:/dev/log");
    check(
        refuse,
        "unix /run/docker.sock -2",
        "",
        "unix:/run/docker.sock",
    );
    check(
        refuse,
        "unix /run/docker.sock -111",
        "/run/docker.sock",
        "unix:/run/docker.sock",
    );
    // Looking for a way to an address sends nothing to it.
    check(refuse, "udp 192.0.2.1:80", "", "");
    check(refuse, "send 192.0.2.1:80", "", "net:192.0.2.1:80");
}

#[test]
fn what_the_contract_allows_or_leaves_out_is_reached_all_the_same() {
    let more = r#", "ignore_writes": ["s/**"], "scratch": ["s"]"#;
    let events = Teller::new().tell("create s/x; unlink s/x; create other");
    let view = refusing(&["write:s/*"], more);
    assert_eq!(reaches(view, "s/a other", events), "write:s/x");
}

#[test]
fn names_are_reached_by_every_way_to_write_them() {
    let ssh = &["write:~/.ssh/**"];
    for step in [
        "open /home/u/.ssh/id",
        "create /home/u/.ssh/id",
        "truncate /home/u/.ssh/id",
        "unlink /home/u/.ssh/id",
        "rename /home/u/.ssh/id x",
        "rename x /home/u/.ssh/id",
        "link x /home/u/.ssh/id",
        "link /home/u/.ssh/id x",
        "symlink x /home/u/.ssh/id",
        "mkdir /home/u/.ssh/id",
        "mknod /home/u/.ssh/id",
        "rmdir /home/u/.ssh/id",
    ] {
        check(ssh, step, "x /home/u/.ssh/id", "write:~/.ssh/id");
    }
    check(
        ssh,
        "rename /home/u/.ssh x",
        "/home/u/.ssh/id",
        "write:~/.ssh",
    );
    check(
        ssh,
        "chmod /home/u/.ssh/id; open x",
        "x /home/u/.ssh/id",
        "",
    );
    check(ssh, "mkdir /home/u/.ssh; create /home/u/x", "", "");
}

/// The events of a story, which the kernel refused.
fn denied(story: &str, op: NameOp) -> Vec<Event> {
    let mut events = Teller::new().tell(story);
    for event in &mut events {
        if let Fact::Name(name) = &mut event.fact {
            name.refused = true;
            name.op = op;
        }
    }
    events
}

#[test]
fn what_the_kernel_refuses_was_reached_for() {
    let refuse = &["exec:az", "write:/etc/**"];
    let all = |events| reaches(refusing(refuse, ""), "/usr/bin/az /etc/passwd", events);
    assert_eq!(
        all(denied("truncate /usr/bin/az", NameOp::Exec)),
        "exec:/usr/bin/az"
    );
    // There, and not there.
    for name in ["/etc/passwd", "/etc/new"] {
        for op in [NameOp::Open, NameOp::Mkdir, NameOp::Unlink] {
            let events = denied(&format!("truncate {name}"), op);
            assert_eq!(all(events), format!("write:{name}"), "{op:?}");
        }
    }
    assert_eq!(all(denied("truncate /usr/bin/az", NameOp::Open)), "");
    // Nothing changed, so nothing was written.
    let events = denied("truncate /etc/passwd", NameOp::Open);
    let record = record(refusing(refuse, ""), Machine::new("/etc/passwd"), events);
    assert_eq!(words(&record.recording.write_paths), "");
    let entry = &record.evidence.entries[0];
    assert_eq!(
        (entry.column, &entry.ops[..]),
        (
            Column::Reaches,
            &["open".to_owned(), "refused".to_owned()][..]
        )
    );
}

#[test]
fn evidence_shows_who_reached_for_it() {
    let record = record(
        refusing(&["exec:az"], ""),
        Machine::default(),
        Teller::new()
            .tell("exec /usr/bin/pytest tests/test_cloud.py; fork 11; @11; exec /usr/bin/az login"),
    );
    let entry = record
        .evidence
        .entries
        .iter()
        .find(|entry| entry.column == Column::Reaches);
    let chain = entry.expect("a reach").by.iter();
    let chain: Vec<String> = chain.map(|process| process.argv.join(" ")).collect();
    assert_eq!(
        chain,
        ["/usr/bin/az login", "/usr/bin/pytest tests/test_cloud.py"]
    );
}
