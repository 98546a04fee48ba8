//! What a host is declared to lack: what runs, what is skipped, and what the ledger says of it.

use std::{collections::BTreeSet, fs, process::Command};

use capgate_common::{
    evidence::Evidence,
    ledger::Ledger,
    suite::{Counted, Tests},
    verdict::Verdict,
};

use crate::{
    daemon::{Launch, Service},
    real::service::Repository,
    stand::{EMPTY, output, text},
};

/// A suite of 143 units, 33 of which need the network. Each unit is a process of its own, and the results are in JUnit's form.
const SUITE: &str = r#"
. tests/capability.sh
{
    echo '<testsuites><testsuite name="sample">'
    unit=1
    while [ $unit -le 143 ]; do
        echo "<testcase name=\"test_$unit\">"
        if [ $unit -le 33 ]; then
            (capability_require network test_$unit) >> skipped.txt
            case $? in
                0) ;;
                75) echo '<skipped/>' ;;
                *) echo '<error/>' ;;
            esac
        fi
        echo '</testcase>'
        unit=$((unit + 1))
    done
    echo '</testsuite></testsuites>'
} > out.xml
! grep -q '<error/>' out.xml
"#;

/// A repository with the sample suite, whose contract has further keys.
fn sample(more: &str) -> Repository {
    let repository = Repository::new();
    repository.contract(&contract(more));
    fs::write(repository.path("tests/suite.sh"), SUITE).unwrap();
    let adapter = output(Command::new(env!("CARGO_BIN_EXE_capgate")).args([
        "capability",
        "adapter",
        "shell",
    ]));
    fs::write(repository.path("tests/capability.sh"), adapter.stdout).unwrap();
    repository
}

fn contract(more: &str) -> String {
    let table =
        r#", "capabilities": {"network": "a way to the outside", "docker": "a docker daemon"}"#;
    let writes = r#", "ignore_writes": ["out.xml", "skipped.txt"]"#;
    EMPTY.replace('}', &format!("{table}{writes}{more}}}"))
}

const PINS: &str = r#", "tests": {"junit": "out.xml", "run_min": 110, "skipped": {"network": 33}}"#;

/// A daemon whose operator has written a configuration.
fn configured(text: &str) -> Service {
    Service::launch(&Launch {
        config: text,
        ..Launch::default()
    })
}

/// Runs the sample suite; the exit code, the report and the ledger.
fn run(service: &Service, repository: &Repository, absent: &str) -> (i32, String, Ledger) {
    let mut capgate = service.run(
        repository,
        &["--evidence", "evidence.json"],
        &["sh", "tests/suite.sh"],
    );
    capgate.env("CAPGATE", service.client());
    if !absent.is_empty() {
        capgate.env("CAPGATE_ABSENT", absent);
    }
    let done = output(&mut capgate);
    let said = text(&done.stderr);
    assert!(repository.has_ledger(), "{said}");
    (done.status.code().unwrap(), said, repository.ledger())
}

fn counted(run: u64, skipped: u64) -> Option<Tests> {
    Some(Tests::Counted(Counted {
        run,
        failed: 0,
        skipped,
    }))
}

#[test]
fn run_and_skipped_add_up_with_the_network_absent_and_nothing_is_skipped_with_it() {
    let service = Service::start();
    let repository = sample(PINS);
    let (code, said, ledger) = run(&service, &repository, "network");
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("ran 110, skipped 33 of 143 (claimed by the job)"),
        "{said}"
    );
    assert!(
        said.contains("33 units skipped, and a skip is never coverage: `test_1` "),
        "{said}"
    );
    let suite = &ledger.recording.suite;
    assert_eq!(suite.tests, counted(110, 33));
    assert_eq!(suite.absent, Some(["network".to_owned()].into()));
    let units: BTreeSet<String> = (1..=33).map(|unit| format!("test_{unit}")).collect();
    assert_eq!(suite.skips, [("network".to_owned(), units)].into());
    assert_eq!(ledger.verdict, [Verdict::Match]);
    assert!(
        ledger.recording.net.is_empty(),
        "asking the daemon is plumbing"
    );
    let announced = fs::read_to_string(repository.path("skipped.txt")).unwrap();
    assert!(announced.contains(
        "CAPGATE_SKIP unit=test_33 capability=network meaning=a way to the outside why=declared absent\n"
    ));
    let evidence = fs::read(repository.path("evidence.json")).unwrap();
    let evidence = Evidence::from_json(&evidence).unwrap();
    assert_eq!(evidence.skips.len(), 33);
    assert!(
        evidence
            .skips
            .iter()
            .all(|skip| skip.count == 1 && skip.capability == "network")
    );

    let (code, said, ledger) = run(&service, &repository, "");
    assert_eq!(code, 0, "{said}");
    let suite = &ledger.recording.suite;
    assert_eq!(suite.tests, counted(143, 0));
    assert!(suite.skips.is_empty() && suite.absent == Some(BTreeSet::new()));
    assert!(said.contains("ran 143, skipped 0 of 143"), "{said}");
}

#[test]
fn other_counts_than_the_pinned_ones_fail_the_gate() {
    let service = Service::start();
    let repository = sample(&PINS.replace("33", "32"));
    let (code, said, ledger) = run(&service, &repository, "network");
    assert_eq!(
        (code, &*ledger.verdict),
        (120, &[Verdict::Tests][..]),
        "{said}"
    );
    assert!(said.contains("skipped 33, contract pins 32"), "{said}");

    repository.contract(&contract(&PINS.replace("110", "144")));
    let (code, said, _) = run(&service, &repository, "");
    assert_eq!(code, 120);
    assert!(
        said.contains("ran 143, contract pins at least 144"),
        "{said}"
    );

    // A file of an earlier run is none of this one.
    repository.contract(&contract(&PINS.replace("out.xml", "tests/old.xml")));
    fs::write(repository.path("tests/old.xml"), "<testsuite/>").unwrap();
    let (code, said, _) = run(&service, &repository, "");
    assert_eq!(code, 120);
    assert!(
        said.contains("cannot count the tests in tests/old.xml: the job did not write it"),
        "{said}"
    );
}

#[test]
fn a_job_that_requires_what_is_declared_absent_does_not_run() {
    let service = configured("absent = [\"docker\", \"of-another-contract\"]\n");
    let repository = sample(r#", "requires": ["docker"]"#);
    let done = output(&mut service.run(&repository, &[], &["touch", "ran"]));
    assert_eq!(done.status.code(), Some(121));
    for stream in [text(&done.stdout), text(&done.stderr)] {
        assert!(
            stream.contains("runner declares docker absent (a docker daemon)"),
            "{stream}"
        );
    }
    assert!(!repository.path("ran").exists() && !repository.has_ledger());
    assert!(
        service
            .ask(&["status"])
            .contains("docker, of-another-contract")
    );
    assert!(
        service
            .ask(&["doctor"])
            .contains("declared by the operator: docker")
    );

    // What is required and not declared absent is taken to be there.
    repository.contract(&contract(r#", "requires": ["network"]"#));
    let done = output(&mut service.run(&repository, &[], &["true"]));
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(
        repository.ledger().recording.suite.absent,
        Some(["docker".to_owned()].into())
    );
}

#[test]
fn a_client_declares_what_its_contract_knows_and_its_operator_lets_it() {
    let service = Service::start();
    let repository = sample("");
    let fails = |service: &Service, absent: &str, phrase: &str| {
        let mut capgate = service.run(&repository, &[], &["true"]);
        let done = output(capgate.env("CAPGATE_ABSENT", absent));
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(125), "{said}");
        assert!(said.contains(phrase), "{said}");
    };
    fails(
        &service,
        "podman",
        "no capability is called `podman`; the contract's `capabilities` has docker, network",
    );
    fails(&service, "Docker!", "cannot read CAPGATE_ABSENT");
    let strict = configured("allow_client_absent = false\n");
    fails(
        &strict,
        "docker",
        "allow_client_absent = false: unset CAPGATE_ABSENT",
    );
    // A contract without a table has nothing to do with any of it, and its ledger the bytes that it had.
    repository.contract(EMPTY);
    fails(&service, "docker", "the contract's `capabilities` has none");
    let done = output(&mut service.run(&repository, &[], &["true"]));
    assert_eq!(done.status.code(), Some(0));
    let ledger = fs::read_to_string(repository.path("tests/capability.actual.json")).unwrap();
    assert!(
        !ledger.contains("absent") && !ledger.contains("skips") && !ledger.contains("\"tests\"")
    );
}

#[test]
fn inside_a_job_nothing_else_is_told_and_unknown_names_are_errors() {
    let service = Service::start();
    let repository = sample("");
    let inside = |script: &str| {
        let mut capgate = service.run(&repository, &["--record"], &["sh", "-c", script]);
        capgate
            .env("CAPGATE", service.client())
            .env("CAPGATE_ABSENT", "docker");
        let done = output(&mut capgate);
        (
            done.status.code().unwrap(),
            text(&done.stdout),
            text(&done.stderr),
        )
    };
    let (code, _, said) = inside("$CAPGATE capability require podman --unit x");
    assert_eq!(code, 125, "{said}");
    assert!(said.contains("no capability is called `podman`"), "{said}");
    let (code, _, said) = inside("$CAPGATE status --socket $CAPGATE_SOCKET");
    assert_eq!(code, 125, "{said}");
    assert!(said.contains("runs inside a job"), "{said}");
    // The variable gone, the cgroup still tells that this is a job: nobody is there at the usual place, and that is an error.
    let (code, _, said) =
        inside("unset CAPGATE_SOCKET; CAPGATE_ABSENT= $CAPGATE capability require docker --unit x");
    assert_ne!(code, 0, "{said}");
    let (code, said, _) = inside("$CAPGATE capability require docker --unit 'test_x[é]'");
    assert_eq!(code, 75);
    assert!(said.contains("unit=test_x[é] capability=docker"), "{said}");
    // Out here there is no job to ask about.
    let mut outside = service.capgate(0, &repository.path(""));
    outside.args(["capability", "require", "docker", "--unit", "x"]);
    let done = output(outside.env("CAPGATE_SOCKET", service.socket()));
    assert_eq!(done.status.code(), Some(125));
    assert!(
        text(&done.stderr).contains("only a process inside a job"),
        "{}",
        text(&done.stderr)
    );
}

#[test]
fn by_hand_the_contract_and_the_environment_answer_and_nothing_is_recorded() {
    let repository = sample("");
    let ask = |name: &str, absent: &str| {
        let mut capgate = Command::new(env!("CARGO_BIN_EXE_capgate"));
        capgate.current_dir(repository.path("")).args([
            "capability",
            "require",
            name,
            "--unit",
            "test_x",
        ]);
        capgate
            .env_remove("CAPGATE_SOCKET")
            .env("CAPGATE_ABSENT", absent);
        let done = output(&mut capgate);
        (
            done.status.code().unwrap(),
            text(&done.stdout),
            text(&done.stderr),
        )
    };
    assert_eq!(ask("docker", ""), (0, String::new(), String::new()));
    let (code, said, _) = ask("docker", "network,docker");
    assert_eq!(code, 75);
    assert_eq!(
        said,
        "CAPGATE_SKIP unit=test_x capability=docker meaning=a docker daemon why=declared absent\n"
    );
    assert_eq!(ask("podman", "").0, 125);
    assert_eq!(ask("docker", "podman").0, 125);
    fs::remove_file(repository.path("tests/capability.ledger.json")).unwrap();
    let (code, _, said) = ask("docker", "");
    assert_eq!(code, 125);
    assert!(said.contains("there is no contract at"), "{said}");
}

#[test]
fn a_private_daemon_is_asked_where_it_listens() {
    let private = sample("");
    let mut capgate = private.run_local(
        &[],
        &[
            "sh",
            "-c",
            "$CAPGATE capability require docker --unit x || echo code $?",
        ],
    );
    capgate
        .env("CAPGATE", env!("CARGO_BIN_EXE_capgate"))
        .env("CAPGATE_ABSENT", "docker");
    let done = output(&mut capgate);
    assert!(
        text(&done.stdout).contains("code 75"),
        "{} {}",
        text(&done.stdout),
        text(&done.stderr)
    );
    let ledger = private.ledger();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(
        ledger.recording.suite.skips["docker"],
        ["x".to_owned()].into()
    );
    assert!(ledger.recording.net.is_empty());
}
