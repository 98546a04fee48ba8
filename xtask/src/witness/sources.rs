//! Fetches a suite's project and what its tests need, once, and checks the archive's digest.

use std::{
    env::consts::ARCH,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::suites::{Source, Suite, Wheel};
use crate::{packages::SYSTEM_PYTHON, workspace};

/// Debian's compiler, which every user can run.
pub(crate) const CARGO: &str = "/usr/bin/cargo";
pub(crate) const RUSTC: &str = "/usr/bin/rustc";

/// What was fetched.
pub(crate) struct Kept(PathBuf);

impl Kept {
    /// The unpacked project.
    pub(crate) fn source(&self) -> PathBuf {
        self.0.join("source")
    }

    /// Packages that the tests import.
    pub(crate) fn site(&self) -> PathBuf {
        self.0.join("site")
    }

    /// What the tests need in their user's home.
    pub(crate) fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    /// Fetches what is not there from an earlier call.
    pub(crate) fn of(suite: &Suite) -> Result<Self> {
        let above = workspace::target().join("witness");
        let dir = above.join(format!("{}-{}", suite.name, suite.version));
        if !dir.exists() {
            eprintln!(
                "xtask: fetching {} {} and what its tests need",
                suite.name, suite.version
            );
            fs::create_dir_all(&above)
                .with_context(|| format!("cannot make {}", above.display()))?;
            // Whole or not at all: what an interrupted fetch left is no suite.
            let fresh =
                tempfile::tempdir_in(&above).context("cannot make a directory to fetch into")?;
            let kept = Self(fresh.path().to_owned());
            for dir in [kept.source(), kept.site(), kept.home()] {
                fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            }
            kept.fetch(suite)
                .with_context(|| format!("cannot fetch {}", suite.name))?;
            fs::rename(fresh.keep(), &dir)
                .with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(Self(dir))
    }

    fn fetch(&self, suite: &Suite) -> Result<()> {
        match &suite.source {
            Source::Python { needs, installed } => self.fetch_python(suite, needs, *installed),
            Source::Crate => {
                self.fetch_crate(suite, "")?;
                // Only what this machine compiles.
                let target = format!("{ARCH}-unknown-linux-gnu");
                self.cargo(
                    &self.source(),
                    &["fetch", "--quiet", "--locked", "--target", &target],
                )
            }
            Source::InCrate(below) => {
                self.fetch_crate(suite, below)?;
                let home = self.home();
                fs::remove_dir_all(&home)
                    .and_then(|()| fs::create_dir(&home))
                    .context("cannot empty the home")
            }
            Source::Node { needs, before } => self.fetch_node(suite, needs, before),
        }
    }

    fn fetch_python(&self, suite: &Suite, needs: &[&[Wheel]], installed: bool) -> Result<()> {
        let Suite {
            name,
            version,
            sha256,
            ..
        } = suite;
        let list = format!("{name}=={version} --hash=sha256:{sha256}\n");
        self.pip(&list, &["download", "--no-deps", "--no-binary", name])?;
        let archive = self.archive(&self.0, &format!("{name}-{version}.tar.gz"))?;
        self.unpack(suite, &archive, "")?;
        let mut list = String::new();
        for wheel in needs.iter().copied().flatten() {
            list.push_str(wheel.requirement);
            for sha256 in wheel.sha256 {
                // Writing to a String cannot fail.
                let _ = write!(list, " --hash=sha256:{sha256}");
            }
            list.push('\n');
        }
        self.pip(
            &list,
            &[
                "install",
                "--no-deps",
                "--only-binary=:all:",
                "--target=site",
            ],
        )?;
        if installed {
            let list = format!("./{name}-{version}.tar.gz --hash=sha256:{sha256}\n");
            self.pip(&list, &["install", "--no-deps", "--target=site"])?;
        }
        Ok(())
    }

    /// pip with a list of requirements, of which each has a digest.
    fn pip(&self, list: &str, arguments: &[&str]) -> Result<()> {
        let file = self.0.join("requirements.txt");
        fs::write(&file, list).with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = Command::new(SYSTEM_PYTHON);
        command
            .args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
            .args(arguments)
            .args(["--require-hashes", "--requirement", "requirements.txt"])
            .env("PIP_ROOT_USER_ACTION", "ignore");
        self.run(&self.0, &mut command)
    }

    /// A crate, by cargo: as what a package without code depends on. Its archive stays in cargo's home.
    fn fetch_crate(&self, suite: &Suite, below: &str) -> Result<()> {
        let Suite { name, version, .. } = suite;
        let asking = self.0.join("asking");
        let manifest = format!(
            "[package]\nname = \"asking\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[lib]\npath = \"none.rs\"\n\n\
             [dependencies]\n{name} = \"={}\"\n\n[workspace]\n",
            version.split('+').next().unwrap_or(version)
        );
        fs::create_dir(&asking)
            .and_then(|()| fs::write(asking.join("Cargo.toml"), manifest))
            .and_then(|()| fs::write(asking.join("none.rs"), ""))
            .context("cannot make a package to fetch for")?;
        self.cargo(&asking, &["fetch", "--quiet"])?;
        let caches = self.home().join(".cargo/registry/cache");
        let mut caches =
            fs::read_dir(&caches).with_context(|| format!("cannot list {}", caches.display()))?;
        let cache = caches.next().context("cargo kept no archive")??.path();
        let archive = self.archive(&cache, &format!("{name}-{version}.crate"))?;
        self.unpack(suite, &archive, below)
    }

    /// Debian's cargo with its own home in the one that the job will have.
    fn cargo(&self, dir: &Path, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(CARGO);
        command
            .args(arguments)
            .env("CARGO_HOME", self.home().join(".cargo"))
            .env("RUSTC", RUSTC)
            .env_remove("RUSTUP_TOOLCHAIN");
        self.run(dir, &mut command)
    }

    fn fetch_node(&self, suite: &Suite, needs: &[&str], before: &str) -> Result<()> {
        let Suite { name, version, .. } = suite;
        let package = format!("{name}@{version}");
        let mut pack = Command::new("npm");
        pack.args(["pack", "--silent", "--cache", "cache", &package]);
        self.run(&self.0, &mut pack)?;
        let archive = self.archive(&self.0, &format!("{name}-{version}.tgz"))?;
        self.unpack(suite, &archive, "")?;
        let mut install = Command::new("npm");
        install
            .args([
                "install", "--silent", "--cache", "cache", "--prefix", "site",
            ])
            .args(["--ignore-scripts", "--no-audit", "--no-fund", "--no-save"])
            .args(["--before", before, &package])
            .args(needs);
        self.run(&self.0, &mut install)
    }

    /// An archive that must be there.
    fn archive(&self, dir: &Path, name: &str) -> Result<PathBuf> {
        let path = dir.join(name);
        if !path.exists() {
            bail!("there is no {} among what was fetched", path.display());
        }
        Ok(path)
    }

    /// Unpacks an archive that has the suite's digest, or a directory in it.
    fn unpack(&self, suite: &Suite, archive: &Path, below: &str) -> Result<()> {
        let mut sum = Command::new("sha256sum");
        let output = sum.arg(archive).output().context("cannot run sha256sum")?;
        let said = String::from_utf8_lossy(&output.stdout);
        if said.split_whitespace().next() != Some(suite.sha256) {
            bail!("{} is not the one with {}", archive.display(), suite.sha256);
        }
        let steps = 1 + Path::new(below).components().count();
        let mut tar = Command::new("tar");
        tar.arg("-xf")
            .arg(archive)
            .arg(format!("--strip-components={steps}"))
            .arg("--no-same-owner")
            .arg("--directory")
            .arg(self.source());
        if !below.is_empty() {
            tar.arg(format!("{}-{}/{below}", suite.name, suite.version));
        }
        self.run(&self.0, &mut tar)
    }

    fn run(&self, dir: &Path, command: &mut Command) -> Result<()> {
        workspace::run(command.current_dir(dir).stdout(std::io::stderr()))
    }
}
