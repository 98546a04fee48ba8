//! What a report says beside the verdict, and where it goes.

use std::{fs, process::Command};

use capgate_common::{
    compare::{Case, judge, seal},
    ledger::{ProbeSet, Recording},
    outcome::Outcome,
};

use crate::{
    repository::Repository,
    stand::{EMPTY, Stand, bare, output, text},
};

/// A recording with these names.
fn writes(names: &[&str]) -> Recording {
    let mut recording = Recording::empty(ProbeSet::Tracepoint, false);
    recording.write_paths = names.iter().map(|&it| it.to_owned()).collect();
    recording
}

/// A contract that allows nothing, with names to compare with.
fn contract() -> String {
    EMPTY.replace('}', r#", "write_paths": []}"#)
}

#[test]
fn a_report_says_which_names_lie_among_the_sources_and_its_line_accepts_them() {
    let names = ["src/new", "cache/x", "odd '$(id)' \u{202e}", "/etc/x"];
    let stand = Stand::with(|it| it.recording = writes(&names));
    fs::remove_dir_all(stand.path(".git")).unwrap();
    let repository = Repository::init(&stand.path(""));
    repository.write("src/lib.rs", "");
    repository.write("tests/capability.ledger.json", &contract());
    repository.commit("the base");
    // What the branch tracks beside the base does not count with `--base`.
    repository.git(&["checkout", "--quiet", "-b", "branch"]);
    repository.write("cache/kept", "");
    repository.commit("a cache");
    for (options, cache) in [
        (&["--base", "main"][..], "that git does not track"),
        (&[][..], "that git tracks"),
    ] {
        let output = output(&mut stand.run_with(options, &["true"]));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(120), "{stderr}");
        for line in [
            "+ `src/new` (in a directory that git tracks)",
            &format!("+ `cache/x` (in a directory {cache})"),
            "+ `/etc/x` (outside of the root directory)",
        ] {
            assert!(stderr.contains(line), "{line}: {stderr}");
        }
    }
    let report = output(&mut stand.run(&["true"]));
    let report = text(&report.stderr);
    let mut lines = report.lines().map(str::trim);
    let line = lines.find(|it| it.starts_with("capgate accept")).unwrap();
    let mut shell = Command::new("sh");
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_capgate"));
    // A reviewer is not in CI, and the test may be.
    shell
        .env_clear()
        .current_dir(stand.path(""))
        .args(["-c", line])
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", path.parent().unwrap().display()),
        );
    let accepted = output(&mut shell);
    assert_eq!(
        accepted.status.code(),
        Some(0),
        "{line}: {}",
        text(&accepted.stderr)
    );
    let again = output(&mut stand.run(&["true"]));
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
}

#[test]
fn a_report_without_the_contract_says_that_it_was_broken() {
    let stand = Stand::with(|it| it.recording = writes(&["new"]));
    let run = output(&mut stand.run(&["true"]));
    assert_eq!(run.status.code(), Some(120), "{}", text(&run.stderr));
    let report = |format: &str| {
        let ledger = "tests/capability.actual.json";
        let report = output(&mut stand.capgate(["report", ledger, "--format", format]));
        assert_eq!(report.status.code(), Some(0), "{}", text(&report.stderr));
        text(&report.stdout)
    };
    for format in ["human", "markdown", "json", "junit"] {
        let said = report(format);
        assert!(said.contains("sealed as writes"), "{format}: {said}");
    }
}

#[test]
fn without_a_repository_it_is_unknown_what_git_tracks() {
    let stand = Stand::with(|it| it.recording = writes(&["new"]));
    fs::remove_dir_all(stand.path(".git")).unwrap();
    let output = output(&mut stand.run(&["true"]));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("+ `new` (whether git tracks its directory is unknown)"),
        "{stderr}"
    );
}

#[test]
fn github_gets_a_summary_beside_the_annotations() {
    let stand = Stand::with(|it| it.recording = writes(&["new"]));
    let summary = stand.outside("summary.md");
    let run = |format: &str| {
        let mut command = stand.run_with(&["--format", format], &["true"]);
        output(command.env("GITHUB_STEP_SUMMARY", &summary))
    };
    fs::write(&summary, "mine\n").unwrap();
    let done = run("github");
    assert_eq!(done.status.code(), Some(120), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("::error title=capgate writes::"));
    let page = fs::read_to_string(&summary).unwrap();
    assert!(page.starts_with("mine\n### capgate: `writes`"), "{page}");
    // Only the format that is GitHub's own.
    assert_eq!(run("json").status.code(), Some(120));
    assert_eq!(fs::read_to_string(&summary).unwrap(), page);
    // The gate does not depend on it.
    fs::remove_file(&summary).unwrap();
    fs::create_dir(&summary).unwrap();
    let done = run("github");
    assert_eq!(done.status.code(), Some(120));
    assert!(text(&done.stderr).starts_with("capgate: cannot write the job summary to"));
}

#[test]
fn every_command_with_a_report_writes_each_format_into_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let recording = writes(&["new"]);
    let case = Case {
        recording: &recording,
        rules: None,
        outcome: Outcome::Exited(0),
        require_race_free: false,
        ignored: None,
        addresses: None,
    };
    fs::write(path("l.json"), seal(&case, &judge(&case)).to_json()).unwrap();
    fs::write(path("c.json"), contract()).unwrap();
    for (format, start) in [
        ("human", "capgate: writes (contract `"),
        ("json", "{\n"),
        ("markdown", "### capgate: `writes`"),
        ("github", "::error title=capgate::writes"),
        ("gitlab", "[\n  {\n"),
        ("junit", "<?xml "),
    ] {
        for (words, code) in [
            (&["check", "l.json", "c.json"][..], 120),
            (&["report", "l.json", "--contract", "c.json"][..], 0),
        ] {
            let mut command = bare();
            command
                .current_dir(dir.path())
                .args(words)
                .args(["--format", format, "--report", "r"]);
            let done = output(&mut command);
            assert_eq!(done.status.code(), Some(code), "{}", text(&done.stderr));
            assert_eq!(text(&done.stdout), "");
            let report = fs::read_to_string(path("r")).unwrap();
            assert!(report.starts_with(start), "{format}: {report}");
            assert!(report.contains("new"), "{format}: {report}");
        }
    }
}

#[test]
fn a_budget_that_is_too_small_is_named_with_one_that_is_not() {
    let stand = Stand::with(|it| it.recording.cpu_sec = 31);
    let over = output(&mut stand.run(&["true"]));
    let stderr = text(&over.stderr);
    assert!(
        stderr.contains("used 31 s of user CPU time, its budget is 30 s")
            && stderr.contains("a `cpu_budget` of 80 s leaves head room")
            && stderr.contains("\n          capgate accept tests/capability.actual.json --cpu\n"),
        "{stderr}"
    );
    let stand = Stand::with(|it| it.recording.cpu_sec = 29);
    let close = output(&mut stand.run(&["true"]));
    let stderr = text(&close.stderr);
    assert_eq!(close.status.code(), Some(0));
    assert!(
        stderr.contains("note: the job used 29 s of user CPU time of 30 s: little head room"),
        "{stderr}"
    );
}
