//! Programs, however they are started.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::{
    cells::{PACKAGED, X86},
    programs::BIN,
    row::{Row, excluded, incomplete},
    site::Site,
};

/// A script `s` in the root.
fn script(interpreter: String, text: &'static str) -> impl Fn(&Site) {
    move |site| {
        let path = site.path("repo/s");
        fs::write(&path, format!("#!{interpreter}\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn shell() -> String {
    format!("{BIN}/busybox sh")
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row::sh("a_script_is_run_and_its_interpreter_too", "./s")
            .outside(script(shell(), "true"))
            .execs("s"),
        Row::sh("a_script_whose_interpreter_is_a_script", "./s")
            .outside(|site| {
                script(shell(), "true")(site);
                fs::rename(site.path("repo/s"), site.path("repo/t")).unwrap();
                script(site.fill("{site}/repo/t"), "true")(site);
            })
            .execs("s t")
            .tracepoint(excluded("scripts in between are not seen (docs/limits.md)")),
        Row::program("a_script_by_its_descriptor", "run fd s")
            .outside(script(shell(), "true"))
            .execs("s {bin}/busybox")
            // The kernel hands the interpreter /dev/fd/N, which only the process itself can follow.
            .tracepoint(incomplete("unresolved")),
        Row::program(
            "a_script_without_its_interpreter_is_not_run",
            "run refused s",
        )
        .outside(script("/nowhere/interpreter".into(), "true")),
        Row::sh("env_splits_an_interpreters_arguments", "./s")
            .cells(PACKAGED)
            .outside(script(
                "/usr/bin/env -S /usr/bin/python3 -u".into(),
                "print('x')",
            ))
            .execs("s /usr/bin/env /usr/bin/python3.11"),
        Row::program("a_program_by_its_descriptor", "run fd {bin}/true").execs("{bin}/busybox"),
        Row::program("a_program_in_memory", "run memory {bin}/true").execs("memfd:x"),
        Row::program("a_32_bit_program", "compat.ia32")
            .cells(X86)
            .needs("ia32")
            .net("127.0.0.1:9")
            .writes("compat")
            .tracepoint(incomplete("compat")),
        Row::sh(
            "another_process_namespace",
            "unshare -fp sh -c \"echo x > f\"",
        )
        .writes("f"),
        Row::sh(
            "privileges_can_still_be_gained",
            "grep -q 'NoNewPrivs:.0' /proc/self/status",
        ),
        Row::command("sudo_works_in_a_job", &["/usr/bin/sudo", "-n", "id", "-u"])
            .cells(PACKAGED)
            .execs("/usr/bin/id"),
        Row::command("ping_is_seen", &["/usr/bin/ping", "-c", "1", "127.0.0.1"])
            .cells(PACKAGED)
            // It makes a socket of each protocol before it knows which one it needs.
            .net("raw:127.0.0.1/1 raw:*/58"),
    ]
}
