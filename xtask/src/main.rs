//! The project's own tasks, as `cargo xtask TASK`.

mod bench;
mod build;
mod capability;
mod install;
mod lint;
mod packages;
mod run;
mod suites;
mod tally;
mod test;
#[path = "../../capgate-daemon/build/toolchain.rs"]
mod toolchain;
mod vm;
mod witness;
mod workspace;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use bench::load;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own tasks")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Put capgate and capgated into target/release; on Debian 12 install what that needs.
    Build,
    /// Build what is missing and run a command in a local job, in the caller's directory.
    #[command(override_usage = "cargo xtask run [OPTIONS OF capgate run] -- COMMAND…")]
    Run {
        /// Options for `capgate run`, `--`, the command and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Install what the tests need, lint, run every test and print how many there were. Needs root.
    Test,
    /// Run the scenario suite on every kernel of the matrix, emulated ones included. Needs root.
    Vm {
        /// Only these: native, x86_64-6.1, x86_64-6.12, arm64-6.12, x86_64-6.12-packaged.
        cells: Vec<String>,
    },
    /// Check format, clippy and dependencies of both workspaces.
    Lint,
    /// Print what recording costs, as ratios to a bare run. Needs root.
    Bench {
        /// Only these rows: open-read, open-write, open-new, exec, udp-connect, getppid, suite, start-end.
        only: Vec<String>,
    },
    /// Hold real test suites to contracts that `capgate init` wrote, and write docs/digests.md. Needs root and the package registries.
    Suites {
        /// Only suites whose names begin so; the others' rows stay as they are.
        only: Vec<String>,
    },
    /// Call one thing in a loop and print nanoseconds per call: a part of `bench`.
    #[command(hide = true)]
    Load {
        /// What is called.
        kind: load::Kind,
        /// How often.
        count: u32,
        /// An empty directory for its files.
        dir: PathBuf,
    },
    /// Run real test suites as jobs and compare what capgate tells with what strace and the file system tell. Needs root.
    Witness {
        /// Only these suites, by name. Without any, all of them, and docs/witnesses.md is written.
        only: Vec<String>,
    },
    /// Build, then copy binaries, unit and configuration to where a service has them.
    Install {
        /// Install below this directory, for a package, and touch nothing else.
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Build => succeed(build::binaries()),
        Task::Run { words } => succeed(run::in_local_job(words)),
        Task::Test => test::all(),
        Task::Vm { cells } => vm::matrix(&cells),
        Task::Lint => succeed(lint::all()),
        Task::Bench { only } => succeed(bench::measure(&only)),
        Task::Suites { only } => succeed(suites::measure(&only)),
        Task::Load { kind, count, dir } => succeed(load::run(kind, count, &dir)),
        Task::Witness { only } => witness::compare(&only),
        Task::Install { root } => succeed(install::service(&root)),
    };
    done.unwrap_or_else(|e| {
        eprintln!("xtask: {e:#}");
        ExitCode::FAILURE
    })
}

/// The exit code of a task that either fails with an error or has nothing to tell.
fn succeed(done: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: &str) {
        let Task::Run { words } = Args::try_parse_from(line.split(' ')).unwrap().task else {
            panic!("{line}")
        };
        assert_eq!(
            words,
            expect.split(' ').map(OsString::from).collect::<Vec<_>>(),
            "{line}"
        );
    }

    #[test]
    fn the_words_of_a_run_reach_it_as_they_are_but_for_a_separator_that_begins_them() {
        check("xtask run -- pytest -q", "pytest -q");
        check("xtask run pytest -q", "pytest -q");
        check("xtask run --record -- pytest -q", "--record -- pytest -q");
        check(
            "xtask run --label x -- sh -c true -- --help",
            "--label x -- sh -c true -- --help",
        );
        check("xtask run -- git diff -- a", "git diff -- a");
    }
}
