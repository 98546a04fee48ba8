//! Verdicts as a user meets them: exit codes and reports, by `run` and by `check`.

use std::{fs, process::Output};

use capgate_common::{
    compare::{Case, judge, seal},
    evidence::{Column, Entry, Evidence, Process},
    ledger::{ProbeSet, Recording},
    outcome::Outcome,
};

use crate::{
    stand::{EMPTY, Stand, bare, fails, output, text},
    stand_in::Manner,
};

/// A recording with these members.
fn recording(net: &[&str], writes: &[&str]) -> Recording {
    let mut recording = Recording::empty(ProbeSet::Tracepoint, false);
    recording.net = net.iter().map(|&it| it.to_owned()).collect();
    recording.write_paths = writes.iter().map(|&it| it.to_owned()).collect();
    recording
}

/// Evidence for one entry: a program two levels below the command.
fn evidence(column: Column, entry: &str) -> Evidence {
    let process = |pid, exe: &str, argv: &[&str]| Process {
        pid,
        exe: exe.to_owned(),
        argv: argv.iter().map(|&it| it.to_owned()).collect(),
        status: (pid == 71).then_some(1),
    };
    Evidence {
        entries: vec![Entry {
            column,
            entry: entry.to_owned(),
            addresses: std::collections::BTreeSet::new(),
            ops: vec!["connect".to_owned()],
            count: 3,
            first_ms: 1120,
            by: vec![
                process(71, "/usr/bin/nc", &["nc", "192.0.2.7", "9"]),
                process(70, "/usr/bin/dash", &["sh", "-c", "run\u{1b}[31m me"]),
            ],
        }],
        ..Evidence::default()
    }
}

/// Runs under a daemon that recorded this.
fn run(change: impl FnOnce(&mut Manner), options: &[&str], command: &[&str]) -> Output {
    let stand = Stand::with(change);
    output(&mut stand.run_with(options, command))
}

/// A name, what the daemon recorded, the command, and the exit code.
type Row<'a> = (&'a str, fn(&mut Manner), &'a [&'a str], i32);

#[test]
fn each_row_of_the_table_gives_its_code() {
    let cases: [Row; 12] = [
        ("nothing", |_| {}, &["true"], 0),
        ("job failed", |_| {}, &["sh", "-c", "exit 3"], 3),
        (
            "net",
            |it| it.recording = recording(&["192.0.2.7:9"], &[]),
            &["true"],
            120,
        ),
        (
            "writes",
            |it| it.recording = recording(&[], &["a"]),
            &["true"],
            120,
        ),
        ("cpu", |it| it.recording.cpu_sec = 31, &["true"], 120),
        (
            "cpu at the budget",
            |it| it.recording.cpu_sec = 30,
            &["true"],
            0,
        ),
        (
            "escape",
            |it| {
                it.recording.escapes.insert("cgroup-leave".to_owned());
            },
            &["true"],
            120,
        ),
        ("loss", |it| it.recording.lose("ring", 1), &["true"], 121),
        (
            "loss and net",
            |it| {
                it.recording = recording(&["192.0.2.7:9"], &[]);
                it.recording.lose("ring", 1);
            },
            &["true"],
            121,
        ),
        (
            "failed and net",
            |it| it.recording = recording(&["192.0.2.7:9"], &[]),
            &["false"],
            1,
        ),
        (
            "not found",
            |it| it.recording = recording(&["192.0.2.7:9"], &[]),
            &["no-such-command"],
            127,
        ),
        (
            "unseen",
            |it| {
                it.recording.coverage.unseen.insert("io_uring".to_owned());
            },
            &["true"],
            121,
        ),
    ];
    for (name, change, command, code) in cases {
        let output = run(change, &[], command);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{name}: {}",
            text(&output.stderr)
        );
    }
    let recorded = run(
        |it| it.recording = recording(&["192.0.2.7:9"], &["a"]),
        &["--record"],
        &["true"],
    );
    assert_eq!(recorded.status.code(), Some(0));
    let recorded = run(|it| it.recording.lose("ring", 1), &["--record"], &["true"]);
    assert_eq!(recorded.status.code(), Some(121));
}

#[test]
fn the_report_names_who_and_when_and_what_to_do() {
    let change = |it: &mut Manner| {
        it.recording = recording(&["192.0.2.7:9"], &[]);
        it.evidence = evidence(Column::Net, "192.0.2.7:9");
    };
    let stand = Stand::with(change);
    let output = output(&mut stand.run(&["false"]));
    let stderr = text(&output.stderr);
    assert_eq!(text(&output.stdout), "");
    let lines: Vec<&str> = stderr.lines().collect();
    let contract = stand.path("tests/capability.ledger.json");
    assert_eq!(
        lines[0],
        format!(
            "capgate: job-failed, also: net (job j-1, contract `{}`, recording complete, 1.234 s, exit 1)",
            contract.display()
        )
    );
    assert!(stderr.contains("+ `192.0.2.7:9`"), "{stderr}");
    assert!(
        stderr.contains("by `nc 192.0.2.7 9` (pid 71, `/usr/bin/nc`, status 1) < `sh -c run\\x1b[31m me` (pid 70, `/usr/bin/dash`), first at 1.120 s, 3 times"),
        "{stderr}"
    );
    assert!(
        stderr.contains("next: find out what the program connects for"),
        "{stderr}"
    );
    assert!(
        stderr.trim_end().ends_with("tests/capability.actual.json"),
        "{stderr}"
    );
}

#[test]
fn names_added_and_removed_are_shown() {
    let stand = Stand::with(|it| it.recording = recording(&[], &["kept", "new"]));
    let old = recording(&[], &["gone", "kept"]);
    let contract = format!(
        r#"{{"allow_net": [], "cpu_budget": 30, "writes": "{}", "write_paths": ["gone", "kept"]}}"#,
        old.writes()
    );
    fs::write(stand.path("tests/capability.ledger.json"), contract).unwrap();
    let output = output(&mut stand.run(&["true"]));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(120));
    assert!(
        stderr.contains("+ `new`") && stderr.contains("- `gone`") && !stderr.contains("`kept`"),
        "{stderr}"
    );
}

#[test]
fn other_formats_go_to_stdout_after_the_job() {
    for (format, start) in [
        ("json", "{\n"),
        ("markdown", "### capgate: `net`\n\njob `j-1`, contract `"),
        ("github", "::error title=capgate::net (job"),
        ("gitlab", "[\n"),
        (
            "junit",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"capgate\" tests=\"7\" failures=\"1\"",
        ),
    ] {
        let change = |it: &mut Manner| it.recording = recording(&["192.0.2.7:9"], &[]);
        let output = run(change, &["--format", format], &["printf", "from the job"]);
        let stdout = text(&output.stdout);
        let report = stdout.strip_prefix("from the job").unwrap().trim_start();
        assert!(report.starts_with(start), "{report}");
        assert!(report.contains("192.0.2.7:9"));
        assert_eq!(text(&output.stderr), "");
        assert_eq!(output.status.code(), Some(120));
    }
}

#[test]
fn no_option_loses_the_exit_code() {
    let options: [&[&str]; 11] = [
        &["--format", "human"],
        &["--format", "json"],
        &["--format", "markdown"],
        &["--format", "github"],
        &["--format", "gitlab"],
        &["--format", "junit"],
        &["--report", "r"],
        &["--format", "json", "--report", "r"],
        &["--ledger", "l", "--evidence", "e"],
        &["--label", "x", "--root", "."],
        &["--contract", "tests/capability.ledger.json"],
    ];
    for options in options {
        let different = |it: &mut Manner| it.recording = recording(&["192.0.2.7:9"], &[]);
        assert_eq!(
            run(|_| {}, options, &["true"]).status.code(),
            Some(0),
            "{options:?}"
        );
        assert_eq!(
            run(different, options, &["true"]).status.code(),
            Some(120),
            "{options:?}"
        );
        assert_eq!(
            run(different, options, &["false"]).status.code(),
            Some(1),
            "{options:?}"
        );
    }
}

#[test]
fn a_report_that_cannot_be_written_is_a_failure() {
    let stand = Stand::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = stand.run_with(&["--format", "json"], &["true"]);
    command.stdout(full);
    let output = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("cannot write the report to stdout"));
}

/// Writes a ledger and a contract, and compares them.
fn check(recording: &Recording, outcome: Outcome, contract: &str, options: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let case = Case {
        recording,
        rules: None,
        outcome,
        require_race_free: false,
        ignored: None,
        addresses: None,
    };
    let ledger = seal(&case, &judge(&case));
    let (ledger_path, contract_path) = (dir.path().join("l.json"), dir.path().join("c.json"));
    fs::write(&ledger_path, ledger.to_json()).unwrap();
    fs::write(&contract_path, contract).unwrap();
    let mut command = bare();
    command
        .current_dir(dir.path())
        .env("RUNNER_TEMP", "/tmp/runner")
        .arg("check")
        .args([&ledger_path, &contract_path])
        .args(options);
    output(&mut command)
}

#[test]
fn files_are_compared_without_a_daemon() {
    let ok = Outcome::Exited(0);
    for (recording, outcome, code, word) in [
        (recording(&[], &[]), ok, 0, "capgate: match"),
        (recording(&["192.0.2.7:9"], &[]), ok, 120, "capgate: net"),
        (recording(&[], &["a"]), ok, 120, "capgate: writes"),
        (
            recording(&[], &[]),
            Outcome::Exited(7),
            1,
            "capgate: job-failed",
        ),
        (
            recording(&[], &[]),
            Outcome::Interrupted(15),
            1,
            "capgate: job-failed, also: incomplete",
        ),
    ] {
        let output = check(&recording, outcome, EMPTY, &[]);
        let stdout = text(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{stdout}{}",
            text(&output.stderr)
        );
        assert!(stdout.starts_with(word), "{stdout}");
    }
    let tokens = EMPTY.replace('}', r#", "ignore_writes": ["$RUNNER_TEMP/**"]}"#);
    let output = check(&recording(&[], &[]), ok, &tokens, &["--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verdict"][0], "match");
    assert_eq!(report["schema"], "capgate/report/1");
}

#[test]
fn files_that_are_none_are_refused_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let contract = dir.path().join("c.json");
    fs::write(&contract, EMPTY).unwrap();
    let mut missing = bare();
    missing
        .current_dir(dir.path())
        .args(["check", "nowhere.json", "c.json"]);
    fails(&mut missing, 125, &["cannot read the ledger nowhere.json"]);
    let mut swapped = bare();
    swapped
        .current_dir(dir.path())
        .args(["check", "c.json", "c.json"]);
    fails(&mut swapped, 125, &["cannot use the ledger c.json"]);
}
