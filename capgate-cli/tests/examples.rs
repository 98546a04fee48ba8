//! The polyglot example under `ledgers/examples/`, with the daemon and the client as they are built, on the running kernel. Needs
//! root, a C compiler, git, and Python with its headers.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use capgate_common::{
    evidence::{Column, Evidence, Process},
    ledger::Ledger,
};
use service::{Launch, Service, as_user};
use tempfile::TempDir;

#[path = "support/service.rs"]
mod service;

/// Where the example's programs are looked for: the same for every user, and with nothing of the test runner's own.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What the suite writes, in its contract too.
const WRITES: [&str; 3] = ["out/report.txt", "out/sums.txt", "out/words.json"];
/// A user that needs no entry anywhere.
const USER: u32 = 64_103;

/// One row of the table in the example's README.
struct Variant {
    /// The file under `variants/`, without its ending.
    name: &'static str,
    /// The verdict in one phrase.
    headline: &'static str,
    /// The exit code of `capgate run`.
    exit_code: i32,
    /// All of the column `net`.
    net: &'static [&'static str],
    /// What the column `writes` has beyond [`WRITES`].
    added: &'static [&'static str],
    /// The end of the program that did it, and of one of its parents.
    by: Option<(&'static str, &'static str)>,
}

/// A variant that keeps its contract.
const KEEPS: Variant = Variant {
    name: "",
    headline: "match",
    exit_code: 0,
    net: &[],
    added: &[],
    by: None,
};

const VARIANTS: [Variant; 10] = [
    Variant {
        name: "c-connect",
        headline: "net",
        exit_code: 120,
        net: &["127.0.0.1:9"],
        by: Some(("python3", "python3")),
        ..KEEPS
    },
    Variant {
        name: "helper-write",
        headline: "writes",
        exit_code: 120,
        added: &["out/fold.cache"],
        by: Some(("build/fold", "scripts/report.sh")),
        ..KEEPS
    },
    Variant {
        name: "grandchild-udp",
        headline: "net",
        exit_code: 120,
        net: &["127.0.0.1:9"],
        by: Some(("python3", "scripts/report.sh")),
        ..KEEPS
    },
    Variant {
        name: "cpu",
        headline: "cpu",
        exit_code: 120,
        ..KEEPS
    },
    Variant {
        name: "cpu-kill",
        headline: "cpu-kill",
        exit_code: 124,
        ..KEEPS
    },
    Variant {
        name: "new-cache",
        headline: "writes",
        exit_code: 120,
        added: &[".cache/words.json"],
        by: Some(("python3", "python3")),
        ..KEEPS
    },
    Variant {
        name: "background-write",
        headline: "writes",
        exit_code: 120,
        added: &["out/uploaded"],
        by: Some(("dash", "scripts/report.sh")),
        ..KEEPS
    },
    Variant {
        name: "daemon-left",
        ..KEEPS
    },
    Variant {
        name: "test-fails",
        headline: "job-failed",
        exit_code: 1,
        ..KEEPS
    },
    Variant {
        name: "test-fails-and-connects",
        headline: "job-failed, also: net",
        exit_code: 1,
        net: &["127.0.0.1:9"],
        by: Some(("python3", "python3")),
        ..KEEPS
    },
];

/// Where the examples are.
fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ledgers/examples")
}

/// A directory that everybody may enter.
fn open_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Runs to the end, in an environment that is the same everywhere.
fn output(command: &mut Command) -> Output {
    command
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()))
}

/// The suite in a directory of its own, compiled.
struct Suite {
    directory: PathBuf,
}

impl Suite {
    fn check_out(directory: &Path, variant: Option<&str>) -> Self {
        let mut checkout = Command::new(examples().join("polyglot/checkout.sh"));
        let done = output(checkout.arg(directory).args(variant));
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "checkout.sh: {stderr}");
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Gives everything to a user.
    fn give_to(self, user: u32) -> Self {
        let mut open = vec![self.directory.clone()];
        while let Some(path) = open.pop() {
            chown(&path, Some(user), Some(user)).unwrap();
            if path.is_dir() {
                open.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            }
        }
        self
    }

    /// `capgate run -- ./run.sh`, as root with a daemon of its own.
    fn run(&self) -> Ran {
        let mut capgate = Command::new(env!("CARGO_BIN_EXE_capgate"));
        capgate.args(["run", "--local"]);
        self.run_by(&mut capgate)
    }

    /// The rest of a command line, and what comes of it.
    fn run_by(&self, capgate: &mut Command) -> Ran {
        let evidence = self.directory.join("tests/capability.evidence.json");
        capgate
            .current_dir(&self.directory)
            .arg("--evidence")
            .arg(&evidence)
            .args(["--", "./run.sh"]);
        let done = output(capgate);
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        let read = |path: PathBuf| {
            fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}\n{stderr}", path.display()))
        };
        let ledger = read(self.directory.join("tests/capability.actual.json"));
        Ran {
            exit_code: done.status.code(),
            ledger: Ledger::from_json(&ledger).unwrap(),
            evidence: Evidence::from_json(&read(evidence)).unwrap(),
            stderr,
        }
    }
}

/// What a run left.
struct Ran {
    exit_code: Option<i32>,
    ledger: Ledger,
    evidence: Evidence,
    stderr: String,
}

impl Ran {
    /// That the run is as the README says.
    #[track_caller]
    fn check(&self, expect: &Variant) {
        let Self { ledger, stderr, .. } = self;
        let headline = format!("capgate: {} (job ", expect.headline);
        assert!(stderr.contains(&headline), "{headline:?} in: {stderr}");
        assert_eq!(self.exit_code, Some(expect.exit_code), "{stderr}");
        assert!(ledger.complete, "{stderr}");
        let recording = &ledger.recording;
        assert_eq!(recording.net, set(expect.net), "{stderr}");
        let writes: BTreeSet<String> = &set(&WRITES) | &set(expect.added);
        assert_eq!(recording.write_paths, writes, "{stderr}");
        assert_eq!(recording.escapes, set(&[]), "{stderr}");
        if let Some(by) = expect.by {
            let (column, entry) = match expect.net.first() {
                Some(entry) => (Column::Net, entry),
                None => (Column::Writes, expect.added.first().unwrap()),
            };
            self.check_who(column, entry, by);
        }
    }

    /// Who the evidence says is behind an entry.
    #[track_caller]
    fn check_who(&self, column: Column, entry: &str, (program, parent): (&str, &str)) {
        let entries = &self.evidence.entries;
        let found = entries
            .iter()
            .find(|it| it.column == column && it.entry == entry);
        let by = &found.unwrap().by;
        let base = |process: &Process| {
            let script = process.argv.get(1).filter(|word| word.ends_with(".sh"));
            format!("{} {}", process.exe, script.map_or("", |word| word))
        };
        assert!(
            by.first().is_some_and(|it| base(it).contains(program))
                && by.iter().any(|it| base(it).contains(parent)),
            "{entry}: {by:?}"
        );
    }
}

fn set(entries: &[&str]) -> BTreeSet<String> {
    entries.iter().map(|&entry| entry.to_owned()).collect()
}

/// A ledger but for the time it took, which is another one on a busy machine.
fn without_time(ledger: &Ledger) -> Ledger {
    let mut ledger = ledger.clone();
    ledger.recording.cpu_sec = 0;
    ledger
}

/// Runs a variant and compares it with its row.
#[track_caller]
fn check(name: &str) -> Ran {
    let variant = VARIANTS.iter().find(|it| it.name == name).unwrap();
    let directory = open_directory();
    let ran = Suite::check_out(&directory.path().join("suite"), Some(name)).run();
    ran.check(variant);
    ran
}

/// `capgate run` of a user who may record.
fn client(daemon: &Service, user: u32) -> Command {
    let mut capgate = Command::new(daemon.client());
    capgate.args(["run", "--socket"]).arg(daemon.socket());
    as_user(&mut capgate, user);
    capgate
}

#[test]
fn the_suite_keeps_its_contract() {
    let directory = open_directory();
    let ran = Suite::check_out(&directory.path().join("suite"), None).run();
    ran.check(&KEEPS);
    let own: Vec<&str> = ran.evidence.own.iter().map(|it| &*it.entry).collect();
    assert!(
        matches!(own[..], [address] if address.starts_with("127.0.0.1:")),
        "{own:?}"
    );
    let mut ignored = ran.evidence.ignored.iter().map(|it| &it.entry);
    assert!(ignored.all(|entry| entry.starts_with("tests/__pycache__/")));
    assert_eq!(ran.evidence.ignored.len(), 4);
}

/// Cold and warm, in two directories, and by two users.
#[test]
fn every_run_has_the_same_ledger() {
    let directory = open_directory();
    let daemon = Service::launch(&Launch::default());
    let first = Suite::check_out(&directory.path().join("a"), None);
    let deep = directory.path().join("b/c d");
    fs::create_dir_all(deep.parent().unwrap()).unwrap();
    let second = Suite::check_out(&deep, None);
    let of_user = Suite::check_out(&directory.path().join("user"), None).give_to(USER);
    let cold = first.run();
    cold.check(&KEEPS);
    for ran in [
        first.run(),
        second.run(),
        of_user.run_by(&mut client(&daemon, USER)),
        of_user.run_by(&mut client(&daemon, USER)),
    ] {
        ran.check(&KEEPS);
        assert_eq!(without_time(&ran.ledger), without_time(&cold.ledger));
    }
    let written = fs::metadata(of_user.directory.join("out/report.txt")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&written), USER);
}

#[test]
fn a_suite_inside_of_a_repository_names_its_root() {
    let repository = open_directory();
    let git = output(
        Command::new("git")
            .arg("init")
            .arg("--quiet")
            .arg(repository.path()),
    );
    assert!(git.status.success(), "{git:?}");
    let suite = Suite::check_out(&repository.path().join("suite"), Some("new-cache"));
    let mut capgate = Command::new(env!("CARGO_BIN_EXE_capgate"));
    let ran = suite.run_by(capgate.args(["run", "--local", "--root", "."]));
    ran.check(VARIANTS.iter().find(|it| it.name == "new-cache").unwrap());
}

#[test]
fn an_extension_that_calls_connect_itself_is_seen() {
    check("c-connect");
}

#[test]
fn a_static_helper_that_writes_is_seen() {
    check("helper-write");
}

#[test]
fn a_child_of_a_child_that_sends_a_datagram_is_seen() {
    check("grandchild-udp");
}

#[test]
fn processes_that_are_over_the_budget_together_are_over_it() {
    let ran = check("cpu");
    assert!(ran.ledger.recording.cpu_sec >= 2, "{}", ran.stderr);
}

#[test]
fn a_test_that_does_not_end_is_killed_at_the_budget() {
    let ran = check("cpu-kill");
    assert!(ran.ledger.recording.cpu_sec >= 6, "{}", ran.stderr);
}

#[test]
fn a_new_cache_is_named() {
    let ran = check("new-cache");
    assert!(
        ran.stderr.contains("+ `.cache/words.json`"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_write_after_the_end_of_the_command_is_seen() {
    check("background-write");
}

#[test]
fn a_process_that_stays_is_killed_and_listed() {
    let ran = check("daemon-left");
    let [left] = &ran.evidence.leftovers[..] else {
        panic!("{:?}", ran.evidence.leftovers);
    };
    assert_eq!(left.argv, ["sleep", "600"]);
    // Gone, or dead and not yet waited for by its new parent.
    let stat = fs::read_to_string(format!("/proc/{}/stat", left.pid)).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
    assert!(matches!(state, None | Some("Z" | "X")), "{stat}");
    assert!(
        ran.stderr.contains("outlived the command"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_test_that_fails_gives_its_own_code() {
    check("test-fails");
}

#[test]
fn a_test_that_fails_is_judged_all_the_same() {
    check("test-fails-and-connects");
}

#[test]
fn the_readme_has_a_row_for_each_variant() {
    let readme = fs::read_to_string(examples().join("README.md")).unwrap();
    let rows: Vec<[&str; 3]> = readme
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            match cells[..] {
                ["", name, _, verdict, code, ""] => Some([name, verdict, code]),
                _ => None,
            }
        })
        .skip_while(|row| row[0] != "---")
        .skip(1)
        .collect();
    let mut names = BTreeSet::new();
    for (variant, [name, verdict, code]) in VARIANTS.iter().zip(rows.iter().copied()) {
        assert_eq!(name, format!("`{}`", variant.name));
        assert_eq!(code, variant.exit_code.to_string(), "{name}");
        assert!(
            verdict.starts_with(&format!("`{}`", variant.headline)),
            "{name}"
        );
        for entry in variant.net.iter().chain(variant.added) {
            assert!(
                variant.headline.contains(',') || verdict.contains(entry),
                "{name}: {entry}"
            );
        }
        names.insert(format!("{}.patch", variant.name));
    }
    assert_eq!(rows.len(), VARIANTS.len());
    let files: BTreeSet<String> = fs::read_dir(examples().join("polyglot/variants"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, files);
}
