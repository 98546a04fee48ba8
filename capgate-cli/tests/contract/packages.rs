//! Python packages that tests run, fetched once and kept in the target directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::project::PYTHON;

/// Pinned, so that they leave the same names everywhere.
const PACKAGES: [&str; 3] = ["pytest==9.2.0", "hypothesis==6.170.17", "coverage==7.17.5"];

/// The directory that has them, for `PYTHONPATH`. Compiled already: whether a test compiles them does not depend on the others.
pub(crate) fn site() -> &'static Path {
    static SITE: OnceLock<PathBuf> = OnceLock::new();
    SITE.get_or_init(|| {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contract-site");
        if !kept.exists() {
            // Whole or not at all: a fetch that was interrupted is no site.
            let fresh = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let mut install = Command::new("timeout");
            install
                .args([
                    "300",
                    PYTHON,
                    "-m",
                    "pip",
                    "--quiet",
                    "--disable-pip-version-check",
                ])
                .args(["install", "--target"])
                .arg(fresh.path())
                .args(PACKAGES);
            let done = install.output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{install:?}: {said}");
            fs::rename(fresh.keep(), &kept).unwrap();
        }
        kept
    })
}
