//! What is emulated: the two architectures, and one run of a machine.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::workspace::show;

/// After so long a machine is ended. Many times what it needs on an idle host: it must only be less than what an operator
/// would wait.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// What coreutils' `timeout` answers when it ended the command.
const TIMED_OUT: i32 = 124;

/// Bytes of the disk on which a machine leaves its ledgers; a sparse file.
const DISK: u64 = 64 << 20;

/// An architecture that is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// x86-64.
    X86_64,
    /// arm64.
    Arm64,
}

impl Machine {
    /// Debian's name of the architecture.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Rust's name of the target.
    pub(crate) fn triple(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The C compiler's and the binary utilities' prefix.
    pub(crate) fn tool(self, name: &str) -> String {
        match self {
            Self::X86_64 => name.to_owned(),
            Self::Arm64 => format!("aarch64-linux-gnu-{name}"),
        }
    }

    /// Where this host has the C library of the architecture, best first.
    pub(crate) fn libraries(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["/lib/x86_64-linux-gnu", "/lib64"],
            Self::Arm64 => &["/usr/aarch64-linux-gnu/lib"],
        }
    }

    /// The path of the dynamic loader, as programs name it.
    pub(crate) fn loader(self) -> &'static str {
        match self {
            Self::X86_64 => "/lib64/ld-linux-x86-64.so.2",
            Self::Arm64 => "/lib/ld-linux-aarch64.so.1",
        }
    }

    /// The emulator, with what makes a machine of it.
    fn emulator(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::X86_64 => ("qemu-system-x86_64", &["-cpu", "max"]),
            Self::Arm64 => (
                "qemu-system-aarch64",
                // The architected pointer authentication costs half of the emulator's time.
                &["-machine", "virt", "-cpu", "max,pauth-impdef=on"],
            ),
        }
    }

    /// The serial port that the kernel writes to.
    fn console(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
            Self::Arm64 => "ttyAMA0",
        }
    }
}

/// What a machine left behind.
pub(crate) struct Left {
    /// Everything on its serial port.
    pub(crate) console: String,
    /// The file that was its disk, from its first byte an archive.
    pub(crate) disk: PathBuf,
    /// Why it did not end by itself, in a few words.
    pub(crate) ended_early: Option<String>,
    /// How long it ran.
    pub(crate) took: Duration,
}

/// Runs a machine to its end. `dir` gets the console and the disk.
pub(crate) fn run(machine: Machine, kernel: &Path, initramfs: &Path, dir: &Path) -> Result<Left> {
    let console = dir.join("console");
    let disk = dir.join("disk");
    fs::create_dir_all(dir)
        .and_then(|()| File::create(&disk)?.set_len(DISK))
        .with_context(|| format!("cannot make {}", disk.display()))?;
    let (emulator, shape) = machine.emulator();
    let mut command = Command::new("timeout");
    command
        .args(["--foreground", "--kill-after=5"])
        .arg(LIMIT.as_secs().to_string())
        .arg(emulator)
        .args(shape)
        // One thread for both processors. With one for each, a processor may still run an instruction that the other has
        // patched and told it of, which a kernel takes for a breakpoint of nobody's and panics.
        .args(["-accel", "tcg,thread=single", "-smp", "2", "-m", "2G"])
        .args(["-nodefaults", "-no-reboot", "-display", "none"])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .arg("-drive")
        .arg(format!(
            "if=none,id=disk,format=raw,file={}",
            disk.display()
        ))
        .args(["-device", "virtio-blk-pci,drive=disk"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .arg("-append")
        // A kernel that panics ends the emulator, since that does not reboot.
        .arg(format!(
            "console={} quiet panic=-1 oops=panic",
            machine.console()
        ))
        .stdin(Stdio::null());
    let started = Instant::now();
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", show(&command)))?;
    let ended_early = match output.status.code() {
        Some(0) => None,
        Some(TIMED_OUT) => Some(format!("it did not end in {} s", LIMIT.as_secs())),
        _ => Some(format!(
            "{emulator} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        )),
    };
    let text = fs::read(&console).with_context(|| format!("cannot read {}", console.display()))?;
    Ok(Left {
        console: String::from_utf8_lossy(&text).replace('\r', ""),
        disk,
        ended_early,
        took: started.elapsed(),
    })
}
