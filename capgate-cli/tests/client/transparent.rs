//! A command finds the same world with the wrapper as without it.

use std::{
    fs::{self, File},
    io::Write,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    process::{Command, Stdio},
};

use capgate_common::protocol::Outcome;

use crate::stand::{Stand, Watched, output, shell_code, text};

/// Runs a shell script with and without the wrapper, in the same state, and compares what it says.
#[track_caller]
fn same(script: &str, prepare: impl Fn(&mut Command)) {
    let stand = Stand::new();
    let mut bare = Command::new("sh");
    bare.args(["-c", script])
        .current_dir(stand.path(""))
        .stdin(Stdio::null());
    for name in [
        "NO_COLOR",
        "CLICOLOR_FORCE",
        "GIT_DIR",
        "GIT_WORK_TREE",
        "XDG_RUNTIME_DIR",
    ] {
        bare.env_remove(name);
    }
    let mut wrapped = stand.run(&["sh", "-c", script]);
    prepare(&mut bare);
    prepare(&mut wrapped);
    let (bare, wrapped) = (output(&mut bare), output(&mut wrapped));
    assert!(!bare.stdout.is_empty(), "the script says something");
    assert_eq!(
        text(&wrapped.stdout),
        text(&bare.stdout),
        "{}",
        text(&wrapped.stderr)
    );
    assert_eq!(shell_code(wrapped.status), shell_code(bare.status));
}

#[test]
fn exit_codes_pass_through() {
    for code in [0, 1, 2, 77, 120, 125, 126, 127, 128, 255] {
        let stand = Stand::new();
        let output = output(&mut stand.run(&["sh", "-c", &format!("exit {code}")]));
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert!(matches!(stand.daemon.outcome(), Outcome::Exited(it) if it == code));
    }
}

#[test]
fn a_death_by_signal_is_128_and_its_number() {
    for signal in [9, 11, 15, 34, 64] {
        let stand = Stand::new();
        let script = format!("kill -{signal} $$; sleep 10");
        let output = output(&mut stand.run(&["bash", "-c", &script]));
        assert_eq!(
            output.status.code(),
            Some(128 + signal),
            "{}",
            text(&output.stderr)
        );
        assert!(matches!(stand.daemon.outcome(), Outcome::Signaled(it) if it == signal));
    }
}

#[test]
fn environment_and_directory_and_umask_are_the_callers() {
    same("env | sort; pwd; umask", |command| {
        command.env("ODD", "a\nb").env("EMPTY", "");
        // A shell's own variable would differ, and shows that nothing was added.
        command.env("_", "x");
        // SAFETY: umask is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::umask(0o027);
                Ok(())
            })
        };
    });
}

#[test]
fn limits_and_credentials_and_privileges_are_the_callers() {
    same(
        "cat /proc/self/limits; grep -E '^(Uid|Gid|Groups|NoNewPrivs|Seccomp|CapInh|CapPrm|CapEff|CapBnd|CapAmb|THP_enabled)' /proc/self/status; ulimit -a; cat /proc/self/oom_score_adj; cat /proc/self/timerslack_ns",
        |command| {
            // SAFETY: setrlimit is async-signal-safe.
            unsafe {
                command.pre_exec(|| {
                    let limit = libc::rlimit {
                        rlim_cur: 123,
                        rlim_max: 456,
                    };
                    libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                    Ok(())
                })
            };
        },
    );
}

#[test]
fn a_process_that_may_gain_no_privileges_keeps_that() {
    same("grep NoNewPrivs /proc/self/status", |command| {
        // SAFETY: prctl is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                Ok(())
            })
        };
    });
}

#[test]
fn signal_masks_and_dispositions_are_the_callers() {
    let script = "grep -E '^Sig(Blk|Ign|Cgt)|^ShdPnd' /proc/self/status";
    same(script, |_| {});
    same(script, |command| {
        // SAFETY: signal and sigprocmask are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGINT, libc::SIGCHLD, libc::SIGTSTP, libc::SIGPIPE] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                for signal in [libc::SIGUSR1, libc::SIGTERM, 40] {
                    libc::sigaddset(&raw mut set, signal);
                }
                libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
                Ok(())
            })
        };
    });
}

#[test]
fn inherited_descriptors_reach_the_command_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("given");
    fs::write(&path, "from the caller\n").unwrap();
    let given: OwnedFd = File::open(&path).unwrap().into();
    let number = given.as_raw_fd();
    same("cat <&9; ls /proc/self/fd", |command| {
        // SAFETY: close_range and dup2 are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                // What other tests have open at the moment of the fork.
                let on_exec = libc::CLOSE_RANGE_CLOEXEC;
                libc::syscall(libc::SYS_close_range, 3, u32::MAX, on_exec);
                libc::lseek(number, 0, libc::SEEK_SET);
                libc::dup2(number, 9);
                Ok(())
            })
        };
    });
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    let script = "for fd in 0 1 2; do test -e /proc/$$/fd/$fd && echo $fd open >&9 || echo $fd closed >&9; done";
    for (closed, expect) in [
        (vec![0], "0 closed\n1 open\n2 open\n"),
        (vec![1], "0 open\n1 closed\n2 open\n"),
        (vec![2], "0 open\n1 open\n2 closed\n"),
        (vec![0, 1, 2], "0 closed\n1 closed\n2 closed\n"),
    ] {
        let stand = Stand::new();
        let said = stand.outside("said");
        let file = File::create(&said).unwrap();
        let number = file.as_raw_fd();
        let mut wrapped = stand.run(&["sh", "-c", script]);
        wrapped.stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: dup2 and close are async-signal-safe.
        unsafe {
            wrapped.pre_exec(move || {
                libc::dup2(number, 9);
                for &fd in &closed {
                    libc::close(fd);
                }
                Ok(())
            })
        };
        let status = wrapped.status().unwrap();
        assert_eq!(fs::read_to_string(&said).unwrap(), expect);
        assert_eq!(status.code(), Some(0));
        assert!(stand.has_ledger());
    }
}

#[test]
fn stdin_is_the_commands() {
    let stand = Stand::new();
    let mut child = stand
        .run(&["cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"one\0two\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"one\0two\n");
}

#[test]
fn a_gibibyte_on_stdout_arrives() {
    let stand = Stand::new();
    let mut head = stand
        .run(&["head", "-c", "1073741824", "/dev/zero"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let counted = Command::new("wc")
        .arg("-c")
        .stdin(head.stdout.take().unwrap())
        .output()
        .unwrap();
    assert_eq!(text(&counted.stdout).trim(), "1073741824");
    assert!(head.wait().unwrap().success());
}

#[test]
fn a_reader_that_goes_away_kills_the_command_as_ever() {
    let stand = Stand::new();
    let mut yes = Watched::start(&mut stand.run(&["yes"]));
    assert_eq!(yes.line(), "y");
    // `output` would read on for ever.
    let pid = yes.pid();
    yes.close();
    crate::stand::until("capgate ends", || {
        crate::stand::state(pid.as_raw()).is_none_or(|it| it == 'Z')
    });
    assert!(matches!(
        stand.daemon.outcome(),
        Outcome::Signaled(libc::SIGPIPE)
    ));
}

#[test]
fn arguments_are_passed_byte_for_byte() {
    let stand = Stand::new();
    let odd = std::ffi::OsStr::from_bytes(b"\xff \n*'\"--socket");
    let mut command = stand.run(&["printf", "<%s>", "", "--", "-x", "--record"]);
    command.arg(odd);
    let output = output(&mut command);
    assert_eq!(output.stdout, b"<><--><-x><--record><\xff \n*'\"--socket>");
}

#[test]
fn the_token_is_in_no_arguments_and_no_environment() {
    let stand = Stand::new();
    let script = "cat /proc/self/environ /proc/$PPID/cmdline /proc/self/cmdline; env";
    let output = output(&mut stand.run(&["sh", "-c", script]));
    assert!(output.status.success());
    assert!(!text(&output.stdout).contains("a-token"));
}

#[test]
fn nobody_else_of_the_same_user_may_read_the_client() {
    let stand = Stand::new();
    let capgate = stand.open_to_all();
    // What is in /proc belongs to root for a process that may not be read by its user, else to its user.
    let mut command = Command::new(capgate);
    command
        .current_dir(stand.path(""))
        .args(["run", "--socket"])
        .arg(stand.outside("sock"))
        .args([
            "--",
            "sh",
            "-c",
            "stat -c %u /proc/$PPID/environ /proc/$$/environ",
        ]);
    let user = if nix::unistd::getuid().is_root() {
        command.uid(65534).gid(65534);
        65534
    } else {
        nix::unistd::getuid().as_raw()
    };
    let output = output(&mut command);
    assert_eq!(
        text(&output.stdout),
        format!("0\n{user}\n"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_group_and_session_are_the_callers() {
    let stand = Stand::new();
    let output = output(&mut stand.run(&[
        "sh",
        "-c",
        "ps -o pgid=,sid= -p $$; ps -o pgid=,sid= -p $PPID",
    ]));
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], lines[1]);
}
