//! Checkouts of a suite, and the users that run it there.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::{
    fetch::{SITE, SOURCE},
    json,
};
use crate::workspace::{self, binary};

/// Users that every Debian has and that own nothing. As other users of a runner they differ in name, number and home.
pub(crate) const USERS: [User; 2] = [User("games"), User("backup")];
/// The group of those who may record, as the daemon is told.
const GROUP: &str = "daemon";
/// Where the suites' programs are looked for, the same for every user.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The contract, in a checkout.
const CONTRACT: &str = "tests/capability.ledger.json";

/// A user, by name.
pub(crate) struct User(&'static str);

/// A directory for one suite.
pub(crate) struct Ground {
    dir: PathBuf,
    kept: PathBuf,
}

/// A checkout.
pub(crate) struct Place {
    root: PathBuf,
}

/// What `init` wrote.
pub(crate) struct Init {
    text: String,
    path: PathBuf,
}

/// What a contract says of names.
pub(crate) struct Contract {
    /// How many it has.
    pub(crate) names: usize,
    /// Its patterns.
    pub(crate) patterns: Vec<String>,
}

/// A run under the contract.
pub(crate) struct Run {
    /// The exit code of `capgate run`.
    pub(crate) code: Option<i32>,
    /// The digest in its ledger.
    pub(crate) digest: String,
    /// How many names came and went.
    pub(crate) transient: usize,
    /// Its report.
    pub(crate) said: String,
}

impl Ground {
    /// Lays out what all checkouts share: the client, and the packages.
    pub(crate) fn new(dir: &Path, kept: &Path) -> Result<Self> {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
            .context("cannot open the directory to all")?;
        copy(&binary("capgate"), &dir.join("capgate"))?;
        if kept.join(SITE).exists() {
            copy(&kept.join(SITE), &dir.join(SITE))?;
            // Fetched by root, whatever its umask; to be read by all, and written by nobody who runs a suite.
            let mut open = Command::new("chmod");
            workspace::run(open.args(["-R", "a+rX,go-w"]).arg(dir.join(SITE)))?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            kept: kept.to_owned(),
        })
    }

    /// A checkout as nobody has run anything in, in the place of the one that was there.
    pub(crate) fn fresh(&self, name: &str) -> Result<Place> {
        let above = self.dir.join(name);
        if above.exists() {
            fs::remove_dir_all(&above)
                .with_context(|| format!("cannot remove {}", above.display()))?;
        }
        for directory in [above.clone(), above.join("home")] {
            fs::create_dir(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let root = above.join("checkout");
        copy(&self.kept.join(SOURCE), &root)?;
        Ok(Place { root })
    }

    /// Seeds a contract.
    pub(crate) fn init(
        &self,
        place: &Place,
        user: &User,
        runs: &str,
        script: &str,
    ) -> Result<Init> {
        let mut command = self.capgate(place, user, &["init", "--runs", runs], script)?;
        let output = command.output().context("cannot run capgate init")?;
        if !output.status.success() {
            bail!(
                "capgate init ended with {}:\n{}{}",
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        eprint!("{}", String::from_utf8_lossy(&output.stdout));
        let path = place.root.join(CONTRACT);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // The checkout will be made anew.
        let path = self.dir.join("contract.json");
        fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Init { text, path })
    }

    /// Holds a run to the contract.
    pub(crate) fn run(&self, place: &Place, user: &User, script: &str) -> Result<Run> {
        let (ledger, evidence) = (place.beside("ledger.json"), place.beside("evidence.json"));
        let (ledger_text, evidence_text) =
            (ledger.display().to_string(), evidence.display().to_string());
        let options = [
            "run",
            "--ledger",
            &ledger_text,
            "--evidence",
            &evidence_text,
        ];
        let mut command = self.capgate(place, user, &options, script)?;
        let output = command.output().context("cannot run capgate")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !ledger.exists() {
            bail!("capgate left no ledger: {said}");
        }
        let transient = json(&evidence)?["transient"].as_array().map_or(0, Vec::len);
        Ok(Run {
            code: output.status.code(),
            digest: json(&ledger)?["writes"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            transient,
            said,
        })
    }

    fn capgate(
        &self,
        place: &Place,
        user: &User,
        options: &[&str],
        script: &str,
    ) -> Result<Command> {
        let above = place.beside("");
        let mut give = Command::new("chown");
        give.arg("-R")
            .arg(format!("{}:{GROUP}", user.0))
            .arg(&above);
        workspace::run(&mut give)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", user.0, "--regid", GROUP, "--clear-groups"])
            .arg(self.dir.join("capgate"));
        command
            .args(options)
            .arg("--socket")
            .arg(self.dir.join("socket"));
        command.arg("--root").arg(&place.root);
        command.args(["--", "sh", "-c", script]);
        command
            .current_dir(&place.root)
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("HOME", place.beside("home"))
            .env("USER", user.0)
            .env("LOGNAME", user.0)
            .env("LC_ALL", "C.UTF-8")
            .env("PYTHONPATH", self.dir.join(SITE))
            .stdin(Stdio::null());
        Ok(command)
    }
}

impl Place {
    fn beside(&self, name: &str) -> PathBuf {
        let above = self.root.parent().unwrap_or(&self.root);
        above.join(name)
    }

    /// Puts a contract into the checkout.
    pub(crate) fn put(&self, init: &Init) -> Result<()> {
        let path = self.root.join(CONTRACT);
        let above = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(above).with_context(|| format!("cannot make {}", above.display()))?;
        fs::write(&path, &init.text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Init {
    /// What it says.
    pub(crate) fn contract(&self) -> Result<Contract> {
        let contract = json(&self.path)?;
        let list = |key: &str| -> Vec<String> {
            let members = contract[key].as_array().into_iter().flatten();
            members
                .filter_map(|it| Some(it.as_str()?.to_owned()))
                .collect()
        };
        Ok(Contract {
            names: list("write_paths").len(),
            patterns: list("ignore_writes"),
        })
    }
}

/// Copies with times, so that what is compiled stays fresh.
fn copy(from: &Path, to: &Path) -> Result<()> {
    workspace::run(Command::new("cp").arg("-a").arg(from).arg(to))
}
