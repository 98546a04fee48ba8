//! How a test learns that what it needs was declared absent:
//!
//!     if absent::skip("a_real_project_is_recorded", "pypi").unwrap() {
//!         return;
//!     }
//!
//! The number of tests that need a capability is pinned in `xtask/src/capability.rs`.

#[path = "../../../xtask/src/capability.rs"]
mod capability;

use std::{env, fs::OpenOptions, io::Write};

use capability::{SKIP_LOG, VARIABLE};

/// Whether the operator declared a capability absent.
pub(crate) fn is_declared(needs: &str) -> Result<bool, String> {
    let needed = capability::named(needs)?;
    let absent = capability::declared(&env::var(VARIABLE).unwrap_or_default())?;
    Ok(absent.contains(&needed))
}

/// Whether the operator declared absent what a test needs: then the test returns at once, and the run counts it as
/// skipped. An unknown capability is an error, in the call and in the variable; so is a skip that cannot be
/// reported, since it would count as a pass.
pub(crate) fn skip(test: &str, needs: &str) -> Result<bool, String> {
    if !is_declared(needs)? {
        return Ok(false);
    }
    let needed = capability::named(needs)?;
    eprintln!(
        "SKIPPED {test}: declared absent: {} ({}), which {} tests need",
        needed.name, needed.meaning, needed.tests
    );
    if let Some(path) = env::var_os(SKIP_LOG) {
        // One write to a file opened for appending, so that tests at the same time do not mix their lines.
        let line = format!("{test} {needs}\n");
        let written = OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut log| log.write_all(line.as_bytes()));
        written.map_err(|e| format!("cannot report a skip in {}: {e}", path.display()))?;
    }
    Ok(true)
}
