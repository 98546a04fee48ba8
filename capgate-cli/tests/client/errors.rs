//! Whatever is broken ends in a code that is not 0, one sentence, and no ledger.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, net::UnixListener, process::CommandExt},
    process::Command,
};

use capgate_common::protocol::Response;

use crate::stand::{EMPTY, Stand, Watched, bare, fails, is_alive, output, text};

/// Expects the code for a failure of capgate's own, and that an old ledger does not survive it.
#[track_caller]
pub(crate) fn broken(stand: &Stand, command: &mut Command, words: &[&str]) {
    fs::write(
        stand.path("tests/capability.actual.json"),
        "of an earlier run",
    )
    .unwrap();
    fails(command, 125, words);
    assert!(!stand.has_ledger());
}

#[test]
fn no_daemon() {
    let stand = Stand::new();
    fs::remove_file(stand.outside("sock")).unwrap();
    broken(
        &stand,
        &mut stand.run(&["true"]),
        &[
            "cannot reach capgated at",
            "systemctl start capgated",
            "--local",
        ],
    );
}

#[test]
fn a_daemon_that_is_gone() {
    let stand = Stand::new();
    let socket = stand.outside("sock");
    fs::remove_file(&socket).unwrap();
    drop(UnixListener::bind(&socket).unwrap());
    broken(
        &stand,
        &mut stand.run(&["true"]),
        &["nothing listens there"],
    );
}

#[test]
fn a_socket_that_this_user_may_not_use() {
    let stand = Stand::new();
    let capgate = stand.open_to_all();
    fs::set_permissions(stand.outside("sock"), Permissions::from_mode(0o600)).unwrap();
    let mut command = Command::new(capgate);
    command
        .current_dir(stand.path(""))
        .args(["run", "--socket"])
        .arg(stand.outside("sock"))
        .args(["--", "true"]);
    command.uid(65534).gid(65534);
    broken(
        &stand,
        &mut command,
        &["permission denied", "group capgate"],
    );
}

#[test]
fn a_daemon_of_another_version() {
    let stand = Stand::with(|manner| {
        manner.hello = Response::Hello {
            version: 99,
            program: "capgated 99".to_owned(),
        };
    });
    broken(
        &stand,
        &mut stand.run(&["true"]),
        &["version 99", "of the same version"],
    );
}

#[test]
fn a_daemon_that_refuses_the_version() {
    let stand = Stand::with(|manner| {
        manner.hello = Response::Error {
            message: "cannot serve version 1 of the protocol: install the same version".to_owned(),
        };
    });
    broken(
        &stand,
        &mut stand.run(&["true"]),
        &["cannot serve version 1"],
    );
}

#[test]
fn a_daemon_that_answers_something_else() {
    let stand = Stand::with(|manner| manner.hello = Response::Stopped);
    broken(&stand, &mut stand.run(&["true"]), &["does not fit"]);
}

#[test]
fn a_daemon_that_refuses_the_job() {
    let stand = Stand::with(|manner| {
        manner.refuse_start =
            Some("cannot start a job: \u{1b}[2Juid 7 has 32 running; wait for one to end");
    });
    let mut command = stand.run(&["sh", "-c", "echo ran >&2"]);
    broken(&stand, &mut command, &[r"cannot start a job: \x1b[2Juid 7"]);
}

#[test]
fn a_process_that_may_not_enter_never_becomes_the_command() {
    let stand = Stand::with(|manner| {
        manner.refuse_enter = Some("cannot enter the job: the token was used before")
    });
    let ran = stand.outside("ran");
    let mut command = stand.run(&["touch", ran.to_str().unwrap()]);
    broken(&stand, &mut command, &["the token was used before"]);
    assert!(!ran.exists());
}

#[test]
fn a_daemon_that_dies_in_mid_job() {
    let stand = Stand::with(|manner| manner.dies = true);
    fs::write(
        stand.path("tests/capability.actual.json"),
        "of an earlier run",
    )
    .unwrap();
    let mut client = Watched::start(&mut stand.run(&["sh", "-c", "echo $$; exec sleep 1000"]));
    let command: i32 = client.line().parse().unwrap();
    fs::write(stand.outside("die"), "").unwrap();
    let output = client.output();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("nobody records it any more"), "{stderr}");
    assert!(!stand.has_ledger());
    assert!(!is_alive(command));
}

#[test]
fn no_contract_says_what_to_do_now() {
    let stand = Stand::new();
    fs::remove_file(stand.path("tests/capability.ledger.json")).unwrap();
    broken(
        &stand,
        &mut stand.run(&["true"]),
        &["there is no contract at", "capgate init", "--record"],
    );
    fs::remove_dir_all(stand.path("tests")).unwrap();
    fails(&mut stand.run(&["true"]), 125, &["there is no contract at"]);
    fails(
        &mut stand.run_with(&["--record", "--contract", "nowhere.json"], &["true"]),
        125,
        &["there is no contract at nowhere.json"],
    );
}

#[test]
fn a_contract_that_cannot_be_used() {
    let short = EMPTY.replace("b855", "b8");
    let unknown = EMPTY.replace("\"writes\"", "\"wirtes\": 1, \"writes\"");
    let large = " ".repeat((1 << 20) + 1);
    for (text, words) in [
        ("{", &["not a JSON object"][..]),
        ("[]", &["not a JSON object"]),
        ("", &["not a JSON object"]),
        (unknown.as_str(), &["unknown key `wirtes`"]),
        (short.as_str(), &["`writes`"]),
        (r#"{"allow_net": []}"#, &["cpu_budget"]),
        (large.as_str(), &["larger than 1048576 bytes"]),
    ] {
        let stand = Stand::new();
        fs::write(stand.path("tests/capability.ledger.json"), text).unwrap();
        let mut words = words.to_vec();
        words.push("capability.ledger.json");
        broken(&stand, &mut stand.run(&["true"]), &words);
    }
}

#[test]
fn a_contract_that_is_no_file() {
    let stand = Stand::new();
    let path = stand.path("tests/capability.ledger.json");
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    broken(&stand, &mut stand.run(&["true"]), &["it is not a file"]);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    broken(
        &stand,
        &mut stand.run(&["true"]),
        &["cannot read the contract"],
    );
    fs::remove_dir(&path).unwrap();
    fs::write(&path, b"\xff").unwrap();
    broken(&stand, &mut stand.run(&["true"]), &["it is not UTF-8"]);
}

#[test]
fn a_root_that_is_gone() {
    let stand = Stand::new();
    fails(
        &mut stand.run_with(&["--root", "gone"], &["true"]),
        125,
        &["cannot use gone as the root directory", "--root"],
    );
    fs::write(stand.path("file"), "").unwrap();
    fails(
        &mut stand.run_with(&["--root", "file"], &["true"]),
        125,
        &["not a directory"],
    );
}

#[test]
fn a_working_directory_that_is_gone() {
    let stand = Stand::new();
    let gone = stand.path("gone");
    fs::create_dir(&gone).unwrap();
    let script = format!("rmdir {0}; exec \"$@\"", gone.display());
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &script,
            "sh",
            env!("CARGO_BIN_EXE_capgate"),
            "run",
            "--",
            "true",
        ])
        .current_dir(&gone);
    fails(&mut command, 125, &["cannot find the working directory"]);
}

#[test]
fn a_repository_that_somebody_else_put_there() {
    let stand = Stand::new();
    let below = stand.path("mine");
    fs::create_dir(&below).unwrap();
    std::os::unix::fs::chown(stand.path(".git"), Some(4711), None).unwrap();
    let mut command = stand.run(&["true"]);
    command.current_dir(&below);
    fails(&mut command, 125, &["belongs to uid 4711", "--root"]);
}

#[test]
fn a_command_that_is_not_there_is_127() {
    let stand = Stand::new();
    fails(
        &mut stand.run(&["no-such-command"]),
        127,
        &["cannot run no-such-command", "PATH"],
    );
    assert!(
        !stand
            .ledger()
            .verdict
            .contains(&capgate_common::verdict::Verdict::Match)
    );
    for command in ["./no-such-file", "", "/nowhere/x"] {
        let stand = Stand::new();
        fails(&mut stand.run(&[command]), 127, &["cannot run"]);
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    let stand = Stand::new();
    fs::write(stand.path("plain"), "echo\n").unwrap();
    fs::write(stand.path("broken"), "#!/nowhere/interpreter\n").unwrap();
    fs::set_permissions(stand.path("broken"), Permissions::from_mode(0o755)).unwrap();
    for (command, words) in [
        ("./plain", &["permission denied", "chmod +x"][..]),
        ("./tests", &["permission denied"]),
        ("./broken", &["interpreter"]),
    ] {
        fails(&mut stand.run(&[command]), 126, words);
    }
}

#[test]
fn a_ledger_that_cannot_be_written() {
    let stand = Stand::new();
    fails(
        &mut stand.run_with(&["--ledger", "nowhere/out.json"], &["true"]),
        125,
        &["cannot open its directory"],
    );
    fails(
        &mut stand.run_with(&["--ledger", "tests"], &["true"]),
        125,
        &["a directory is there"],
    );
    fails(
        &mut stand.run_with(&["--evidence", "/dev/null"], &["true"]),
        125,
        &["a device is there"],
    );
    // What the job does to the directory shows when its ledger is due.
    fs::create_dir(stand.path("out")).unwrap();
    fails(
        &mut stand.run_with(&["--ledger", "out/ledger.json"], &["rm", "-r", "out"]),
        125,
        &["cannot write the ledger to out/ledger.json"],
    );
}

#[test]
fn a_ledger_that_does_not_fit() {
    let stand = Stand::new();
    let mut command = stand.run(&["true"]);
    // SAFETY: setrlimit is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 16,
                rlim_max: 16,
            };
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
            Ok(())
        })
    };
    broken(
        &stand,
        &mut command,
        &["cannot write the ledger", "File too large"],
    );
    let left: Vec<_> = fs::read_dir(stand.path("tests")).unwrap().collect();
    assert_eq!(left.len(), 1, "only the contract: {left:?}");
}

#[test]
fn a_wrong_command_line_is_capgates_own_failure() {
    let stand = Stand::new();
    for arguments in [
        &["run"][..],
        &["run", "true"],
        &["run", "--no-such-option", "--", "true"],
        &["run", "--probe-set", "tracepoint", "--", "true"],
        &["run", "--local", "--socket", "x", "--", "true"],
        &["tail", "j-1", "--kind", "none"],
        &["no-such-command"],
        &["__enter", "--channel", "77", "--socket", "x", "--", "true"],
        &[],
    ] {
        let output = output(&mut stand.capgate(arguments.iter().copied()));
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn every_command_says_when_there_is_no_daemon() {
    for arguments in [
        &["ps"][..],
        &["status"],
        &["show", "x"],
        &["tail", "x"],
        &["stop", "x"],
    ] {
        let mut command = bare();
        command.args(arguments).args(["--socket", "/nowhere/sock"]);
        fails(
            &mut command,
            125,
            &["cannot reach capgated at /nowhere/sock"],
        );
    }
}
