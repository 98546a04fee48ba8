//! What the machine that emulates others needs.

use anyhow::{Result, bail};

use super::{machine::Machine, suite};
use crate::packages::{self, Package};

/// What every emulated machine is made with.
const PACKAGES: [Package; 6] = [
    Package {
        name: "cpio",
        provides: "cpio",
        why: "packs the file system with which a machine boots",
    },
    Package {
        name: "gcc",
        provides: "gcc",
        why: "compiles the programs that scenarios run",
    },
    Package {
        name: "kmod",
        provides: "depmod",
        why: "tells which modules a kernel module needs",
    },
    Package {
        name: "libc6-dev",
        provides: "/usr/include/stdio.h",
        why: "the C library's headers",
    },
    Package {
        name: "qemu-system-x86",
        provides: "qemu-system-x86_64",
        why: "emulates x86-64",
    },
    Package {
        name: "xz-utils",
        provides: "xz",
        why: "unpacks kernel modules",
    },
];

/// What 32-bit programs for x86 are compiled with. Not gcc-multilib, which cannot be installed beside a cross compiler.
const PACKAGES_IA32: [Package; 1] = [Package {
    name: "gcc-12-multilib",
    provides: "/usr/lib32/libc.a",
    why: "compiles 32-bit test programs",
}];

/// What emulated arm64 needs beside that.
const PACKAGES_ARM64: [Package; 3] = [
    Package {
        name: "gcc-aarch64-linux-gnu",
        provides: "aarch64-linux-gnu-gcc",
        why: "compiles and links for arm64; takes the place of gcc-multilib",
    },
    Package {
        name: "libc6-dev-arm64-cross",
        provides: "/usr/aarch64-linux-gnu/lib/libc.a",
        why: "the C library for arm64",
    },
    Package {
        name: "qemu-system-arm",
        provides: "qemu-system-aarch64",
        why: "emulates arm64",
    },
];

/// The library for arm64 of Debian's Rust compiler, where the one in use has none.
const PACKAGES_ARM64_RUST: [Package; 1] = [Package {
    name: "libstd-rust-web-dev:arm64",
    provides: "/usr/lib/rustlib/aarch64-unknown-linux-gnu/lib",
    why: "Rust's library for arm64",
}];

/// Installs what 32-bit test programs are compiled with.
pub(crate) fn install_ia32() -> Result<()> {
    packages::ensure(&PACKAGES_IA32)
}

/// Installs what the machines of an architecture are made with.
pub(crate) fn install(machine: Machine) -> Result<()> {
    if cfg!(not(target_arch = "x86_64")) {
        bail!("emulated cells are built on x86-64; `cargo xtask vm native` runs here");
    }
    packages::ensure(&PACKAGES)?;
    match machine {
        Machine::X86_64 => install_ia32(),
        Machine::Arm64 => {
            packages::ensure_architecture(machine.debian())?;
            packages::ensure(&PACKAGES_ARM64)?;
            match suite::compiler_for(machine.triple()) {
                Ok(_) => Ok(()),
                Err(_) => packages::ensure(&PACKAGES_ARM64_RUST),
            }
        }
    }
}
