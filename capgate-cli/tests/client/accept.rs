//! `accept` and `diff`: what a human does with ledgers and the contract, without a daemon.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    process::Command,
};

use capgate_common::{
    compare::{Case, judge, seal},
    evidence::{Column, Entry, Evidence, Process},
    ledger::{ProbeSet, Recording, digest},
    outcome::Outcome,
};

use crate::stand::{EMPTY, bare, fails, output, text};

/// A directory with a contract and ledgers.
struct Desk {
    dir: tempfile::TempDir,
}

impl Desk {
    fn new(contract: &str) -> Self {
        let desk = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::write(desk.path("c.json"), contract).unwrap();
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn contract(&self) -> String {
        fs::read_to_string(self.path("c.json")).unwrap()
    }

    fn ledger(&self, name: &str, recording: &Recording, outcome: Outcome) {
        let case = Case {
            recording,
            rules: None,
            outcome,
            require_race_free: false,
            ignored: None,
            addresses: None,
        };
        let ledger = seal(&case, &judge(&case));
        fs::write(self.path(name), ledger.to_json()).unwrap();
    }

    /// With a ledger of a job that ended well.
    fn with(contract: &str, recording: &Recording) -> Self {
        let desk = Self::new(contract);
        desk.ledger("l.json", recording, Outcome::Exited(0));
        desk
    }

    fn capgate(&self, arguments: &[&str]) -> Command {
        let mut command = bare();
        command.current_dir(self.dir.path()).args(arguments);
        // The tests may run in CI, where nothing is accepted.
        command.env_clear();
        command
    }

    fn accept(&self, wishes: &[&str]) -> Command {
        let mut command = self.capgate(&["accept", "l.json", "c.json"]);
        command.args(wishes);
        command
    }

    /// Accepts, and comes back with what was printed.
    #[track_caller]
    fn accepts(&self, wishes: &[&str]) -> String {
        let output = output(&mut self.accept(wishes));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Is refused, and leaves the contract alone.
    #[track_caller]
    fn refuses(&self, wishes: &[&str], words: &[&str]) {
        let before = self.contract();
        fails(&mut self.accept(wishes), 125, words);
        assert_eq!(self.contract(), before);
    }
}

fn recording(net: &[&str], writes: &[&str]) -> Recording {
    let mut recording = Recording::empty(ProbeSet::Tracepoint, false);
    recording.net = net.iter().map(|&it| it.to_owned()).collect();
    recording.write_paths = writes.iter().map(|&it| it.to_owned()).collect();
    recording
}

fn of(names: &[&str]) -> String {
    digest(&names.iter().map(|&it| it.to_owned()).collect())
}

#[test]
fn one_name_is_accepted_and_the_rest_of_the_text_stays() {
    let recorded = recording(&["192.0.2.7:443"], &[".cache/x", "kept", "new"]);
    let before = format!(
        "{{\n   \"writes\":   \"{}\",\n   \"write_paths\": [\"gone\", \"kept\"],\n\n   \"allow_net\": [ ],  \"cpu_budget\": 30.0 }}",
        of(&["gone", "kept"])
    );
    let desk = Desk::with(&before, &recorded);
    let said = desk.accepts(&["--write", ".cache/x"]);
    let expect = before
        .replace(&of(&["gone", "kept"]), &of(&[".cache/x", "gone", "kept"]))
        .replace("[\"gone\"", "[\".cache/x\", \"gone\"");
    assert_eq!(desk.contract(), expect);
    assert!(
        said.starts_with("Accepted into `c.json`, from `l.json`:\n\n```diff\n")
            && said.contains("+ write_paths: `.cache/x`\n")
            && said.contains(&format!("~ writes: `{}` to ", of(&["gone", "kept"])))
            && said.ends_with("```\n"),
        "{said}"
    );
    // What is not in the ledger any more goes by the same word.
    let said = desk.accepts(&["--write", "gone", "--write", "new"]);
    assert!(
        said.contains("- write_paths: `gone`\n") && said.contains("+ write_paths: `new`\n"),
        "{said}"
    );
    let check = output(&mut desk.capgate(&["check", "l.json", "c.json"]));
    let said = text(&check.stdout);
    assert_eq!(
        check.status.code(),
        Some(120),
        "the connection is not accepted: {said}"
    );
    assert!(said.starts_with("capgate: net ("), "{said}");
}

#[test]
fn the_contract_of_the_in_process_harness_can_be_grown() {
    let desk = Desk::with(EMPTY, &recording(&["192.0.2.7:443"], &["a", "b"]));
    desk.accepts(&["--write", "a", "--net", "192.0.2.7:443"]);
    let empty = of(&[]);
    let expect = EMPTY
        .replace(
            &format!("\"{empty}\""),
            &format!("\"{}\", \"write_paths\": [\"a\"]", of(&["a"])),
        )
        .replace("\"allow_net\": []", "\"allow_net\": [\"192.0.2.7:443\"]");
    assert_eq!(desk.contract(), expect);
    // All of it, without names: the keys stay those that the harness knows.
    let desk = Desk::with(EMPTY, &recording(&[], &["a", "b"]));
    desk.accepts(&["--writes"]);
    assert_eq!(desk.contract(), EMPTY.replace(&empty, &of(&["a", "b"])));
    // And then single names cannot be told apart any more.
    desk.ledger(
        "l.json",
        &recording(&[], &["a", "b", "c"]),
        Outcome::Exited(0),
    );
    desk.refuses(&["--write", "c"], &["no `write_paths`", "--writes"]);
}

#[test]
fn programs_and_time_are_accepted_too() {
    let mut recorded = recording(&[], &[]);
    recorded.cpu_sec = 60;
    recorded.execs = ["/bin/sh", "/opt/[x]/y"].map(str::to_owned).into();
    let contract = EMPTY.replace('}', ", \"allow_exec\": [\"/bin/*\"]}");
    let desk = Desk::with(&contract, &recorded);
    let said = desk.accepts(&["--exec", "/opt/[x]/y", "--exec", "/bin/sh", "--cpu"]);
    assert!(said.contains("~ cpu_budget: `30` to `130`"), "{said}");
    let expect = contract
        .replace("30", "130")
        .replace("[\"/bin/*\"", "[\"/bin/*\", \"/opt/[[]x[]]/y\"");
    assert_eq!(desk.contract(), expect);
    let check = output(&mut desk.capgate(&["check", "l.json", "c.json"]));
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stdout));

    let desk = Desk::with(EMPTY, &recorded);
    desk.refuses(&["--exec", "/bin/sh"], &["no `allow_exec`"]);
}

#[test]
fn what_the_contract_says_already_changes_nothing() {
    let desk = Desk::with(
        &EMPTY.replace("[]", "[\"192.0.2.0/24:*\"]"),
        &recording(&["192.0.2.7:443"], &[]),
    );
    let before = desk.contract();
    for wishes in [&["--net", "192.0.2.7:443"][..], &["--writes"], &["--cpu"]] {
        assert!(
            desk.accepts(wishes).starts_with("Nothing to accept"),
            "{wishes:?}"
        );
    }
    assert_eq!(desk.contract(), before);
}

#[test]
fn patterns_of_the_contract_are_not_accepted_away() {
    let contract = EMPTY.replace('}', ", \"ignore_writes\": [\"tmp-*\"]}");
    let desk = Desk::with(&contract, &recording(&[], &["a", "tmp-1"]));
    desk.accepts(&["--writes"]);
    assert_eq!(desk.contract(), contract.replace(&of(&[]), &of(&["a"])));
    desk.refuses(&["--write", "tmp-1"], &["cannot accept"]);
}

#[test]
fn what_nobody_can_accept_is_refused_whole() {
    let good = recording(&[], &["a"]);
    for (change, words) in [
        (
            (|it: &mut Recording| it.lose("ring", 3)) as fn(&mut Recording),
            &["not complete", "record it again"][..],
        ),
        (
            |it| {
                it.coverage.unseen.insert("io_uring".to_owned());
            },
            &["not complete", "io_uring"],
        ),
        (
            |it| {
                it.escapes.insert("contract-written".to_owned());
            },
            &["wrote the contract", "nobody can accept"],
        ),
        (
            |it| {
                it.escapes.insert("cgroup-leave".to_owned());
            },
            &["nobody can accept"],
        ),
    ] {
        let mut recording = good.clone();
        change(&mut recording);
        Desk::with(EMPTY, &recording).refuses(&["--writes"], words);
    }
    let desk = Desk::new(EMPTY);
    for outcome in [Outcome::Exited(3), Outcome::CpuKilled] {
        desk.ledger("l.json", &good, outcome);
        desk.refuses(&["--writes"], &["the job failed"]);
    }
    // A way out that a human may accept by name does not stand in the way of the rest.
    let mut recorded = good.clone();
    recorded.escapes.insert("delegate:docker".to_owned());
    Desk::with(EMPTY, &recorded).accepts(&["--writes"]);
}

#[test]
fn what_the_ledger_does_not_have_is_refused_by_name() {
    let desk = Desk::with(EMPTY, &recording(&["192.0.2.7:443"], &["a"]));
    desk.refuses(
        &["--write", "a", "--write", "b\u{1b}"],
        &["cannot accept the name b\\x1b"],
    );
    desk.refuses(
        &["--net", "192.0.2.7:*"],
        &["cannot accept the destination 192.0.2.7:*"],
    );
    desk.refuses(
        &["--exec", "/bin/sh"],
        &["cannot accept the program /bin/sh"],
    );
    let nothing = output(&mut desk.accept(&[]));
    assert_eq!(nothing.status.code(), Some(125));
    let both = output(&mut desk.accept(&["--writes", "--write", "a"]));
    assert_eq!(both.status.code(), Some(125));
}

#[test]
fn nothing_is_accepted_where_no_human_looks() {
    let desk = Desk::with(EMPTY, &recording(&[], &["a"]));
    for (name, value) in [
        ("CI", "true"),
        ("GITHUB_ACTIONS", "true"),
        ("JENKINS_URL", "http://ci.example.org"),
    ] {
        let mut accept = desk.accept(&["--writes"]);
        fails(accept.env(name, value), 125, &["in CI", name]);
    }
    assert_eq!(desk.contract(), EMPTY);
    let mut accept = desk.accept(&["--writes"]);
    accept.env("CI", "false");
    assert_eq!(output(&mut accept).status.code(), Some(0));
}

#[test]
fn the_files_mode_and_a_link_stay() {
    let desk = Desk::with(EMPTY, &recording(&[], &["a"]));
    fs::rename(desk.path("c.json"), desk.path("real.json")).unwrap();
    symlink("real.json", desk.path("c.json")).unwrap();
    fs::set_permissions(desk.path("real.json"), fs::Permissions::from_mode(0o640)).unwrap();
    desk.accepts(&["--writes"]);
    assert!(desk.path("c.json").is_symlink());
    let mode = fs::metadata(desk.path("real.json"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(desk.contract(), EMPTY.replace(&of(&[]), &of(&["a"])));
}

/// Compares, and comes back with the exit code and what was printed.
fn diff(desk: &Desk, arguments: &[&str]) -> (Option<i32>, String) {
    let output = output(&mut desk.capgate(&[&["diff"], arguments].concat()));
    (
        output.status.code(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

#[test]
fn two_ledgers_differ_by_their_names_and_the_evidence_says_who() {
    let desk = Desk::new(EMPTY);
    desk.ledger(
        "old.json",
        &recording(&["192.0.2.7:1"], &["gone", "kept"]),
        Outcome::Exited(0),
    );
    let mut new = recording(&["192.0.2.7:1"], &["kept", "new\u{202e}"]);
    new.cpu_sec = 5;
    desk.ledger("new.json", &new, Outcome::Exited(0));
    let evidence = Evidence {
        entries: vec![Entry {
            column: Column::Writes,
            entry: "new\u{202e}".to_owned(),
            addresses: std::collections::BTreeSet::new(),
            ops: vec!["create".to_owned()],
            count: 3,
            first_ms: 1120,
            by: vec![
                Process {
                    pid: 71,
                    exe: "/bin/touch".to_owned(),
                    argv: vec!["touch".to_owned(), "new".to_owned()],
                    status: None,
                },
                Process {
                    pid: 70,
                    exe: "/bin/sh".to_owned(),
                    argv: vec!["make".to_owned()],
                    status: None,
                },
            ],
        }],
        ..Evidence::default()
    };
    fs::write(desk.path("e.json"), evidence.to_json()).unwrap();
    let (code, said) = diff(&desk, &["old.json", "new.json", "--evidence", "e.json"]);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(
        said,
        "- write_paths: `gone`\n+ write_paths: `new\\u{202e}`\n    by `touch new` (pid 71, `/bin/touch`) < `make` (pid 70, `/bin/sh`), \
         first at 1.120 s, 3 times\n"
    );
    let (code, said) = diff(&desk, &["old.json", "old.json"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let (_, said) = diff(&desk, &["old.json", "new.json", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(value["schema"], "capgate/diff/1");
    assert_eq!(value["changes"][1]["member"], "new\u{202e}");
}

#[test]
fn a_contract_and_a_ledger_differ_by_what_is_not_allowed() {
    let contract = format!(
        r#"{{"allow_net": ["192.0.2.0/24:*"], "cpu_budget": 1, "writes": "{}", "write_paths": ["gone", "kept"], "ignore_writes": ["tmp-*"]}}"#,
        of(&["gone", "kept"])
    );
    let desk = Desk::new(&contract);
    let mut recorded = recording(
        &["192.0.2.7:1", "198.51.100.1:80"],
        &["kept", "new", "tmp-1"],
    );
    recorded.cpu_sec = 5;
    desk.ledger("l.json", &recorded, Outcome::Exited(0));
    let (code, said) = diff(&desk, &["c.json", "l.json"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        said,
        "+ net: `198.51.100.1:80`\n~ cpu_sec: `1` to `5`\n- write_paths: `gone`\n+ write_paths: `new`\n"
    );
    let (_, said) = diff(&desk, &["l.json", "c.json"]);
    assert!(
        said.contains("+ write_paths: `gone`\n- write_paths: `new`\n"),
        "{said}"
    );
    fs::write(
        desk.path("d.json"),
        contract.replace("192.0.2.0/24", "10.0.0.0/8"),
    )
    .unwrap();
    let (code, said) = diff(&desk, &["c.json", "d.json"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        said,
        "- allow_net: `192.0.2.0/24:*`\n+ allow_net: `10.0.0.0/8:*`\n"
    );
    fs::write(desk.path("x.json"), "[]").unwrap();
    fails(
        &mut desk.capgate(&["diff", "x.json", "l.json"]),
        125,
        &["cannot use x.json"],
    );
    fails(
        &mut desk.capgate(&["diff", "y.json", "l.json"]),
        125,
        &["cannot read y.json"],
    );
}

#[test]
fn a_ledgers_report_is_written_again() {
    let desk = Desk::with(EMPTY, &recording(&["192.0.2.7:1"], &["new"]));
    let evidence = Evidence {
        entries: vec![Entry {
            column: Column::Net,
            entry: "192.0.2.7:1".to_owned(),
            addresses: std::collections::BTreeSet::new(),
            ops: vec!["connect".to_owned()],
            count: 1,
            first_ms: 5,
            by: vec![Process {
                pid: 71,
                exe: "/bin/nc".to_owned(),
                argv: vec!["nc".to_owned()],
                status: None,
            }],
        }],
        ..Evidence::default()
    };
    fs::write(desk.path("e.json"), evidence.to_json()).unwrap();
    let report = |options: &[&str]| {
        let output = output(&mut desk.capgate(&[&["report", "l.json"], options].concat()));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(report(&[]).starts_with("capgate: recorded ("));
    let judged = report(&["--contract", "c.json", "--evidence", "e.json"]);
    assert!(
        judged.starts_with("capgate: net, also: writes ("),
        "{judged}"
    );
    assert!(judged.contains("by `nc` (pid 71, `/bin/nc`)"), "{judged}");
    let page = report(&["--contract", "c.json", "--format", "markdown"]);
    assert!(
        page.starts_with("### capgate: `net, also: writes`"),
        "{page}"
    );
}
