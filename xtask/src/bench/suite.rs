//! A real project's test suite, bare and as a job.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};

use super::recorder;
use crate::{
    packages::{SYSTEM_PYTHON, pip},
    workspace,
};

/// The project and its release, from its source distribution.
pub(crate) const PROJECT: &str = "attrs-26.1.0";

/// What its suite imports.
const NEEDS: [&str; 3] = [
    "pytest==9.2.0",
    "hypothesis==6.170.17",
    "cloudpickle==3.1.3",
];

/// The directory of what the suite imports.
const PACKAGES: &str = "packages";

/// The suite's command. The seed makes each run draw the same examples; the one test left out depends on the interpreter's
/// patch release.
const WORDS: [&str; 8] = [
    SYSTEM_PYTHON,
    "-m",
    "pytest",
    "-q",
    "--hypothesis-seed=0",
    "-k",
    "not test_wrapped_annotation",
    "tests",
];

/// A suite that is ready to run.
pub(crate) struct Suite {
    /// The unpacked project.
    project: PathBuf,
    /// Where the packages are that it imports.
    packages: PathBuf,
}

impl Suite {
    /// Fetches and unpacks what is not there from an earlier bench.
    pub(crate) fn prepare() -> Result<Self> {
        let above = workspace::target().join("bench-suite");
        let dir = above.join(PROJECT);
        if !dir.exists() {
            eprintln!("xtask: fetching {PROJECT} and what its tests import");
            fs::create_dir_all(&above)
                .with_context(|| format!("cannot make {}", above.display()))?;
            // Whole or not at all: what an interrupted fetch left is no suite.
            let fresh =
                tempfile::tempdir_in(&above).context("cannot make a directory to fetch into")?;
            fetch(fresh.path())?;
            fs::rename(fresh.keep(), &dir)
                .with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(Self {
            project: dir.join(PROJECT),
            packages: dir.join(PACKAGES),
        })
    }

    /// Runs the suite as the last words of `wrapper`.
    pub(crate) fn run(&self, mut wrapper: Command) -> Result<Took> {
        wrapper
            .current_dir(&self.project)
            .env("PYTHONPATH", &self.packages)
            .args(WORDS);
        wrapper.stdin(Stdio::null());
        let cpu_before = childrens_cpu()?;
        let started = Instant::now();
        let (_, complete) = recorder::output(&mut wrapper)?;
        let wall = started.elapsed();
        Ok(Took {
            wall,
            cpu: childrens_cpu()? - cpu_before,
            complete,
        })
    }
}

/// What a run of the suite took.
pub(crate) struct Took {
    /// From start to end.
    pub(crate) wall: Duration,
    /// Time on a CPU, of the suite and of what wraps it. It says less than `wall`, and stays right on a machine that
    /// has other work.
    pub(crate) cpu: Duration,
    /// Its recording, if any, lost nothing.
    pub(crate) complete: bool,
}

/// CPU time of all processes that this one has waited for, and of those that they have waited for.
fn childrens_cpu() -> Result<Duration> {
    let usage =
        getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot ask for the children's CPU time")?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

/// Fetches the project's source and the packages into a directory.
fn fetch(into: &Path) -> Result<()> {
    let (name, version) = PROJECT
        .rsplit_once('-')
        .context("a project has a version")?;
    pip(
        into,
        &[
            "download",
            "--no-deps",
            "--no-binary",
            name,
            &format!("{name}=={version}"),
        ],
    )?;
    let archive = format!("{PROJECT}.tar.gz");
    workspace::run(
        Command::new("tar")
            .args(["-xf", &archive])
            .current_dir(into),
    )?;
    // The project too: its tests ask for its own installed metadata.
    pip(
        into,
        &[
            &["install", "--target", PACKAGES, &archive],
            NEEDS.as_slice(),
        ]
        .concat(),
    )
}
