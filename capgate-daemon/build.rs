//! Builds the eBPF objects and leaves them in `$OUT_DIR` for the daemon to embed.

#[path = "build/toolchain.rs"]
mod toolchain;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use toolchain::Toolchain;

/// The eBPF crate's directory.
const CRATE: &str = "capgate-ebpf";
/// Its binaries, one for each probe set.
const OBJECTS: [&str; 2] = ["tracepoint", "fentry"];

/// What the object knows registers and system call numbers of: the modules below `capgate-ebpf/src/arch`.
const ARCHITECTURES: [&str; 2] = ["aarch64", "x86_64"];

/// Everything that the objects are made of, relative to the workspace. The workspace's manifest is read for what
/// capgate-common inherits from it.
const SOURCES: [&str; 8] = [
    "Cargo.toml",
    "capgate-common/Cargo.toml",
    "capgate-common/src",
    "capgate-daemon/build.rs",
    "capgate-daemon/build/toolchain.rs",
    "capgate-ebpf/Cargo.lock",
    "capgate-ebpf/Cargo.toml",
    "capgate-ebpf/src",
];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            // Cargo prints this line by itself and fails the build; the exit status would add the whole log to it.
            println!("cargo::error={sentence}");
            ExitCode::SUCCESS
        }
    }
}

/// Builds the objects and copies them; an error is a sentence for the user.
fn build() -> Result<(), String> {
    let workspace = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("..");
    for source in SOURCES {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(source).display()
        );
    }
    let arch = variable("CARGO_CFG_TARGET_ARCH")?;
    if !ARCHITECTURES.contains(&arch.as_str()) {
        return Err(format!(
            "capgated records on {} only, not on {arch}",
            ARCHITECTURES.join(" and ")
        ));
    }
    let toolchain = Toolchain::find().map_err(|missing| missing.to_string())?;
    let out_dir = PathBuf::from(variable("OUT_DIR")?);
    let target_dir = shared_target_dir(&out_dir)?;
    let cargo = toolchain
        .cargo("build", &workspace.join(CRATE), &arch, &target_dir)
        .map_err(|e| format!("cannot prepare {}: {e}", target_dir.display()))?;
    run(cargo)?;
    let products = target_dir.join(toolchain::TARGET).join("release");
    for object in OBJECTS {
        let (product, copy) = (products.join(object), out_dir.join(object));
        fs::copy(&product, &copy).map_err(|e| {
            format!(
                "cannot copy {} to {}: {e}",
                product.display(),
                copy.display()
            )
        })?;
    }
    Ok(())
}

/// A directory for the inner cargo that all profiles of the outer one share, so that `core` is compiled once. The
/// outer cargo's own directory would not do: it holds a lock on it while this runs.
fn shared_target_dir(out_dir: &Path) -> Result<PathBuf, String> {
    // <target>/<profile>/build/<package>/out
    let target = out_dir
        .ancestors()
        .nth(4)
        .ok_or_else(|| format!("{} is not a build script's OUT_DIR", out_dir.display()))?;
    Ok(target.join(CRATE))
}

/// Runs the inner cargo, whose talk becomes the outer one's only when it fails.
fn run(mut cargo: Command) -> Result<(), String> {
    let output = cargo
        .output()
        .map_err(|e| format!("cannot run {}: {e}", cargo.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "the eBPF objects did not build:\n{}",
        String::from_utf8_lossy(&output.stderr)
    )
    .replace('\n', "\ncargo::error="))
}

/// A variable that cargo sets for build scripts.
fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|e| format!("{name}: {e}"))
}
