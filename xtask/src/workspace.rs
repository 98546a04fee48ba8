//! Where things are, and how the tasks run other programs.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// The workspace's directory. Known from compile time, since a task may be called from any directory.
pub(crate) fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// The directory of everything that the tasks build, wherever cargo's configuration puts other builds.
pub(crate) fn target() -> PathBuf {
    root().join("target")
}

/// The path of a release binary.
pub(crate) fn binary(name: &str) -> PathBuf {
    target().join("release").join(name)
}

/// The eBPF crate, which is a workspace of its own.
pub(crate) fn ebpf() -> PathBuf {
    root().join("capgate-ebpf")
}

/// The cargo that runs this task, in the workspace.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

/// Runs a command to its end; anything but success is an error that shows the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", show(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", show(command));
    }
    Ok(())
}

/// What a command prints that succeeds. What else it says is shown only when it fails.
pub(crate) fn said(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", show(command)))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}:\n{}",
            show(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as a person would type it.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The path of a program that `PATH` or cargo's own directory holds.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".cargo")));
    env::split_paths(&path)
        // Administrators' programs, which a plain user's PATH may lack.
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .chain(cargo_home.map(|home| home.join("bin")))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}
