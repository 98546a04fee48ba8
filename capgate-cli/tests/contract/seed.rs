//! `init`: from runs, from ledgers, and where it refuses.

use std::fs;

use capgate_common::ledger;

use crate::project::{Project, serve};

#[test]
fn a_contract_from_runs_holds_and_shows_why() {
    let service = serve();
    let project = Project::new();
    project.repository.write(".gitignore", "*.o");
    let script = "mkdir -p out; echo > out/kept; echo > out/run.$$; mktemp out/XXXXXX.tmp > /dev/null; echo > \"day-$(date +%F)\"";
    let said = project.init(&service, &["--runs", "3"], script).exits(0);
    assert_eq!(
        said.stderr,
        "capgate: run 1 of 3\ncapgate: run 2 of 3\ncapgate: run 3 of 3\n"
    );
    let said = said
        .says("from 3 runs")
        .says("`day-*`: looks like a date; `day-")
        .says("`out/run.*`: others in each run; 3 names, such as `out/run.")
        .says("`out/*.tmp`: others in each run")
        .says("by `mktemp out/XXXXXX.tmp`");
    let contract = project.contract();
    assert_eq!(
        contract.ignore_writes,
        ["day-*", "out/*.tmp", "out/run.*"],
        "{}",
        said.stdout
    );
    assert_eq!(
        contract.write_paths.unwrap().iter().collect::<Vec<_>>(),
        ["out/kept"]
    );
    assert_eq!((contract.cpu_budget, contract.allow_net.len()), (10, 0));
    let ignored = fs::read_to_string(project.path(".gitignore")).unwrap();
    assert_eq!(ignored, "*.o\n/tests/capability.actual.json\n");
    project
        .run(&service, &[], script)
        .exits(0)
        .says("capgate: match");

    // Its runs can be told from others in the log, the latest first.
    let socket = service.socket().display().to_string();
    let log = |options: &[&str]| {
        let arguments = [&["log", "--socket", &socket, "--json"], options].concat();
        let lines = project.capgate(&arguments).exits(0).stdout;
        let jobs = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        jobs.collect::<Vec<serde_json::Value>>()
    };
    let seeding = log(&["--label", "init"]);
    assert_eq!(seeding.len(), 3);
    assert!(
        seeding
            .iter()
            .all(|job| job["state"] == "done" && job["verdict"][0] == "recorded")
    );
    let all = log(&[]);
    let started: Vec<u64> = all
        .iter()
        .map(|job| job["started"].as_u64().unwrap())
        .collect();
    assert!(
        all.len() == 4 && started.is_sorted_by(|one, next| one >= next),
        "{all:?}"
    );
    assert_eq!(log(&["-n", "2"]), all[..2]);

    // Once written it is the owner's.
    let before = project.contract_text();
    project
        .init(&service, &[], "echo > other")
        .exits(125)
        .says("there is a contract at")
        .says("--force");
    assert_eq!(project.contract_text(), before);
    project
        .init(&service, &["--force"], "echo > other")
        .exits(0);
    assert_eq!(
        project
            .contract()
            .write_paths
            .unwrap()
            .iter()
            .collect::<Vec<_>>(),
        ["other"]
    );
}

#[test]
fn connections_are_allowed_only_when_asked_for() {
    let service = serve();
    let script = "/usr/bin/python3 -c 'import socket\nfor port in (9, 10):\n  s = socket.socket()\n  try: s.connect((\"127.0.0.1\", port))\n  except OSError: pass'";
    let project = Project::new();
    project
        .init(&service, &["--runs", "1"], script)
        .exits(0)
        .says("nothing is allowed; these were seen")
        .says("`127.0.0.1:9`")
        .says("names that move are not seen in one run");
    project.run(&service, &[], script).exits(120);
    project
        .init(&service, &["--force", "--allow-seen"], script)
        .exits(0)
        .says("allowed from now on");
    project.run(&service, &[], script).exits(0);
}

#[test]
fn recorded_ledgers_seed_a_contract_without_a_daemon() {
    let service = serve();
    let project = Project::new();
    for name in ["one.json", "two.json"] {
        let options = ["--record", "--ledger", name];
        project
            .run(&service, &options, "echo > kept; echo > run.$$")
            .exits(0);
    }
    drop(service);
    let init = project
        .capgate(&["init", "--from", "one.json", "two.json"])
        .exits(0);
    init.says("from 2 runs").says("`run.*`: others in each run");
    assert_eq!(
        project.contract().writes,
        ledger::digest(&["kept".to_owned()].into())
    );
    project
        .capgate(&["init", "--from", "one.json", "--", "true"])
        .exits(125)
        .says("cannot be used with");
    project.capgate(&["init"]).exits(125);
}

#[test]
fn no_contract_comes_from_a_bad_example() {
    let service = serve();
    let project = Project::new();
    let refused = |script: &str, phrase: &str| {
        let runs = if script.contains("flag") { "3" } else { "2" };
        project
            .init(&service, &["--runs", runs], script)
            .exits(125)
            .says("cannot write a contract from run ")
            .says(phrase);
        assert!(
            !project.path("tests/capability.ledger.json").exists(),
            "{script}"
        );
        assert!(!project.path(".gitignore").exists(), "{script}");
    };
    refused("exit 3", "from run 1: the job failed");
    refused(
        "test ! -e flag; r=$?; touch flag; exit $r",
        "from run 2: the job failed",
    );
    refused(
        "mkdir -p tests; echo > tests/capability.ledger.json; rm tests/capability.ledger.json",
        "wrote the contract",
    );
    let mut nothing = project.command(service.client());
    nothing
        .args(["init", "--socket"])
        .arg(service.socket())
        .args(["--", "./missing"]);
    let output = nothing.output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the command could not be run"));
}

#[test]
fn no_contract_is_written_or_changed_where_no_human_looks() {
    let service = serve();
    let project = Project::new();
    project
        .run(&service, &["--record", "--ledger", "l.json"], "echo > a")
        .exits(0);
    let capgate = service.client().display().to_string();
    let in_ci = |arguments: &[&str]| {
        let mut command = project.command(&capgate);
        let output = command
            .args(arguments)
            .env("GITHUB_ACTIONS", "true")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(
            said.contains("in CI") && said.contains("GITHUB_ACTIONS"),
            "{said}"
        );
    };
    in_ci(&["init", "--", "touch", "ran"]);
    in_ci(&["init", "--from", "l.json"]);
    in_ci(&["accept", "l.json", "--writes"]);
    assert!(!project.path("ran").exists());

    // Nor inside a job.
    project.capgate(&["init", "--from", "l.json"]).exits(0);
    let before = project.contract_text();
    for command in ["accept l.json --writes", "init --force --from l.json"] {
        let done = project.run(&service, &["--record"], &format!("{capgate} {command}"));
        done.exits(125).says("inside a job");
    }
    assert_eq!(project.contract_text(), before);
}

#[test]
fn a_run_that_is_told_to_end_writes_no_contract() {
    use std::process::Stdio;

    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };

    use crate::service::until;

    let service = serve();
    let project = Project::new();
    let mut command = project.command(service.client());
    command.args(["init", "--socket"]).arg(service.socket());
    command.args(["--", "sh", "-c", "touch begun; exec sleep 600"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    until("the job runs", || project.path("begun").exists());
    kill(
        Pid::from_raw(i32::try_from(child.id()).unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    let status = child.wait().unwrap();
    assert!(!status.success());
    assert!(!project.path("tests/capability.ledger.json").exists());
}
