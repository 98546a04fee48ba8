//! Small programs that do what no shell does, compiled for a test.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::service::succeed;

/// Where the sources are: those of these tests, and those of the scenarios.
const SOURCES: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/acceptance/programs"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios/programs"),
];
/// Where what they include is.
const SUPPORT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support");

/// Programs that are there until this goes.
pub(crate) struct Programs(tempfile::TempDir);

impl Programs {
    pub(crate) fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), everybody).unwrap();
        Self(dir)
    }

    /// Compiles `NAME.c`.
    pub(crate) fn build(&self, name: &str) -> String {
        self.build_with(name, &[])
    }

    /// Compiles `NAME.c` with further flags.
    pub(crate) fn build_with(&self, name: &str, flags: &[&str]) -> String {
        let program: PathBuf = self.0.path().join(name);
        let sources = SOURCES.map(|directory| Path::new(directory).join(format!("{name}.c")));
        let source = sources.iter().find(|source| source.exists());
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .args(["-I", SUPPORT, "-o"])
            .arg(&program)
            .args(flags)
            .arg(source.unwrap_or_else(|| panic!("no program is called {name}")));
        succeed(&mut gcc);
        program.to_str().unwrap().to_owned()
    }
}
