//! What works on any host, with or without a daemon.

use std::fs;

use crate::stand::{Stand, bare, output, text};

#[test]
fn doctor_looks_at_the_host_and_says_whether_jobs_can_be_recorded() {
    let stand = Stand::new();
    let mut served = stand.capgate(["doctor", "--socket"]);
    served.arg(stand.outside("sock"));
    let served = output(&mut served);
    let said = text(&served.stdout);
    assert_eq!(served.status.code(), Some(0), "{said}");
    for fact in [
        "kernel",
        "BTF",
        "cgroup2",
        "lockdown",
        "memlock",
        "group",
        "capgated stand-in serves at",
        "not race-free",
        "io_uring",
    ] {
        assert!(said.contains(fact), "`{fact}` in: {said}");
    }

    let mut alone = stand.capgate(["doctor", "--socket", "/nowhere/sock"]);
    let alone = output(&mut alone);
    let said = text(&alone.stdout);
    assert!(
        said.contains("cannot reach capgated at /nowhere/sock"),
        "{said}"
    );
    let can = said.contains("jobs can be recorded");
    assert_eq!(alone.status.code(), Some(i32::from(!can)), "{said}");
    assert_ne!(can, said.contains("no job can be recorded"), "{said}");
}

#[test]
fn doctor_fails_where_there_is_neither_a_daemon_nor_a_way_to_start_one() {
    let stand = Stand::new();
    let mut command = std::process::Command::new(stand.open_to_all());
    command
        .args(["doctor", "--json", "--socket", "/nowhere/sock"])
        .env("PATH", "/nowhere");
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(1));
    let facts: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |name: &str| facts.iter().find(|it| it["name"] == name).unwrap();
    assert_eq!(of("daemon")["level"], "bad");
    assert_eq!(of("capgated")["level"], "bad");
    assert_eq!(of("conclusion")["level"], "bad");
}

#[test]
fn status_and_ps_show_what_the_daemon_says() {
    let stand = Stand::new();
    for (arguments, words) in [
        (
            &["status"][..],
            &["stand-in", "tracepoint (not race-free)", "1.0 MiB"][..],
        ),
        (&["status", "--json"], &[r#""probe_set":"tracepoint""#]),
        (&["ps"], &["JOB", "VERDICT"]),
    ] {
        let mut command = stand.capgate(arguments.iter().copied());
        command.arg("--socket").arg(stand.outside("sock"));
        let output = output(&mut command);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        for word in words {
            assert!(
                text(&output.stdout).contains(word),
                "{}",
                text(&output.stdout)
            );
        }
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    let commands = [
        "run",
        "check",
        "ps",
        "tail",
        "show",
        "stop",
        "status",
        "doctor",
        "completions",
        "man",
    ];
    for name in commands {
        let output = output(bare().args([name, "--help"]));
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0));
        assert!(said.contains(&format!("Example: capgate {name}")), "{said}");
    }
    let all = text(&output(bare().arg("--help")).stdout);
    for name in commands {
        assert!(all.contains(&format!("\n  {name} ")), "{name}: {all}");
    }
    assert!(!all.contains("__"), "hidden steps stay hidden: {all}");
    let version = text(&output(bare().arg("--version")).stdout);
    assert_eq!(version, format!("capgate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_and_pages_are_made() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = output(bare().args(["completions", shell]));
        let said = text(&output.stdout);
        assert!(
            said.contains("probe-set") && !said.contains("__enter"),
            "{shell}"
        );
    }
    let page = text(&output(bare().arg("man")).stdout);
    assert!(page.contains(".TH capgate 1"), "{page}");
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    let output = output(bare().arg("man").arg("--dir").arg(&pages));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let run = fs::read_to_string(pages.join("capgate-run.1")).unwrap();
    assert!(run.contains("Example"), "{run}");
    assert!(!pages.join("capgate-__enter.1").exists());
}
