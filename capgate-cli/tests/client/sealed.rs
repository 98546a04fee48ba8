//! What of the caller's environment a command does not get, and the programs that refuse in its place.

use std::{
    ffi::CString,
    fs,
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, Output, Stdio},
    ptr,
};

use crate::{
    errors::broken,
    stand::{Stand, install, output, text},
};

const CONTRACT: &str = "tests/capability.ledger.json";

/// A contract that allows nothing, with more keys.
fn contract(stand: &Stand, keys: &str) {
    let text = format!(
        r#"{{"allow_net": [], "cpu_budget": 30, "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", {keys}}}"#
    );
    fs::write(stand.path(CONTRACT), text).unwrap();
}

/// Gives a command an environment of exactly these entries, which the standard library would not.
fn with_entries(command: &mut Command, entries: &[&[u8]]) {
    let c = |bytes: &[u8]| CString::new(bytes).unwrap();
    let program = c(command.get_program().as_bytes());
    let mut arguments = vec![program.clone()];
    arguments.extend(command.get_args().map(|argument| c(argument.as_bytes())));
    let entries: Vec<CString> = entries.iter().map(|entry| c(entry)).collect();
    // SAFETY: execve is async-signal-safe, and everything that it is given was made before the fork.
    unsafe {
        command.pre_exec(move || {
            // Only pointers to what the closure holds; this process never returns from the call but by an error.
            let list = |texts: &[CString]| {
                let mut list = [ptr::null(); 64];
                for (place, text) in list.iter_mut().zip(texts) {
                    *place = text.as_ptr();
                }
                list
            };
            libc::execve(
                program.as_ptr(),
                list(&arguments).as_ptr(),
                list(&entries).as_ptr(),
            );
            Err(std::io::Error::last_os_error())
        })
    };
}

/// Runs `cat /proc/self/environ` as the job of a caller with these entries, and comes back with what it got.
fn received(stand: &Stand, options: &[&str], entries: &[&[u8]]) -> (Vec<Vec<u8>>, Output) {
    let mut command = stand.run_with(options, &["cat", "/proc/self/environ"]);
    with_entries(&mut command, entries);
    let output = output(&mut command);
    let got = output
        .stdout
        .strip_suffix(b"\0")
        .unwrap_or(&output.stdout)
        .split(|&byte| byte == 0)
        .map(<[u8]>::to_vec)
        .collect();
    (got, output)
}

/// Odd in every way that execve lets through.
const ODD: [&[u8]; 13] = [
    b"AWS_PROFILE=prod",
    b"A=1",
    b"PATH=/usr/bin:/bin",
    b"KUBECONFIG=/home/u/.kube",
    b"A=2",
    b"AWS_PROFILE=again",
    b"NAME_ONLY",
    b"AWS_\xff=\xfe",
    b"=AWS_PROFILE=x",
    b"AWS=kept",
    b"PATH=/second",
    b"KUBECONFIGS=\xc3\x28",
    b"EMPTY=",
];

#[test]
fn what_is_sealed_is_gone_and_everything_else_is_as_it_was() {
    let stand = Stand::new();
    contract(
        &stand,
        r#""seal_env": ["AWS_*", "KUBECONFIG", "NOT_THERE"]"#,
    );
    let (got, output) = received(&stand, &[], &ODD);
    let kept: Vec<&[u8]> = [1, 2, 4, 6, 8, 9, 10, 11, 12]
        .map(|at: usize| ODD[at])
        .into();
    assert_eq!(got, kept);
    let said = text(&output.stderr);
    assert_eq!(
        said.lines().next(),
        Some("capgate: sealed 3 names by 3 patterns")
    );
    assert_eq!(
        stand.daemon.start().sealed,
        ["AWS_PROFILE", "AWS_\\xff", "KUBECONFIG"]
    );
    // Not a value anywhere in what was sent or said.
    let sent = serde_json::to_string(&stand.daemon.start()).unwrap();
    for text in [&said, &sent] {
        assert!(!text.contains("prod") && !text.contains(".kube"), "{text}");
    }
}

#[test]
fn without_a_seal_the_environment_is_handed_on_byte_by_byte() {
    let stand = Stand::new();
    let (got, output) = received(&stand, &[], &ODD);
    assert_eq!(got, ODD);
    assert!(!text(&output.stderr).contains("sealed"));
    // A name without a value is dropped by its name.
    contract(&stand, r#""seal_env": ["NAME_ONLY", "EMPTY"]"#);
    let (got, output) = received(&stand, &[], &ODD);
    assert_eq!(got.len(), ODD.len() - 2);
    assert!(text(&output.stderr).contains("capgate: sealed 2 names by 2 patterns\n"));
}

#[test]
fn a_list_of_its_own_seals_a_job_that_is_only_recorded() {
    let stand = Stand::new();
    fs::remove_file(stand.path(CONTRACT)).unwrap();
    let list = stand.outside("seal.json");
    let options = ["--record", "--seal-only", list.to_str().unwrap()];
    fs::write(&list, r#"{ "seal_env": ["AWS_*"] }"#).unwrap();
    let (got, output) = received(&stand, &options, &ODD);
    assert_eq!(got.len(), ODD.len() - 3);
    assert!(text(&output.stderr).contains("capgate: sealed 2 names by 1 pattern\n"));
    // With a contract, both count.
    contract(&stand, r#""seal_env": ["A", "AWS_*"]"#);
    let (got, output) = received(&stand, &options, &ODD);
    assert_eq!(got.len(), ODD.len() - 5);
    assert!(text(&output.stderr).contains("capgate: sealed 3 names by 2 patterns\n"));

    for (content, phrase) in [
        ("AWS_*\n", "not a JSON object with the one key `seal_env`"),
        (r#"{"seal_env": [], "refuse": []}"#, "unknown field"),
        (
            r#"{"seal_env": ["P*"]}"#,
            "`seal_env`[0]: `P*` would drop `PATH`",
        ),
    ] {
        fs::write(&list, content).unwrap();
        broken(
            &stand,
            &mut stand.run_with(&options, &["true"]),
            &["cannot use the list of sealed variables", phrase],
        );
    }
    fs::remove_file(&list).unwrap();
    broken(
        &stand,
        &mut stand.run_with(&options, &["true"]),
        &["cannot read the list of sealed variables"],
    );
    let gated = output_of(&mut stand.run_with(&options[1..], &["true"]));
    assert!(gated.contains("--record"), "{gated}");
}

fn output_of(command: &mut Command) -> String {
    let output = output(command);
    assert_eq!(output.status.code(), Some(125));
    text(&output.stderr)
}

#[test]
fn a_seal_that_would_drop_path_or_everything_is_refused() {
    let stand = Stand::new();
    for (pattern, phrase) in [
        ("P*", "`P*` would drop `PATH`"),
        ("PATH", "`PATH` would drop `PATH`"),
        ("*", "`*` would drop the whole environment"),
        ("", "an empty pattern"),
    ] {
        contract(&stand, &format!(r#""seal_env": ["A", "{pattern}"]"#));
        broken(
            &stand,
            &mut stand.run(&["true"]),
            &["the contract's `seal_env`[1]: ", phrase],
        );
    }
}

#[test]
fn a_private_daemon_does_not_get_what_is_sealed_either() {
    let stand = Stand::new();
    contract(&stand, r#""seal_env": ["AWS_*"]"#);
    let capgate = stand.open_to_all();
    let script = format!(
        "#!/bin/sh\nenv > {}\nexit 1\n",
        stand.outside("got").display()
    );
    fs::write(stand.outside("script"), script).unwrap();
    install(&stand.outside("script"), &stand.outside("capgated"));
    let mut command = Command::new(capgate);
    command
        .current_dir(stand.path(""))
        .args(["run", "--local", "--", "true"])
        .env("AWS_PROFILE", "prod")
        .env("KEPT", "x")
        .stdin(Stdio::null());
    let said = output_of(&mut command);
    assert!(said.contains("did not come up"), "{said}");
    let got = fs::read_to_string(stand.outside("got")).unwrap();
    assert!(got.contains("KEPT=x\n") && !got.contains("AWS_"), "{got}");
}

#[test]
fn programs_that_refuse_come_first_and_only_path_changes() {
    let stand = Stand::new();
    contract(
        &stand,
        r#""refuse": ["exec:az", "exec:it's", "exec:/usr/bin/kubectl", "exec:gcloud*"], "refuse_shims": true"#,
    );
    let (got, _) = received(&stand, &[], &ODD);
    let directory = stand.daemon.start().shims.unwrap();
    let path = format!("PATH={directory}:");
    let expect = ODD.map(|entry| match entry.strip_prefix(b"PATH=") {
        Some(rest) => [path.as_bytes(), rest].concat(),
        None => entry.to_vec(),
    });
    assert_eq!(got, expect);
    // It is gone with the job.
    assert!(!Path::new(&directory).exists());
    // Without a PATH the usual directories stay behind it.
    let (got, _) = received(&stand, &[], &[b"A=1"]);
    assert_eq!(got.len(), 2);
    assert!(got[1].ends_with(b":/bin:/usr/bin") && got[1].starts_with(b"PATH=/"));
}

#[test]
fn a_program_that_refuses_says_so_and_ends_with_97() {
    let stand = Stand::new();
    contract(
        &stand,
        r#""refuse": ["exec:az", "exec:it's"], "refuse_shims": true"#,
    );
    let output = output(&mut stand.run(&["az", "login"]));
    assert_eq!(output.status.code(), Some(97));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("capgate: az is refused by the contract\n"),
        "{said}"
    );
    let script = "\"it's\"; test $? = 97 && d=$(dirname \"$(command -v az)\") && ls \"$d\" && stat -c %a \"$d\" \"$d\"/az";
    let output = crate::stand::output(&mut stand.run(&["sh", "-c", script]));
    assert_eq!(text(&output.stdout), "az\nit's\n555\n555\n");
    assert!(text(&output.stderr).starts_with("capgate: it's is refused by the contract\n"));
}
