//! `cargo xtask witness`: what capgate tells of real suites, compared with what strace and the file system tell.

mod job;
mod sources;
mod suites;
mod table;

use std::{fs, process::ExitCode};

use anyhow::{Context, Result, bail};

use self::{
    sources::Kept,
    suites::{SUITES, Suite},
};
use crate::{
    bench::recorder::Recorder,
    build,
    packages::{self, Package},
    workspace,
};

/// The page that a run of all suites writes, below the workspace.
const PAGE: &str = "docs/witnesses.md";

/// What the suites and their witnesses call.
const PACKAGES: [Package; 11] = [
    Package {
        name: "cargo-web",
        provides: sources::CARGO,
        why: "builds the Rust suites, for every user",
    },
    Package {
        name: "gcc",
        provides: "/usr/bin/gcc",
        why: "compiles the suites' C extensions",
    },
    Package {
        name: "libc6-dev",
        provides: "/usr/include/stdio.h",
        why: "the C library's headers",
    },
    Package {
        name: "make",
        provides: "/usr/bin/make",
        why: "runs the C suite",
    },
    Package {
        name: "nodejs",
        provides: "/usr/bin/node",
        why: "runs the JavaScript suite",
    },
    Package {
        name: "npm",
        provides: "npm",
        why: "fetches the JavaScript suite",
    },
    Package {
        name: "python3",
        provides: packages::SYSTEM_PYTHON,
        why: "runs the Python suites",
    },
    Package {
        name: "python3-dev",
        provides: "/usr/bin/python3-config",
        why: "the headers that the C extensions are compiled with",
    },
    Package {
        name: "python3-pip",
        provides: "/usr/bin/pip3",
        why: "fetches the Python suites",
    },
    Package {
        name: "rustc-web",
        provides: sources::RUSTC,
        why: "compiles the Rust suites, for every user",
    },
    Package {
        name: "strace",
        provides: "/usr/bin/strace",
        why: "the witness inside the job",
    },
];

/// Runs all suites, or those that are named, and prints the table; fails when capgate and the witnesses disagree.
pub(crate) fn compare(only: &[String]) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "the daemon loads eBPF programs, which only root can: run `sudo -E cargo xtask witness`"
        );
    }
    let chosen = chosen(only)?;
    build::binaries()?;
    packages::ensure(&PACKAGES)?;
    // Where the jobs' user gets to, wherever the workspace is.
    let dir = tempfile::tempdir().context("cannot make a directory for the daemon")?;
    job::install_client(dir.path())?;
    let recorder = Recorder::start_for(dir.path(), &format!("group = \"{}\"\n", job::GROUP))?;
    let mut rows = Vec::new();
    for suite in &chosen {
        let kept = Kept::of(suite)?;
        eprintln!("xtask: running {} {}", suite.name, suite.version);
        rows.push(job::run(
            suite,
            &kept,
            &recorder,
            &dir.path().join("capgate"),
        )?);
    }
    print!("{}", table::table(&rows));
    if only.is_empty() {
        let page = workspace::root().join(PAGE);
        fs::write(&page, table::page(&rows))
            .with_context(|| format!("cannot write {}", page.display()))?;
    }
    let disagreements: usize = rows.iter().map(|row| row.missed + row.invented).sum();
    if disagreements > 0 {
        eprintln!("xtask: capgate and the witnesses disagree on {disagreements} names");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The suites with these names, or all.
fn chosen(only: &[String]) -> Result<Vec<&'static Suite>> {
    let named = |name: &String| {
        let found = SUITES.iter().find(|suite| suite.name == name);
        let known = || SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>();
        found.with_context(|| {
            format!(
                "no suite is called {name:?}; known are {}",
                known().join(", ")
            )
        })
    };
    if only.is_empty() {
        return Ok(SUITES.iter().collect());
    }
    only.iter().map(named).collect()
}
