//! `cargo xtask build`: the two binaries, and before them the tools for the eBPF object.

use anyhow::{Result, bail};

use crate::{
    packages,
    toolchain::{DEBIAN_PACKAGES, LINKER_VERSION, Toolchain},
    workspace::{self, binary},
};

/// What the release consists of.
pub(crate) const BINARIES: [&str; 2] = ["capgate", "capgated"];

/// Builds `target/release/capgate` and `target/release/capgated`, which holds the eBPF object.
pub(crate) fn binaries() -> Result<()> {
    ensure_toolchain()?;
    let mut cargo = workspace::cargo([
        "build",
        "--release",
        "--package",
        "capgate-cli",
        "--package",
        "capgate-daemon",
    ]);
    cargo.arg("--target-dir").arg(workspace::target());
    // The first build takes minutes and shows how far it is; a later one has nothing to say.
    if BINARIES.iter().all(|name| binary(name).exists()) {
        cargo.arg("--quiet");
    }
    workspace::run(&mut cargo)
}

/// Finds the tools for the eBPF object, and installs them where it is known how to.
pub(crate) fn ensure_toolchain() -> Result<Toolchain> {
    let missing = match Toolchain::find() {
        Ok(toolchain) => return Ok(toolchain),
        Err(missing) if !packages::is_debian_12() => bail!("{missing}"),
        Err(missing) => missing,
    };
    if missing.compiler {
        eprintln!(
            "xtask: installing {}: the compiler of the eBPF object",
            DEBIAN_PACKAGES.join(" ")
        );
        packages::apt_install(&DEBIAN_PACKAGES)?;
    }
    if missing.linker {
        eprintln!("xtask: installing bpf-linker {LINKER_VERSION}: the linker of the eBPF object");
        packages::cargo_install("bpf-linker", LINKER_VERSION)?;
    }
    match Toolchain::find() {
        Ok(toolchain) => Ok(toolchain),
        Err(missing) => bail!("{missing}"),
    }
}
