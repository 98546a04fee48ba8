//! `cargo xtask lint`: what can be judged without running anything.

use anyhow::{Context, Result};

use crate::{
    build,
    packages::{self, Package},
    toolchain::Toolchain,
    workspace,
};

/// The release of cargo-deny whose configuration format `deny.toml` has.
const DENY_VERSION: &str = "0.19.0";

/// Debian's linter of the same version as the compiler of the eBPF object.
const DEBIAN_CLIPPY: Package = Package {
    name: "rust-web-clippy",
    provides: "/usr/bin/cargo-clippy",
    why: "lints the eBPF crate",
};

/// Checks format, clippy and dependencies, of the host's workspace and of the eBPF crate.
pub(crate) fn all() -> Result<()> {
    let toolchain = build::ensure_toolchain()?;
    formatting()?;
    host_clippy()?;
    ebpf_clippy(&toolchain)?;
    dependencies()
}

/// rustfmt on both workspaces.
fn formatting() -> Result<()> {
    workspace::run(&mut workspace::cargo(["fmt", "--all", "--check"]))?;
    workspace::run(workspace::cargo(["fmt", "--check"]).current_dir(workspace::ebpf()))
}

/// clippy on everything that runs on the host.
fn host_clippy() -> Result<()> {
    workspace::run(&mut workspace::cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))
}

/// clippy on the probes, with their own compiler and target: one call cannot lint for both.
fn ebpf_clippy(toolchain: &Toolchain) -> Result<()> {
    let target_dir = workspace::target().join("capgate-ebpf");
    let prepare = || {
        toolchain
            .cargo(
                "clippy",
                &workspace::ebpf(),
                std::env::consts::ARCH,
                &target_dir,
            )
            .with_context(|| format!("cannot prepare {}", target_dir.display()))
    };
    let mut clippy = prepare()?;
    if clippy.get_program() == "/usr/bin/cargo" && packages::is_debian_12() {
        packages::ensure(&[DEBIAN_CLIPPY])?;
        clippy = prepare()?;
    }
    workspace::run(clippy.args(["--quiet", "--", "-D", "warnings"]))
        .context("the eBPF crate's compiler needs a clippy beside it, and it must find nothing")
}

/// cargo-deny on both lock files. Advisories are left to a service that watches them: their database is not part of a clone.
fn dependencies() -> Result<()> {
    if workspace::which("cargo-deny").is_none() {
        eprintln!(
            "xtask: installing cargo-deny {DENY_VERSION}: checks licences, bans and sources of dependencies"
        );
        packages::cargo_install("cargo-deny", DENY_VERSION)?;
    }
    for dir in [workspace::root().to_owned(), workspace::ebpf()] {
        let mut deny = workspace::cargo(["deny", "--log-level", "error", "check", "--config"]);
        deny.arg(workspace::root().join("deny.toml"))
            .args(["licenses", "bans", "sources"]);
        workspace::run(deny.current_dir(dir))?;
    }
    Ok(())
}
