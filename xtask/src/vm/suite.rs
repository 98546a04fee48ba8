//! What runs in a machine: the scenario suite, the binaries under test, and the programs that scenarios run.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{initramfs::install, machine::Machine};
use crate::{
    build::{self, BINARIES},
    workspace,
};

/// The test target that is the suite.
const SUITE: &str = "scenarios";

/// What makes cargo build it. With the features that dependencies have when the whole workspace is tested, so that they are not
/// built once more.
const SELECTION: [&str; 3] = ["--workspace", "--test", SUITE];

/// How the C programs are compiled. Static, so that they run in any root.
const C_FLAGS: [&str; 4] = ["-static", "-O1", "-pthread", "-Itests/support"];

/// And those for 32-bit x86. Debian's compiler does not look for the kernel's headers in the multiarch directory.
const C_FLAGS_IA32: [&str; 3] = ["-m32", "-idirafter", "/usr/include/x86_64-linux-gnu"];

/// The suite for one architecture.
pub(crate) struct Suite {
    /// The suite's executable.
    scenarios: PathBuf,
    /// `capgate` and `capgated`.
    binaries: Vec<PathBuf>,
    /// The compiled C programs.
    programs: PathBuf,
}

impl Suite {
    /// Builds everything for an architecture.
    pub(crate) fn build(machine: Machine) -> Result<Self> {
        eprintln!("xtask: building the scenarios for {}", machine.triple());
        let (scenarios, binaries) = match machine {
            Machine::X86_64 => {
                build::binaries()?;
                let mut cargo = workspace::cargo(["test", "--no-run"]);
                let binaries = BINARIES.iter().map(|name| workspace::binary(name));
                (executable(&mut cargo)?, binaries.collect())
            }
            Machine::Arm64 => cross(machine)?,
        };
        let programs = super::directory().join("programs").join(machine.debian());
        compile(machine, &programs)?;
        Ok(Self {
            scenarios,
            binaries,
            programs,
        })
    }

    /// Puts it into a machine's file system, without what only a debugger needs.
    pub(crate) fn install(&self, machine: Machine, into: &Path) -> Result<()> {
        let strip = |from: &Path, name: &str| {
            let mut strip = Command::new(machine.tool("strip"));
            strip.arg("-o").arg(into.join(name)).arg(from);
            workspace::said(&mut strip).map(drop)
        };
        fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
        strip(&self.scenarios, SUITE)?;
        for (binary, name) in self.binaries.iter().zip(BINARIES) {
            strip(binary, name)?;
        }
        for program in files_in(&self.programs)? {
            let name = program.file_name().unwrap_or_default();
            install(&program, &into.join("programs").join(name), 0o755)?;
        }
        Ok(())
    }
}

/// The command that runs the suite on this machine, with the binaries that emulated ones get.
pub(crate) fn here() -> Result<Command> {
    build::binaries()?;
    let mut cargo = workspace::cargo(["test"]);
    cargo
        .args(SELECTION)
        .env("CAPGATE_SCENARIO_BIN", workspace::target().join("release"));
    Ok(cargo)
}

/// The suite's executable and the binaries for another architecture, in a directory of their own: another compiler would
/// disturb the host's builds.
fn cross(machine: Machine) -> Result<(PathBuf, Vec<PathBuf>)> {
    let triple = machine.triple();
    let target = super::directory().join("build");
    let prefix = compiler_for(triple)?;
    let linker = format!(
        "CARGO_TARGET_{}_LINKER",
        triple.to_uppercase().replace('-', "_")
    );
    let mut cargo = Command::new(prefix.join("bin/cargo"));
    cargo
        .current_dir(workspace::root())
        .env("RUSTC", prefix.join("bin/rustc"))
        .env(linker, machine.tool("gcc"))
        // Of the cargo that runs this task.
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        // All in one call: dependencies have the features of everything that is built with them.
        .args(["build", "--bin=capgate", "--bin=capgated", "--profile=vm"])
        .arg(format!("--target={triple}"))
        .arg("--target-dir")
        .arg(&target);
    let scenarios = executable(&mut cargo)?;
    let products = target.join(triple).join("vm");
    Ok((
        scenarios,
        BINARIES.iter().map(|name| products.join(name)).collect(),
    ))
}

/// The installation of a compiler that has the library for a target: the one in use, else the distribution's.
pub(crate) fn compiler_for(triple: &str) -> Result<PathBuf> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let used = workspace::said(Command::new(rustc).args(["--print", "sysroot"]))?;
    let found = [used.trim_end(), "/usr"]
        .map(PathBuf::from)
        .into_iter()
        .find(|prefix| prefix.join("lib/rustlib").join(triple).join("lib").exists());
    found.with_context(|| {
        format!("no Rust compiler here has a library for {triple}: `rustup target add {triple}`")
    })
}

/// Lets cargo build the suite and say where it is.
fn executable(cargo: &mut Command) -> Result<PathBuf> {
    cargo
        .args(["--quiet", "--message-format=json"])
        .args(SELECTION);
    let messages = workspace::said(cargo)?;
    let Some(path) = executable_in(&messages) else {
        bail!("{} names no executable", workspace::show(cargo));
    };
    Ok(path)
}

/// The suite's executable among cargo's messages, of which each is a line of JSON.
fn executable_in(messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_suite = message.pointer("/target/name")? == SUITE;
        let path = message.get("executable")?.as_str()?;
        is_suite.then(|| path.into())
    })
}

/// Compiles every C program of the scenarios; one that is called `NAME.ia32.c` for 32-bit x86.
fn compile(machine: Machine, into: &Path) -> Result<()> {
    let package = workspace::root().join("capgate-cli");
    if into.exists() {
        fs::remove_dir_all(into).with_context(|| format!("cannot clear {}", into.display()))?;
    }
    fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    for source in files_in(&package.join("tests").join(SUITE).join("programs"))? {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let Some(stem) = name.strip_suffix(".c") else {
            continue;
        };
        let mut gcc = Command::new(machine.tool("gcc"));
        gcc.current_dir(&package).args(C_FLAGS);
        if stem.ends_with(".ia32") {
            if machine != Machine::X86_64 {
                continue;
            }
            gcc.args(C_FLAGS_IA32);
        }
        workspace::said(gcc.arg("-o").arg(into.join(stem)).arg(&source))?;
    }
    Ok(())
}

/// The files of a directory.
fn files_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_file()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_is_the_executable_of_its_target() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"capgate"},"executable":"/t/capgate"}
{"reason":"compiler-artifact","target":{"name":"scenarios"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"scenarios"},"executable":"/t/deps/scenarios-1"}
{"reason":"build-finished","success":true}"#;
        let found = executable_in(messages);
        assert_eq!(found, Some("/t/deps/scenarios-1".into()));
        assert_eq!(executable_in("{\"reason\":\"build-finished\"}"), None);
    }
}
