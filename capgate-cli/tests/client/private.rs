//! `run --local` where there is no private daemon to be had.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

use crate::{
    errors::broken,
    stand::{Stand, install},
};

#[test]
fn a_private_daemon_that_cannot_be_had() {
    let stand = Stand::new();
    let runtime = stand.outside("runtime");
    fs::create_dir(&runtime).unwrap();
    // A copy with no daemon beside it, and a PATH without one.
    let mut command = Command::new(stand.open_to_all());
    command
        .current_dir(stand.path(""))
        .args(["run", "--local", "--", "true"])
        .env("XDG_RUNTIME_DIR", &runtime)
        .env("PATH", "/nowhere");
    broken(&stand, &mut command, &["cannot find capgated"]);
    // One that fails at once says why.
    let program = stand.outside("capgated");
    let script = "#!/bin/sh\necho noise >&2\necho 'cannot load: no BTF' >&2\nexit 1\n";
    fs::write(stand.outside("script"), script).unwrap();
    install(&stand.outside("script"), &program);
    command.env("PATH", "/usr/bin:/bin");
    broken(
        &stand,
        &mut command,
        &["did not come up", "capgated said: cannot load: no BTF"],
    );
    assert_eq!(
        fs::read_dir(&runtime).unwrap().count(),
        0,
        "nothing is left"
    );
    // Without root and without sudo there is nothing to elevate it by.
    command.uid(65534).gid(65534).env("PATH", "/nowhere");
    broken(
        &stand,
        &mut command,
        &["it needs root, and there is no sudo"],
    );
}

#[test]
fn only_the_private_daemon_is_elevated_and_a_refusal_is_told() {
    let stand = Stand::new();
    let capgate = stand.open_to_all();
    let said = stand.outside("said");
    fs::write(&said, "").unwrap();
    fs::set_permissions(&said, Permissions::from_mode(0o666)).unwrap();
    // Says how it was called, and refuses.
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {0}\necho \"$ANSWER\" >&2\nexit 1\n",
        said.display()
    );
    fs::write(stand.outside("script"), script).unwrap();
    let bin = stand.outside("bin");
    fs::create_dir(&bin).unwrap();
    install(&stand.outside("script"), &bin.join("sudo"));
    install(&stand.outside("script"), &bin.join("capgated"));
    let mut command = Command::new(capgate);
    command
        .current_dir(stand.path(""))
        .args(["run", "--local", "--probe-set", "tracepoint", "--", "true"])
        .stdin(std::process::Stdio::null())
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env("ANSWER", "sudo: a password is required")
        .uid(65534)
        .gid(65534);
    broken(
        &stand,
        &mut command,
        &[
            "did not come up",
            "capgated said: sudo: a password is required",
        ],
    );
    let calls = fs::read_to_string(&said).unwrap();
    let start = format!(
        "--non-interactive -- {}/capgated --private 65534 --socket /",
        bin.display()
    );
    assert_eq!(
        calls.lines().count(),
        1,
        "nothing else is elevated: {calls}"
    );
    assert!(
        calls.starts_with(&start) && calls.ends_with("--probe-set tracepoint\n"),
        "{calls}"
    );
}
