//! The project's own contract: the crate that judges others is pure, so its tests do nothing but compute. Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use capgate_common::ledger::Ledger;

/// The test programs of `capgate-common`. Cargo compiles them when they are not there: outside of the job, as its writes would be the
/// compiler's and not the tests'.
fn test_programs(workspace: &Path) -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .current_dir(workspace)
        .args(["test", "--package", "capgate-common", "--all-features"])
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
            Some(message.get("executable")?.as_str()?.into())
        })
        .collect()
}

#[test]
fn the_crate_that_judges_only_computes() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned();
    let results = tempfile::tempdir().unwrap();
    let programs = test_programs(&workspace);
    assert!(programs.len() >= 2, "{programs:?}");
    for program in programs {
        let ledger = results.path().join("ledger.json");
        let done = Command::new(env!("CARGO_BIN_EXE_capgate"))
            .current_dir(workspace.join("capgate-common"))
            .args(["run", "--local", "--contract"])
            .arg(workspace.join("ledgers/capgate-common.ledger.json"))
            .arg("--ledger")
            .arg(&ledger)
            .arg("--")
            .arg(&program)
            .arg("--quiet")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{stderr}");
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(!said.contains("running 0 tests"), "{said}");
        let ledger = fs::read(&ledger).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        let recording = Ledger::from_json(&ledger).unwrap().recording;
        assert!(recording.net.is_empty() && recording.write_paths.is_empty());
        assert_eq!(recording.execs.len(), 1, "{:?}", recording.execs);
    }
}
