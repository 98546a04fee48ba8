//! A directory of this process's own, which lasts as long as it is needed.

use std::{
    ffi::OsString,
    fs::{self, Permissions},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use nix::unistd;

use crate::shown::shown;

/// Longest path of a unix socket (`sun_path`, un.h), the closing NUL included.
const SOCKET_PATH_MAX: usize = 108;

/// A directory that only this user reaches, removed at the end with all that is in it.
pub(crate) struct PrivateDirectory {
    path: PathBuf,
}

impl PrivateDirectory {
    /// Makes one, with a path that is short enough for a socket in it.
    ///
    /// # Errors
    /// When there is no place for it.
    pub(crate) fn create() -> anyhow::Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let usable = runtime.filter(|it| it.is_absolute() && it.is_dir() && fits(it));
        let above = usable.unwrap_or_else(|| PathBuf::from("/tmp"));
        let mut template = OsString::from(above.join("capgate-"));
        template.push("XXXXXX");
        let path = unistd::mkdtemp(template.as_os_str())
            .with_context(|| format!("cannot create a directory in {}", shown(&above)))?;
        Ok(Self { path })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether a socket's path below this directory is short enough.
fn fits(above: &Path) -> bool {
    above.as_os_str().as_bytes().len() + "/capgate-XXXXXX/sock".len() < SOCKET_PATH_MAX
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // It may have been made read-only.
        let _ = fs::set_permissions(&self.path, Permissions::from_mode(0o700));
        // What a daemon made in it that daemon has removed. Names are removed one by one: nothing here follows a link.
        let _ = fs::remove_dir_all(&self.path);
    }
}
