//! Where a run finds its files and leaves them, and what the daemon is told of that.

use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use capgate_common::{evidence::Evidence, ledger::Ledger, protocol::Start};

use crate::stand::{EMPTY, Stand, output, text};

/// Runs a command that ends well, and comes back with what the daemon was asked.
#[track_caller]
fn start(stand: &Stand, options: &[&str], directory: &str) -> Start {
    let mut command = stand.run_with(options, &["true"]);
    command.current_dir(stand.path(directory));
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    stand.daemon.start()
}

#[test]
fn the_ledger_is_beside_the_contract_and_names_are_from_the_top() {
    let stand = Stand::new();
    fs::create_dir_all(stand.path("deep/er")).unwrap();
    let start = start(&stand, &["--label", "a", "--label", "b"], "deep/er");
    let real = fs::canonicalize(stand.path("tests/capability.ledger.json")).unwrap();
    assert_eq!(start.contract.as_deref(), Some(EMPTY));
    assert_eq!(start.contract_path.as_deref(), real.to_str());
    assert_eq!(start.contract_source.as_deref(), real.to_str());
    assert_eq!(start.argv, ["true"]);
    assert!(start.cwd.ends_with("/repo/deep/er"));
    assert_eq!(start.labels, ["a", "b"]);
    assert!(!start.record);
    assert!(stand.ledger().complete);
}

#[test]
fn other_files_can_be_named() {
    let stand = Stand::new();
    fs::rename(
        stand.path("tests/capability.ledger.json"),
        stand.path("c.json"),
    )
    .unwrap();
    start(
        &stand,
        &[
            "--contract",
            "c.json",
            "--evidence",
            "e.json",
            "--report",
            "r.txt",
        ],
        "",
    );
    let ledger = fs::read(stand.path("capability.actual.json")).unwrap();
    Ledger::from_json(&ledger).unwrap();
    let evidence = fs::read(stand.path("e.json")).unwrap();
    Evidence::from_json(&evidence).unwrap();
    let report = fs::read_to_string(stand.path("r.txt")).unwrap();
    assert!(
        report.starts_with("capgate: match (job j-1, contract `")
            && report.contains("c.json`, recording complete"),
        "{report}"
    );
}

#[test]
fn a_ledger_can_be_named() {
    let stand = Stand::new();
    start(&stand, &["--ledger", "here.json"], "");
    assert!(stand.path("here.json").exists());
    assert!(!stand.has_ledger());
}

#[test]
fn without_a_repository_the_working_directory_is_the_root() {
    let stand = Stand::new();
    fs::remove_dir_all(stand.path(".git")).unwrap();
    start(&stand, &["--record"], "tests");
    assert!(stand.path("tests/capability.actual.json").exists());
}

#[test]
fn an_empty_git_directory_is_no_repository_and_a_git_file_is_one() {
    let stand = Stand::new();
    fs::create_dir_all(stand.path("tests/sub/.git")).unwrap();
    start(&stand, &[], "tests/sub");

    let stand = Stand::new();
    fs::create_dir_all(stand.path("tests/sub")).unwrap();
    fs::write(stand.path("tests/sub/.git"), "gitdir: ../elsewhere\n").unwrap();
    start(&stand, &["--record"], "tests/sub");
    assert!(stand.path("tests/sub/capability.actual.json").exists());
}

#[test]
fn recording_needs_no_contract_and_takes_one_that_is_there() {
    let stand = Stand::new();
    assert!(start(&stand, &["--record"], "").contract.is_some());
    assert!(stand.has_ledger());

    let stand = Stand::new();
    fs::remove_dir_all(stand.path("tests")).unwrap();
    let start = start(&stand, &["--record"], "");
    assert!(start.record && start.contract.is_none());
    assert!(stand.path("capability.actual.json").exists());
}

#[test]
fn a_contract_behind_a_link_is_found_and_the_ledger_is_beside_the_link() {
    let stand = Stand::new();
    let contract = stand.path("tests/capability.ledger.json");
    fs::rename(&contract, stand.path("real.json")).unwrap();
    symlink("../real.json", &contract).unwrap();
    let start = start(&stand, &[], "");
    // The daemon follows the link itself: replacing the link writes the contract too.
    let path = start.contract_path.unwrap();
    assert!(path.ends_with("/tests/capability.ledger.json"), "{path}");
    assert!(stand.has_ledger());
}

#[test]
fn what_the_job_puts_in_the_way_of_the_ledger_is_not_followed() {
    let stand = Stand::new();
    let victim = stand.outside("victim");
    fs::write(&victim, "mine").unwrap();
    let script = format!(
        "ln -s {} tests/capability.actual.json",
        victim.to_str().unwrap()
    );
    let output = output(&mut stand.run(&["sh", "-c", &script]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    assert!(stand.ledger().complete);
}

#[test]
fn the_contract_is_read_before_the_job_can_change_it() {
    let stand = Stand::new();
    let output = output(&mut stand.run(&["sh", "-c", "echo '{' > tests/capability.ledger.json"]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(stand.daemon.start().contract.as_deref(), Some(EMPTY));
}

#[test]
fn only_what_the_contract_needs_of_the_environment_is_sent() {
    let stand = Stand::new();
    let text = EMPTY.replace(
        '}',
        r#", "ignore_writes": ["$RUNNER_TEMP/**"], "scratch": ["$ABSENT/x"]}"#,
    );
    fs::write(stand.path("tests/capability.ledger.json"), text).unwrap();
    let mut command = stand.run_with(&["--record"], &["true"]);
    command
        .env("RUNNER_TEMP", "/tmp/runner")
        .env("SECRET", "word")
        .env("TMPDIR", "/var/tmp/mine");
    assert_eq!(output(&mut command).status.code(), Some(0));
    let start = stand.daemon.start();
    assert_eq!(
        start.env.into_iter().collect::<Vec<_>>(),
        [("RUNNER_TEMP".to_owned(), "/tmp/runner".to_owned())]
    );
    assert_eq!(start.tmpdir.as_deref(), Some("/var/tmp/mine"));
}

#[test]
fn a_huge_command_line_is_cut_for_display_only() {
    let stand = Stand::new();
    let long = "x".repeat(100_000);
    let mut command = stand.run(&["sh", "-c", "echo ${#1}", "sh", &long]);
    let output = output(&mut command);
    assert_eq!(text(&output.stdout), "100000\n", "{}", text(&output.stderr));
    let argv = stand.daemon.start().argv;
    assert!(argv.iter().map(String::len).sum::<usize>() < 70_000);
    assert!(argv[4].ends_with('…'));
}

#[test]
fn names_of_directories_are_bytes() {
    let stand = Stand::new();
    let odd = stand.path("").join(std::ffi::OsStr::from_bytes(b"d\xff\n"));
    fs::create_dir(&odd).unwrap();
    let mut command = stand.run(&["true"]);
    command.current_dir(&odd);
    assert_eq!(output(&mut command).status.code(), Some(0));
    assert!(stand.daemon.start().cwd.ends_with(r"/repo/d\xff\x0a"));
}
