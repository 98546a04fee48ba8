//! A real project from the Python package index, fetched once and kept in the target directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::{job::Place, service::succeed};

/// The project, at the release whose suite was looked at.
const PROJECT: &str = "attrs-26.1.0";
/// What its suite needs, pinned so that it is the same suite everywhere.
const NEEDS: [&str; 3] = [
    "pytest==9.2.0",
    "hypothesis==6.170.17",
    "cloudpickle==3.1.3",
];
/// The interpreter that every user can execute.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Where the project's source and the packages are: `source` and `site`.
fn kept() -> &'static Path {
    static KEPT: OnceLock<PathBuf> = OnceLock::new();
    KEPT.get_or_init(|| {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(PROJECT);
        if !kept.exists() {
            // Whole or not at all: a fetch that was interrupted is no project.
            let fresh = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            fetch(fresh.path());
            fs::rename(fresh.keep(), &kept).unwrap();
        }
        kept
    })
}

fn fetch(into: &Path) {
    let run = |words: &[&str]| {
        let mut bounded = Command::new("timeout");
        succeed(bounded.arg("300").args(words).current_dir(into));
    };
    let pip = [
        PYTHON,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
    ];
    let (name, version) = PROJECT.split_once('-').unwrap();
    let requirement = format!("{name}=={version}");
    // Of the project itself only: what builds it may come built.
    let download = ["download", "--no-binary", name, "--no-deps", &requirement];
    run(&[&pip[..], &download].concat());
    let archive = format!("{PROJECT}.tar.gz");
    run(&["tar", "-xf", &archive]);
    fs::rename(into.join(PROJECT), into.join("source")).unwrap();
    let install = ["install", "--target", "site", &archive];
    run(&[&pip[..], &install, &NEEDS].concat());
}

/// Copies a directory with its times, so that compiled modules stay fresh.
fn copy(from: &Path, to: &Path) {
    succeed(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// The packages, beside a place's root; the first call copies them there.
pub(crate) fn site_of(place: &Place) -> PathBuf {
    let site = place.beside("site");
    if !site.exists() {
        copy(&kept().join("site"), &site);
        // Fetched by root, whatever its umask; to be read by all, and written by nobody who runs a test.
        succeed(Command::new("chmod").args(["-R", "a+rX,go-w"]).arg(&site));
        succeed(Command::new("chown").args(["-R", "0:0"]).arg(&site));
    }
    site
}

/// The project's source as a place's root.
pub(crate) fn check_out(place: &Place) {
    let root = place.root();
    fs::remove_dir(&root).unwrap();
    copy(&kept().join("source"), &root);
    let owner = format!("{0}:{0}", place.uid);
    succeed(Command::new("chown").args(["-R", &owner]).arg(&root));
}
