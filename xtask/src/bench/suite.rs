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
use crate::workspace;

/// The project and its release, from its source distribution.
pub(crate) const PROJECT: &str = "attrs-25.3.0";

/// What its suite imports.
const NEEDS: [&str; 4] = [
    "pytest==8.4.2",
    "hypothesis==6.138.0",
    "cloudpickle==3.1.1",
    "pympler==1.1",
];

/// The system's own interpreter: a version manager's shim would add its own work to every start.
const PYTHON: &str = "/usr/bin/python3";

/// The suite's command. The seed makes each run draw the same examples; the one test left out depends on the interpreter's
/// patch release.
const WORDS: [&str; 8] = [
    PYTHON,
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
        let dir = workspace::target().join("bench-suite");
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let this = Self {
            project: dir.join(PROJECT),
            packages: dir.join("packages"),
        };
        if !this.project.exists() {
            eprintln!("xtask: fetching {PROJECT} and what its tests import");
            let (name, version) = PROJECT
                .rsplit_once('-')
                .context("a project has a version")?;
            let release = format!("{name}=={version}");
            pip(
                &["install", "--target", &this.packages.to_string_lossy()],
                &NEEDS,
            )?;
            pip(
                &[
                    "download",
                    "--no-deps",
                    "--no-binary",
                    name,
                    "--dest",
                    &dir.to_string_lossy(),
                ],
                &[&release],
            )?;
            let archive = dir.join(format!("{PROJECT}.tar.gz"));
            workspace::run(
                Command::new("tar")
                    .arg("-C")
                    .arg(&dir)
                    .arg("-xf")
                    .arg(archive),
            )?;
        }
        Ok(this)
    }

    /// Runs the suite as the last words of `wrapper`.
    pub(crate) fn run(&self, mut wrapper: Command) -> Result<Took> {
        wrapper
            .current_dir(&self.project)
            .env("PYTHONPATH", self.python_path()?)
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

    /// The project's own code first: one of the packages depends on another release of it.
    fn python_path(&self) -> Result<std::ffi::OsString> {
        let paths: [&Path; 2] = [&self.project.join("src"), &self.packages];
        std::env::join_paths(paths).context("a path with a colon")
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

/// pip of the system's interpreter.
fn pip(arguments: &[&str], packages: &[&str]) -> Result<()> {
    let mut command = Command::new(PYTHON);
    command.args([
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]);
    command
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .stdout(std::io::stderr());
    workspace::run(command.args(arguments).args(packages))
}
