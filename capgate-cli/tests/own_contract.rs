//! The project's own contracts. Its suite as a whole cannot run in a job: tests that start jobs may not do so inside one. What needs
//! no privileges does, and gates itself. Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../xtask/src/capability.rs"]
#[expect(dead_code, reason = "these tests skip nothing")]
mod capability;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use capgate_common::{
    capability::VARIABLE as ABSENT,
    contract::Contract,
    ledger::Ledger,
    suite::{Counted, Tests},
    verdict::Verdict,
};

use capability::{CAPABILITIES, VARIABLE};

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Test programs. Cargo compiles them when they are not there: outside of the job, as its writes would be the compiler's and not
/// the tests'.
fn test_programs(which: &[&str]) -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .current_dir(workspace())
        .arg("test")
        .args(which)
        .args(["--no-run", "--locked", "--message-format", "json"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "cargo: {stderr}");
    let messages = String::from_utf8(done.stdout).unwrap();
    messages
        .lines()
        .filter_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            let is_test = message["profile"]["test"] == true;
            Some(message.get("executable")?.as_str()?.into()).filter(|_| is_test)
        })
        .collect()
}

/// Runs a job under one of the project's contracts, in a directory of the workspace; its ledger and what it said.
fn gated(
    contract: &str,
    directory: &str,
    command: &mut dyn FnMut(&mut Command),
) -> (Ledger, String) {
    let results = tempfile::tempdir().unwrap();
    let ledger = results.path().join("ledger.json");
    let mut capgate = Command::new(env!("CARGO_BIN_EXE_capgate"));
    capgate
        .current_dir(workspace().join(directory))
        .env_remove(ABSENT)
        .args(["run", "--local", "--contract"])
        .arg(workspace().join("ledgers").join(contract))
        .arg("--ledger")
        .arg(&ledger)
        .arg("--");
    command(&mut capgate);
    let done = capgate.output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    let stdout = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.status.code(), Some(0), "{stdout}{stderr}");
    let ledger = fs::read(&ledger).unwrap();
    (Ledger::from_json(&ledger).unwrap(), stdout)
}

#[test]
fn the_crate_that_judges_only_computes() {
    let programs = test_programs(&["--package", "capgate-common", "--all-features"]);
    assert!(programs.len() >= 2, "{programs:?}");
    for program in programs {
        let (ledger, said) = gated("capgate-common.ledger.json", "capgate-common", &mut |run| {
            run.arg(&program).arg("--quiet");
        });
        assert!(!said.contains("running 0 tests"), "{said}");
        let recording = ledger.recording;
        assert!(recording.net.is_empty() && recording.write_paths.is_empty());
        assert_eq!(recording.execs.len(), 1, "{:?}", recording.execs);
    }
}

#[test]
fn the_tests_that_need_no_privileges_gate_themselves() {
    let programs = test_programs(&["--workspace", "--lib", "--bins"]);
    assert_eq!(programs.len(), 6, "{programs:?}");
    let (ledger, _) = gated("own-suite.ledger.json", "", &mut |run| {
        run.args(["sh", "ledgers/own-suite.sh"]).args(&programs);
        run.env(ABSENT, std::env::var(VARIABLE).unwrap_or_default());
    });
    assert_eq!(ledger.verdict, [Verdict::Match]);
    let Some(Tests::Counted(Counted {
        failed, skipped, ..
    })) = ledger.recording.suite.tests
    else {
        panic!("{:?}", ledger.recording.suite);
    };
    assert_eq!((failed, skipped), (0, 0));
}

#[test]
fn the_contract_knows_the_capabilities_that_tests_may_ask_for() {
    let contract = fs::read(workspace().join("ledgers/own-suite.ledger.json")).unwrap();
    let table = Contract::from_json(&contract).unwrap().capabilities;
    let known = CAPABILITIES.iter();
    let known: BTreeMap<String, String> = known
        .map(|it| (it.name.to_owned(), it.meaning.to_owned()))
        .collect();
    assert_eq!(table, Some(known));
}
