//! `cargo xtask test`: everything that decides whether a change may land.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{ExitCode, Stdio},
    thread::available_parallelism,
};

use anyhow::{Context, Result, bail};
use capgate_common::capability::VARIABLE as ABSENT;

use crate::{
    build,
    capability::{self, Capability},
    lint,
    packages::{self, Package},
    tally::Tally,
    vm, workspace,
};

/// What tests call or compile with, beyond what builds the project.
const PACKAGES: [Package; 20] = [
    Package {
        name: "btrfs-progs",
        provides: "mkfs.btrfs",
        why: "scenarios on another file system",
    },
    Package {
        name: "busybox-static",
        provides: "busybox",
        why: "the shell of scenarios, the same on every machine",
    },
    Package {
        name: "ccache",
        provides: "ccache",
        why: "leaves names that move",
    },
    Package {
        name: "curl",
        provides: "curl",
        why: "a client whose destinations are told by name",
    },
    Package {
        name: "gcc",
        provides: "gcc",
        why: "compiles the example's C extension and small test programs",
    },
    Package {
        name: "git",
        provides: "git",
        why: "contracts are read from repositories",
    },
    Package {
        name: "iproute2",
        provides: "ip",
        why: "brings loopback up in network namespaces",
    },
    Package {
        name: "iputils-ping",
        provides: "/usr/bin/ping",
        why: "a program with privileges of its own that uses raw sockets",
    },
    Package {
        name: "libc6-dev",
        provides: "/usr/include/stdio.h",
        why: "the C library's headers",
    },
    Package {
        name: "nodejs",
        provides: "node",
        why: "another such client",
    },
    Package {
        name: "postgresql-client",
        provides: "psql",
        why: "a client of a name and of a unix socket",
    },
    Package {
        name: "procps",
        provides: "ps",
        why: "looks at what a job left running",
    },
    Package {
        name: "python3",
        provides: "/usr/bin/python3",
        why: "runs the polyglot example and a real project's suite",
    },
    Package {
        name: "python3-dev",
        // By its path: another Python's may be found first, and that one may not be everybody's.
        provides: "/usr/bin/python3-config",
        why: "the headers that the example's C extension is compiled with",
    },
    Package {
        name: "python3-pip",
        provides: "/usr/bin/pip3",
        why: "fetches the real project",
    },
    Package {
        name: "strace",
        provides: "strace",
        why: "the second look at what a job did",
    },
    Package {
        name: "sudo",
        provides: "sudo",
        why: "jobs that use it stay transparent",
    },
    Package {
        name: "systemd",
        provides: "systemd-analyze",
        why: "verifies the service's unit",
    },
    Package {
        name: "util-linux",
        provides: "unshare",
        why: "puts jobs and peers into other namespaces",
    },
    Package {
        name: "xfsprogs",
        provides: "mkfs.xfs",
        why: "scenarios on another file system",
    },
];

/// At most so many tests at once, unless `RUST_TEST_THREADS` says otherwise: each test of the real kernel attaches
/// probes and runs several processes, and some measure time.
const MOST_THREADS: usize = 4;

/// Installs, builds, lints, tests, and prints the sums.
pub(crate) fn all() -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "the tests load eBPF programs and make cgroups, which only root can: run `sudo -E cargo xtask test`"
        );
    }
    let absent = declared()?;
    packages::ensure(&PACKAGES)?;
    if cfg!(target_arch = "x86_64") && !absent.iter().any(|capability| capability.name == "ia32") {
        vm::install_ia32()?;
    }
    build::binaries()?;
    lint::all()?;
    warn(&absent);
    let mut tally = run_tests(&absent)?;
    match absent.iter().find(|capability| capability.name == "vm") {
        Some(vm) => tally.skipped += vm.tests,
        None => tally.add(vm::beside_tests()?),
    }
    warn(&absent);
    let verdict = judge(tally, &absent);
    if let Err(reason) = &verdict {
        eprintln!("xtask: {reason}");
    }
    // The last line of all, for whoever reads it by machine.
    println!("{tally}");
    Ok(if verdict.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What is declared absent, in the suite's own variable or in the one of every suite that capgate runs.
fn declared() -> Result<Vec<&'static Capability>> {
    let variables = [capability::VARIABLE, ABSENT];
    let values = variables.map(|name| env::var(name).unwrap_or_default());
    let mut absent = capability::declared(&values.join(",")).map_err(anyhow::Error::msg)?;
    absent.sort_by_key(|capability| capability.name);
    absent.dedup();
    Ok(absent)
}

/// Says loudly what will not be tested.
fn warn(absent: &[&Capability]) {
    for capability in absent {
        eprintln!(
            "xtask: !!! DECLARED ABSENT: {} ({}); {} tests do not run !!!",
            capability.name, capability.meaning, capability.tests
        );
    }
}

/// Runs the tests of every crate and sums what their summaries say.
fn run_tests(absent: &[&Capability]) -> Result<Tally> {
    let skip_log = workspace::target().join("test-skips");
    fs::write(&skip_log, "").with_context(|| format!("cannot write {}", skip_log.display()))?;
    let mut cargo = workspace::cargo(["test", "--workspace", "--no-fail-fast"]);
    cargo
        .env(capability::SKIP_LOG, &skip_log)
        .env(capability::VARIABLE, names(absent))
        // The jobs that the tests start know other names.
        .env_remove(ABSENT)
        .stdout(Stdio::piped());
    if env::var_os("RUST_TEST_THREADS").is_none() {
        let threads = available_parallelism()
            .map_or(1, usize::from)
            .min(MOST_THREADS);
        cargo.env("RUST_TEST_THREADS", threads.to_string());
    }
    vm::prepare_native(&mut cargo)?;
    let mut child = cargo.spawn().context("cannot run cargo test")?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("cannot read cargo test's output")?;
            tally.add_line(&String::from_utf8_lossy(&line));
            let mut out = std::io::stdout().lock();
            out.write_all(&line)
                .and_then(|()| out.write_all(b"\n"))
                .context("cannot write to stdout")?;
        }
    }
    let status = child.wait().context("cannot wait for cargo test")?;
    if !status.success() && tally.failed == 0 {
        // A binary that did not compile or died has no summary.
        tally.failed = 1;
    }
    tally.reclassify_skipped(lines_in(&skip_log)?);
    Ok(tally)
}

/// The names of capabilities, as a variable has them.
fn names(absent: &[&Capability]) -> String {
    let names: Vec<_> = absent.iter().map(|capability| capability.name).collect();
    names.join(",")
}

/// How many tests reported that they did not run.
fn lines_in(skip_log: &Path) -> Result<usize> {
    let log = fs::read_to_string(skip_log)
        .with_context(|| format!("cannot read {}", skip_log.display()))?;
    Ok(log.lines().count())
}

/// An error unless tests ran, none failed, and exactly those were skipped that need something declared absent.
fn judge(tally: Tally, absent: &[&Capability]) -> Result<(), String> {
    let expected: usize = absent.iter().map(|capability| capability.tests).sum();
    if tally.failed > 0 {
        return Err("tests failed".into());
    }
    if tally.passed == 0 {
        return Err("no test ran".into());
    }
    if tally.skipped != expected {
        let skipped = tally.skipped;
        return Err(format!(
            "{skipped} tests were skipped, but {expected} need what is declared absent (xtask/src/capability.rs)"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    static TWO_TESTS: Capability = Capability {
        name: "two",
        meaning: "needed by two tests",
        tests: 2,
    };

    fn check(
        passed: usize,
        failed: usize,
        skipped: usize,
        absent: &[&Capability],
        expect: Result<(), &str>,
    ) {
        let verdict = judge(
            Tally {
                passed,
                failed,
                skipped,
            },
            absent,
        );
        let reason = verdict.map_err(|e| e.split(',').next().map(str::to_owned));
        assert_eq!(reason, expect.map_err(|e| Some(e.to_owned())));
    }

    #[test]
    fn a_failed_test_fails_the_run() {
        check(9, 1, 0, &[], Err("tests failed"));
    }

    #[test]
    fn a_run_without_tests_is_not_green() {
        check(0, 0, 0, &[], Err("no test ran"));
        check(0, 0, 2, &[&TWO_TESTS], Err("no test ran"));
    }

    #[test]
    fn exactly_the_tests_of_what_is_declared_absent_are_skipped() {
        check(9, 0, 0, &[], Ok(()));
        check(9, 0, 2, &[&TWO_TESTS], Ok(()));
        check(9, 0, 1, &[], Err("1 tests were skipped"));
        check(9, 0, 1, &[&TWO_TESTS], Err("1 tests were skipped"));
    }

    #[test]
    fn the_names_of_what_is_absent_are_declared_to_the_tests() {
        let absent = capability::declared("vm,pypi").unwrap();
        assert_eq!(names(&absent), "vm,pypi");
    }

    #[test]
    fn nothing_is_absent_unless_declared() {
        assert_eq!(capability::declared(""), Ok(vec![]));
        assert_eq!(capability::declared(" , "), Ok(vec![]));
    }

    #[test]
    fn declared_names_are_found_in_any_order() {
        let names: Vec<_> = capability::declared("pypi, ia32")
            .unwrap()
            .iter()
            .map(|capability| capability.name)
            .collect();
        assert_eq!(names, ["pypi", "ia32"]);
    }

    #[test]
    fn an_unknown_name_is_an_error_that_shows_the_known_ones() {
        let error = capability::declared("pypi,kvm").unwrap_err();
        assert!(
            error.contains("\"kvm\"") && error.contains("ia32 (the kernel"),
            "{error}"
        );
    }
}
