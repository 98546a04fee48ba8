//! The suites' sources and what they need, fetched once with the registries' own clients.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{packages::pip, workspace};

/// Where a suite comes from, and what it needs beside.
pub(crate) enum Source {
    /// A source distribution on the Python package index, its tests run by pytest; further packages.
    PyPi(&'static [&'static str]),
    /// A directory of such a source distribution.
    Tree(&'static str),
    /// A crate, without the dependencies of other tests than those of its library.
    Crate,
    /// A package of the node registry, and what runs its tests.
    Npm(&'static str),
}

/// The test runner of the Python suites that do not name one of their own.
const PYTEST: &str = "pytest==9.2.0";
/// The suite's own files.
pub(crate) const SOURCE: &str = "source";
/// Packages for `PYTHONPATH`.
pub(crate) const SITE: &str = "site";

/// A directory with `source`, and `site` for Python.
pub(crate) fn kept(suite: &str, source: &Source) -> Result<PathBuf> {
    let above = workspace::target().join("suites");
    let dir = above.join(suite);
    if !dir.exists() {
        eprintln!("xtask: fetching {suite} and what its tests need");
        fs::create_dir_all(&above).with_context(|| format!("cannot make {}", above.display()))?;
        // Whole or not at all: what an interrupted fetch left is no suite.
        let fresh =
            tempfile::tempdir_in(&above).context("cannot make a directory to fetch into")?;
        fetch(fresh.path(), suite, source)?;
        fs::rename(fresh.keep(), &dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    Ok(dir)
}

fn fetch(into: &Path, suite: &str, source: &Source) -> Result<()> {
    let (name, version) = suite.rsplit_once('-').context("a suite has a version")?;
    match source {
        Source::PyPi(needs) => {
            let archive = source_distribution(into, name, version)?;
            unpack(into, &archive, suite)?;
            // The project too: its tests ask for its own installed metadata. Compiled already, since that is not the suite's doing.
            let own = needs.iter().any(|need| need.starts_with("pytest=="));
            let runner: &[&str] = if own { &[] } else { &[PYTEST] };
            let install = ["install", "--target", SITE, "--compile", &archive];
            pip(into, &[&install, runner, *needs].concat())
        }
        Source::Tree(below) => {
            let archive = source_distribution(into, name, version)?;
            unpack(into, &archive, &format!("{suite}/{below}"))
        }
        Source::Crate => package(into, name, version),
        Source::Npm(runner) => {
            let mut pack = Command::new("npm");
            pack.args(["pack", "--silent", &format!("{name}@{version}")]);
            workspace::run(pack.current_dir(into).stdout(std::io::stderr()))?;
            unpack(into, &format!("{suite}.tgz"), "package")?;
            let mut install = Command::new("npm");
            install.args([
                "install",
                "--silent",
                "--no-save",
                "--no-package-lock",
                "--no-audit",
                runner,
            ]);
            workspace::run(install.current_dir(into.join(SOURCE)))
        }
    }
}

/// Downloads a source distribution; comes back with its file name.
fn source_distribution(into: &Path, name: &str, version: &str) -> Result<String> {
    let requirement = format!("{name}=={version}");
    // Of the project itself only: what builds it may come built.
    pip(
        into,
        &["download", "--no-deps", "--no-binary", name, &requirement],
    )?;
    let entries = fs::read_dir(into).with_context(|| format!("cannot list {}", into.display()))?;
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut archives = names.filter(|name| name.ends_with(".tar.gz"));
    archives
        .next()
        .with_context(|| format!("{requirement} has no source distribution"))
}

/// Unpacks an archive, and keeps one of its directories as the source.
fn unpack(into: &Path, archive: &str, below: &str) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--no-same-owner", "-xf", archive]);
    workspace::run(tar.current_dir(into))?;
    // A project's name may be spelled otherwise in its archive.
    let found = [below.to_owned(), below.replace('-', "_")];
    let found = found
        .iter()
        .map(|name| into.join(name))
        .find(|path| path.exists());
    let found = found.with_context(|| format!("{archive} holds no {below}"))?;
    fs::rename(&found, into.join(SOURCE))
        .with_context(|| format!("cannot move {}", found.display()))
}

/// A crate's source, with a lock file, and without the tables that only its other tests need.
fn package(into: &Path, name: &str, version: &str) -> Result<()> {
    let manifest = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[dependencies]\n{name} = \"={version}\"\n[workspace]\n"
    );
    fs::create_dir(into.join("src")).context("cannot make a directory")?;
    fs::write(into.join("src/lib.rs"), "").context("cannot write a file")?;
    fs::write(into.join("Cargo.toml"), manifest).context("cannot write a manifest")?;
    let cargo = |directory: &Path, words: &[&str]| {
        let mut cargo = Command::new("/usr/bin/cargo");
        cargo
            .current_dir(directory)
            .args(words)
            .stdout(std::io::stderr());
        workspace::run(&mut cargo)
    };
    cargo(into, &["vendor", "--quiet", "vendor"])?;
    let source = into.join(SOURCE);
    fs::rename(into.join("vendor").join(name), &source).context("cannot move the crate")?;
    let path = source.join("Cargo.toml");
    let manifest = fs::read_to_string(&path).context("cannot read the crate's manifest")?;
    let edition = manifest.lines().find(|line| line.starts_with("edition"));
    // Neither what its other tests and benches need nor what is optional: the suite runs without a registry.
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"{version}\"\n{}\n[workspace]\n",
        edition.unwrap_or_default()
    );
    for other in [
        "benches",
        "tests",
        "examples",
        "Cargo.lock",
        ".cargo-checksum.json",
    ] {
        let other = source.join(other);
        // Not every package has each.
        let _ = fs::remove_file(&other).or_else(|_| fs::remove_dir_all(&other));
    }
    fs::write(&path, manifest).context("cannot write the crate's manifest")?;
    cargo(&source, &["generate-lockfile", "--quiet"])
}
