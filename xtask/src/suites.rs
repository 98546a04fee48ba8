//! `cargo xtask suites`: whether real suites have one digest. Each gets a contract from `capgate init --runs 3`, and is then held to it
//! eight times: in two directories, by two users, with a cold and a warm cache. Writes `docs/digests.md`.

mod fetch;
mod place;
mod table;

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use self::{
    fetch::Source,
    place::{Ground, Run, USERS},
};
use crate::{
    bench::recorder::Recorder,
    build,
    packages::{self, Package},
    workspace,
};

/// What the suites are fetched with and run by, beyond the project's own programs. Debian 12 has no npm that is small: node's own
/// packages bring one along.
const PACKAGES: [Package; 7] = [
    Package {
        name: "cargo-web",
        provides: "/usr/bin/cargo",
        why: "builds the crates, for every user",
    },
    Package {
        name: "gcc",
        provides: "gcc",
        why: "compiles the suite of a C library",
    },
    Package {
        name: "make",
        provides: "make",
        why: "runs the suite of a C library",
    },
    Package {
        name: "npm",
        provides: "npm",
        why: "fetches and runs a node suite",
    },
    Package {
        name: "python3",
        provides: "/usr/bin/python3",
        why: "runs the Python suites",
    },
    Package {
        name: "python3-pip",
        provides: "/usr/bin/pip3",
        why: "fetches them",
    },
    Package {
        name: "util-linux",
        provides: "setpriv",
        why: "runs them as other users",
    },
];

/// How often a suite runs before its contract is written.
const INIT_RUNS: &str = "3";

/// A real suite.
struct Suite {
    /// Name and release.
    name: &'static str,
    /// Where it comes from.
    source: Source,
    /// What runs it, in its directory.
    script: &'static str,
}

/// Of the two largest suites, which take minutes, some files; of the others all. What is left out of flask's needs another release of
/// what it imports.
const SUITES: [Suite; 12] = [
    Suite {
        name: "attrs-26.1.0",
        source: Source::PyPi(&["hypothesis==6.170.17", "cloudpickle==3.1.3"]),
        script: "python3 -m pytest -q tests/test_slots.py tests/test_filters.py tests/test_setattr.py tests/test_validators.py",
    },
    Suite {
        name: "packaging-26.4",
        source: Source::PyPi(&["pretend==1.0.9", "hypothesis==6.170.17"]),
        script: "python3 -m pytest -q tests/test_markers.py tests/test_utils.py tests/test_requirements.py",
    },
    Suite {
        name: "pluggy-1.7.0",
        source: Source::PyPi(&["pytest-benchmark==5.2.3"]),
        script: "python3 -m pytest -q --benchmark-disable testing",
    },
    Suite {
        name: "itsdangerous-2.2.0",
        source: Source::PyPi(&["freezegun==1.5.5"]),
        script: "python3 -m pytest -q tests",
    },
    Suite {
        name: "flask-3.1.3",
        source: Source::PyPi(&["pytest==8.4.2"]),
        script: "python3 -m pytest -q -k 'not test_async_view and not test_bad_environ' tests",
    },
    Suite {
        name: "msgpack-1.2.4",
        source: Source::PyPi(&[]),
        script: "python3 -m pytest -q test",
    },
    Suite {
        name: "ujson-6.1.0",
        source: Source::PyPi(&[]),
        script: "python3 -m pytest -q tests",
    },
    Suite {
        name: "regex-2026.11.19",
        source: Source::PyPi(&[]),
        script: "cd regex/tests && python3 -m unittest -q test_regex",
    },
    Suite {
        name: "bitflags-2.9.1",
        source: Source::Crate,
        script: "CARGO_HOME=$PWD/.cargo-home /usr/bin/cargo test --quiet --offline --lib",
    },
    Suite {
        name: "smallvec-1.15.1",
        source: Source::Crate,
        script: "CARGO_HOME=$PWD/.cargo-home /usr/bin/cargo test --quiet --offline --lib",
    },
    Suite {
        name: "semver-4.3.6",
        source: Source::Npm("tap@0.7.1"),
        script: "npm_config_update_notifier=false npm_config_cache=.npm npm test --silent",
    },
    Suite {
        name: "argon2-cffi-bindings-21.2.0",
        source: Source::Tree("extras/libargon2"),
        script: "make test",
    },
];

/// What a suite came to.
struct Row {
    /// The suite.
    name: &'static str,
    /// What ran it.
    script: &'static str,
    /// The digests of the runs, each once.
    digests: Vec<String>,
    /// Names in the contract.
    names: usize,
    /// Patterns in the contract.
    patterns: Vec<String>,
    /// Transient names of the last run.
    transient: usize,
    /// Runs that kept the contract.
    kept: usize,
    /// All runs.
    runs: usize,
}

/// Measures the suites and writes the page; a suite with more than one digest is an error.
pub(crate) fn measure(only: &[String]) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "only root can load the probes and run as other users: run `sudo -E cargo xtask suites`"
        );
    }
    packages::ensure(&PACKAGES)?;
    build::binaries()?;
    let chosen: Vec<&Suite> = SUITES
        .iter()
        .filter(|suite| {
            only.is_empty()
                || only
                    .iter()
                    .any(|name| suite.name.starts_with(name.as_str()))
        })
        .collect();
    if chosen.is_empty() {
        bail!("no suite is called so");
    }
    let path = workspace::root().join("docs/digests.md");
    let mut rows = Vec::new();
    for suite in chosen {
        eprintln!("xtask: {}", suite.name);
        let row = row(suite).with_context(|| format!("cannot measure {}", suite.name))?;
        // One by one, since all of them take long.
        let old = fs::read_to_string(&path).unwrap_or_default();
        let page = table::page(&old, &row);
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        rows.push(row);
    }
    match rows
        .iter()
        .find(|row| row.digests.len() != 1 || row.kept != row.runs)
    {
        Some(row) => bail!(
            "{} has {} digests and kept its contract in {} of {} runs",
            row.name,
            row.digests.len(),
            row.kept,
            row.runs
        ),
        None => Ok(()),
    }
}

fn row(suite: &Suite) -> Result<Row> {
    let kept = fetch::kept(suite.name, &suite.source)?;
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let ground = Ground::new(dir.path(), &kept)?;
    let recorder = Recorder::start_for(dir.path(), "group = \"daemon\"\n")?;
    let first = ground.fresh("one")?;
    let init = ground.init(&first, &USERS[0], INIT_RUNS, suite.script)?;
    let contract = init.contract()?;
    let mut runs: Vec<Run> = Vec::new();
    for directory in ["one", "two"] {
        for user in &USERS {
            let place = ground.fresh(directory)?;
            place.put(&init)?;
            // Cold, and then warm.
            for _ in 0..2 {
                runs.push(ground.run(&place, user, suite.script)?);
            }
        }
    }
    drop(recorder);
    let mut digests: Vec<String> = runs.iter().map(|run| run.digest.clone()).collect();
    digests.sort();
    digests.dedup();
    for run in runs.iter().filter(|run| run.code != Some(0)) {
        eprintln!("xtask: {}: {}", suite.name, run.said.trim());
    }
    Ok(Row {
        name: suite.name,
        script: suite.script,
        digests,
        names: contract.names,
        patterns: contract.patterns,
        transient: runs.last().map_or(0, |run| run.transient),
        kept: runs.iter().filter(|run| run.code == Some(0)).count(),
        runs: runs.len(),
    })
}

/// Reads a file of JSON.
fn json(path: &Path) -> Result<serde_json::Value> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}
