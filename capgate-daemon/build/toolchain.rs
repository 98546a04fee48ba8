//! Finds what builds the eBPF object: a Rust compiler with the source of its library, bpf-linker, and the
//! LLVM that bpf-linker loads at run time.
//!
//! The build script and `cargo xtask` both include this file, so they cannot disagree about what is missing.
//! The facts behind it: the BPF target ships without a compiled `core`, so `core` is built from source
//! (`-Z build-std`), and bpf-linker reads the compiler's bitcode, so its LLVM must not be older.

use std::{
    env,
    ffi::OsString,
    fmt, fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// The LLVM release that bpf-linker 0.10 is made for. A compiler with a newer one writes bitcode that the linker cannot read.
const LLVM_MAJOR: &str = "22";

/// The series of bpf-linker that loads LLVM at run time; later ones are built against one particular LLVM.
const LINKER_SERIES: &str = "0.10.";

/// The release of bpf-linker that `cargo xtask build` installs and the messages name.
pub(crate) const LINKER_VERSION: &str = "0.10.3";

/// A nightly that has [`LLVM_MAJOR`], named in the message for machines without Debian's packages.
const NIGHTLY: &str = "nightly-2026-05-20";

/// What Debian 12 calls the compiler, its cargo and the source of its library. They share one version.
pub(crate) const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// Where a distribution's own compiler lives.
const DISTRIBUTION_PREFIX: &str = "/usr";

/// The target of the eBPF object: little endian, as every machine that capgate supports. Products are below a
/// directory of this name.
pub(crate) const TARGET: &str = "bpfel-unknown-none";

/// Variables of the outer cargo that the inner one keeps: where its caches are, how it reaches the registry, its
/// share of the job server. All other `CARGO*` and `RUST*` variables describe the host's build and would change the object's.
const KEPT: [&str; 7] = [
    "CARGO_HOME",
    "CARGO_HTTP_",
    "CARGO_MAKEFLAGS",
    "CARGO_NET_",
    "CARGO_REGISTR",
    "CARGO_TERM_",
    "RUST_BACKTRACE",
];

/// A complete set of tools, each present on this machine.
pub(crate) struct Toolchain {
    /// The directory above the compiler's `bin` and `lib`.
    prefix: PathBuf,
    /// The path of bpf-linker.
    linker: PathBuf,
    /// The shared object of LLVM, of release [`LLVM_MAJOR`].
    llvm: PathBuf,
}

/// What is not on this machine. Its text is one sentence that says what to install.
#[derive(Debug)]
pub(crate) struct Missing {
    /// No compiler with the library's source and the right LLVM.
    pub(crate) compiler: bool,
    /// No bpf-linker of the right series.
    pub(crate) linker: bool,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the eBPF object cannot be built here: ")?;
        if self.compiler {
            write!(
                f,
                "install a Rust compiler of LLVM {LLVM_MAJOR} with its library's source \
                 (`rustup toolchain install {NIGHTLY} --component rust-src`, or on Debian 12, \
                 with its security suite, `apt-get install --no-install-recommends {}`)",
                DEBIAN_PACKAGES.join(" ")
            )?;
        }
        if self.compiler && self.linker {
            write!(f, " and ")?;
        }
        if self.linker {
            write!(
                f,
                "install bpf-linker {LINKER_SERIES}x (`cargo install bpf-linker --version {LINKER_VERSION} --locked`)"
            )?;
        }
        Ok(())
    }
}

impl Toolchain {
    /// Looks for the tools: rustup's toolchains, nightlies first, then the distribution's compiler; bpf-linker in
    /// `PATH` and in cargo's own directory.
    pub(crate) fn find() -> Result<Self, Missing> {
        let compiler = prefixes()
            .into_iter()
            .find_map(|prefix| llvm_of(&prefix).map(|llvm| (prefix, llvm)));
        match (compiler, find_linker()) {
            (Some((prefix, llvm)), Some(linker)) => Ok(Self {
                prefix,
                linker,
                llvm,
            }),
            (compiler, linker) => Err(Missing {
                compiler: compiler.is_none(),
                linker: linker.is_none(),
            }),
        }
    }

    /// A cargo of this toolchain that works on the crate in `source` for a kernel of `arch`, with its products below
    /// `target_dir`. `subcommand` is `build`, or one that is a program of its own beside cargo, such as `clippy`.
    pub(crate) fn cargo(
        &self,
        subcommand: &str,
        source: &Path,
        arch: &str,
        target_dir: &Path,
    ) -> io::Result<Command> {
        let bin = self.prefix.join("bin");
        let own = bin.join(format!("cargo-{subcommand}"));
        let cargo = bin.join("cargo");
        let mut command = Command::new(if own.exists() { &own } else { &cargo });
        for (name, _) in env::vars_os() {
            if is_of_outer_build(&name) {
                command.env_remove(name);
            }
        }
        let flags = [
            format!("--cfg=bpf_target_arch=\"{arch}\""),
            // Both by flag, not by profile: without func_info programs that call bpf_loop do not load.
            "-Cdebuginfo=2".into(),
            "-Clink-arg=--btf".into(),
            format!("-Clinker={}", self.linker.display()),
        ];
        command
            .env("CARGO", &cargo)
            .env("RUSTC", bin.join("rustc"))
            // A wrapper that the user configured for host builds would otherwise still apply.
            .env("RUSTC_WRAPPER", "")
            // `-Z build-std` on a compiler that is not a nightly.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
            .env("LD_LIBRARY_PATH", self.llvm_alone_in(target_dir)?)
            .current_dir(source)
            .args([
                subcommand,
                "--locked",
                "-Z",
                "build-std=core",
                "--release",
                "--target",
                TARGET,
                "--target-dir",
            ])
            .arg(target_dir);
        Ok(command)
    }

    /// A directory in which LLVM is the only library. bpf-linker loads the first `libLLVM*` that a directory
    /// lists, and a distribution's library directory may hold several releases.
    fn llvm_alone_in(&self, target_dir: &Path) -> io::Result<PathBuf> {
        let dir = target_dir.join("llvm");
        let name = self
            .llvm
            .file_name()
            .ok_or_else(|| io::Error::other("LLVM's path has no file name"))?;
        let link = dir.join(name);
        if fs::read_link(&link).is_ok_and(|target| target == self.llvm) {
            return Ok(dir);
        }
        match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        fs::create_dir_all(&dir)?;
        symlink(&self.llvm, &link)?;
        Ok(dir)
    }
}

/// Whether the outer cargo, or rustup's proxy around it, set this variable for its own build.
fn is_of_outer_build(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    let ours = ["CARGO", "RUST", "__CARGO", "CLIPPY_"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    ours && !KEPT.iter().any(|prefix| name.starts_with(prefix))
}

/// The installation directories that may hold a compiler, best first.
fn prefixes() -> Vec<PathBuf> {
    let rustup = env::var_os("RUSTUP_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".rustup")));
    let mut found: Vec<PathBuf> = rustup
        .and_then(|home| fs::read_dir(home.join("toolchains")).ok())
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    let is_nightly = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("nightly"))
    };
    // By name within each half, so that one machine always answers the same.
    found.sort_by_key(|path| (!is_nightly(path), path.clone()));
    found.push(DISTRIBUTION_PREFIX.into());
    found
}

/// The LLVM for the compiler at `prefix`, or nothing when that compiler cannot build `core` for BPF.
fn llvm_of(prefix: &Path) -> Option<PathBuf> {
    let bin = prefix.join("bin");
    if !bin.join("cargo").exists()
        || !prefix
            .join("lib/rustlib/src/rust/library/Cargo.lock")
            .exists()
    {
        return None;
    }
    let version = first_output(Command::new(bin.join("rustc")).arg("-vV"))?;
    let of_rustc = |key: &str| {
        version
            .lines()
            .find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()))
    };
    if of_rustc("LLVM version:")?.split('.').next()? != LLVM_MAJOR {
        return None;
    }
    let arch = of_rustc("host:")?.split('-').next()?.to_owned();
    [
        prefix.join("lib"),
        // Debian's multiarch directory; the triple of Debian lacks rustc's vendor part.
        prefix.join(format!("lib/{arch}-linux-gnu")),
        prefix.join("lib64"),
        prefix.join(format!("lib/llvm-{LLVM_MAJOR}/lib")),
    ]
    .iter()
    .find_map(|dir| find_llvm(dir))
}

/// The shared object of LLVM in `dir`. A rustup toolchain also has a linker script with a similar name, which ends in `.so`.
fn find_llvm(dir: &Path) -> Option<PathBuf> {
    let wanted = format!("libLLVM.so.{LLVM_MAJOR}");
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&wanted))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.into_iter().next()
}

/// bpf-linker of the right series, in `PATH` or where `cargo install` puts it.
fn find_linker() -> Option<PathBuf> {
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".cargo")));
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(cargo_home.map(|home| home.join("bin")))
        .map(|dir| dir.join("bpf-linker"))
        .find(|linker| {
            first_output(Command::new(linker).arg("--version")).is_some_and(|version| {
                version
                    .split_whitespace()
                    .any(|word| word.starts_with(LINKER_SERIES))
            })
        })
}

/// What a command that succeeds prints.
fn first_output(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}
