//! `refuse_shims`: a directory of programs that refuse, first on the job's `PATH`.
//!
//! They are a courtesy to the tests of a job: a clear sentence and a status of their own. The alarm is the record of what was
//! executed, which another program of that name does not hide.

use std::{
    fs::{self, Permissions},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::Path,
};

use anyhow::Context as _;
use capgate_common::{pathform, refuse::Refusal};

use crate::{private::PrivateDirectory, shown::shown};

/// What they exit with.
const STATUS: u8 = 97;
/// Readable and executable for all, writable for nobody.
const MODE: u32 = 0o555;

/// The directory, as long as the job lasts.
pub(crate) struct Shims(PrivateDirectory);

impl Shims {
    /// Writes a program for each one that is refused by its name.
    ///
    /// # Errors
    /// When there is no place for them.
    pub(crate) fn make(refusals: &[Refusal]) -> anyhow::Result<Self> {
        let directory = PrivateDirectory::create()?;
        for name in refusals.iter().filter_map(Refusal::program_name) {
            let path = directory.path().join(name);
            write(&path, name).with_context(|| {
                format!("cannot write the program that refuses, {}", shown(&path))
            })?;
        }
        let path = directory.path();
        fs::set_permissions(path, Permissions::from_mode(MODE))
            .with_context(|| format!("cannot open {} for the job", shown(path)))?;
        Ok(Self(directory))
    }

    /// Where they are, escaped.
    pub(crate) fn escaped(&self) -> String {
        pathform::escape(self.0.path().as_os_str().as_bytes())
    }
}

fn write(path: &Path, name: &str) -> std::io::Result<()> {
    // In single quotes a shell takes everything as it stands, but for the quote itself.
    let name = name.replace('\'', r"'\''");
    let text = format!(
        "#!/bin/sh\nprintf '%s\\n' 'capgate: {name} is refused by the contract' >&2\nexit {STATUS}\n"
    );
    fs::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(MODE))
}
