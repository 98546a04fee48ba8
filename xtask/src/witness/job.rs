//! One suite as a job of an unprivileged user, with the witnesses around it.

use std::{
    fs::{self, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use capgate_common::{evidence::Evidence, ledger::Ledger, pathform::Forms};
use tempfile::TempDir;
use xtask::witnesses::{
    judge::{self, Judgement, Seen, Told},
    story::Story,
    strace,
    walk::Walk,
};

use super::{sources::Kept, suites::Suite, table::Row};
use crate::{
    bench::recorder::Recorder,
    workspace::{self, binary},
};

/// The user of the jobs: one that has no entry anywhere, and nothing on the machine.
const UID: u32 = 64_131;

/// The group of those who may record in here: one that every Debian has.
pub(crate) const GROUP: &str = "daemon";
/// Its number.
const GID: u32 = 1;

/// The tracer.
const STRACE: &str = "/usr/bin/strace";

/// Where everybody may write.
const SHARED: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// A suite's output that is shown when it fails.
const TAIL: usize = 4_000;

/// Directories of one job.
struct Place {
    dir: TempDir,
}

impl Place {
    /// A fresh one with a suite in it.
    fn of(kept: &Kept) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a directory for a job")?;
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))
            .context("cannot open the job's directory")?;
        let place = Self { dir };
        for (from, to) in [
            (kept.source(), place.root()?),
            (kept.site(), place.beside("site")?),
            (kept.home(), place.beside("home")?),
        ] {
            // With its times, so that what was compiled stays fresh.
            workspace::run(Command::new("cp").arg("-a").arg(from).arg(to))?;
        }
        for name in ["tmp", "log", "out"] {
            fs::create_dir(place.beside(name)?).context("cannot make the job's directories")?;
        }
        let owner = format!("{UID}:{GID}");
        let mut give = Command::new("chown");
        give.args(["-R", "--no-dereference", &owner]);
        for name in ["root", "home", "tmp", "log", "out"] {
            give.arg(place.beside(name)?);
        }
        workspace::run(&mut give)?;
        // Fetched by root, whatever its umask: to be read by all.
        let mut open = Command::new("chmod");
        open.args(["-R", "u+rwX,a+rX"]);
        for name in ["root", "site", "home"] {
            open.arg(place.beside(name)?);
        }
        workspace::run(&mut open)?;
        Ok(place)
    }

    /// As the kernel names it: a link on the way would give entries another beginning.
    fn beside(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.path().canonicalize();
        Ok(dir.context("the job's directory is gone")?.join(name))
    }

    fn root(&self) -> Result<PathBuf> {
        self.beside("root")
    }

    /// What the witnesses look at.
    fn walk(&self) -> Result<Walk> {
        let whole = [self.root()?, self.beside("home")?, self.beside("tmp")?];
        Walk::of(&whole, &SHARED.map(PathBuf::from), UID).context("cannot walk the file system")
    }
}

/// A client that the job's user can execute.
pub(crate) fn install_client(dir: &Path) -> Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o755))
        .with_context(|| format!("cannot open {}", dir.display()))?;
    let client = dir.join("capgate");
    fs::copy(binary("capgate"), &client)
        .and_then(|_| fs::set_permissions(&client, Permissions::from_mode(0o755)))
        .and_then(|()| chown(&client, Some(0), Some(0)))
        .with_context(|| format!("cannot copy the client to {}", client.display()))
}

/// Runs a suite and compares.
pub(crate) fn run(
    suite: &'static Suite,
    kept: &Kept,
    recorder: &Recorder,
    client: &Path,
) -> Result<Row> {
    let place = Place::of(kept)?;
    let outcome = attend(suite, &place, recorder, client);
    let disagree = |(row, _): &(Row, Judgement)| row.missed + row.invented > 0;
    if outcome.as_ref().map_or(true, disagree) {
        eprintln!(
            "xtask: {}: ledger, evidence and strace's log are in {}",
            suite.name,
            place.dir.path().display()
        );
        // Kept: whoever asks why looks there.
        let _kept = place.dir.keep();
    }
    let (row, judgement) = outcome?;
    for (what, entries) in [
        ("missed", &judgement.missed),
        ("invented", &judgement.invented),
    ] {
        for (entry, reason) in entries {
            eprintln!("xtask: {}: {what} {entry}: {reason}", suite.name);
        }
    }
    Ok(row)
}

fn attend(
    suite: &'static Suite,
    place: &Place,
    recorder: &Recorder,
    client: &Path,
) -> Result<(Row, Judgement)> {
    let log = place.beside("log")?.join("strace");
    let (ledger, evidence) = (place.beside("out/ledger")?, place.beside("out/evidence")?);
    let mut capgate = Command::new(client);
    capgate
        .args(["run", "--record", "--socket"])
        .arg(recorder.socket())
        .arg("--root")
        .arg(place.root()?)
        .arg("--ledger")
        .arg(&ledger)
        .arg("--evidence")
        .arg(&evidence)
        .arg("--")
        .arg(STRACE)
        .args(strace::OPTIONS)
        .arg(&log)
        // The caller's mask would be the job's.
        .args(["sh", "-c", &format!("umask 022\n{}", suite.script)])
        .current_dir(place.root()?)
        .uid(UID)
        .gid(GID)
        .stdin(Stdio::null());
    surround(&mut capgate, place)?;
    let before = place.walk()?;
    let output = capgate.output().context("cannot run capgate")?;
    let after = place.walk()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let tests = (suite.passed)(&said);
    if !output.status.success() || tests == 0 {
        let talk = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} ended with {}:\n{}\n{}",
            suite.name,
            output.status,
            tail(&said),
            tail(&talk)
        );
    }

    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let ledger = Ledger::from_json(&read(&ledger)?).context("the ledger")?;
    let evidence = Evidence::from_json(&read(&evidence)?).context("the evidence")?;
    let recording = &ledger.recording;
    if !ledger.complete {
        bail!(
            "{}: the recording is not complete: {:?} {:?}",
            suite.name,
            recording.lost,
            recording.coverage.unseen
        );
    }
    if let Some(imbalance) = evidence.counts.imbalance() {
        bail!("{}: {imbalance}", suite.name);
    }

    let calls = read(&log)?;
    let calls = strace::calls(&String::from_utf8_lossy(&calls)).map_err(anyhow::Error::msg)?;
    let root = place.root()?;
    let mut story = Story::of(&calls, &before, &root).map_err(anyhow::Error::msg)?;
    // The tracer is a program of the job too, and nobody traces it.
    story.programs.insert(STRACE.into());
    let forms = Forms::new(root.as_os_str().as_bytes(), None, UID)?;
    let mut told = Told::of(recording, &evidence);
    let of_tracer = forms.form(log.as_os_str().as_bytes(), &|_| false);
    if !of_tracer.is_some_and(|own| told.written.remove(&own.entry)) {
        bail!("{}: the tracer's own file is not in the ledger", suite.name);
    }
    let seen = Seen {
        story: &story,
        before: &before,
        after: &after,
    };
    let judgement = judge::judge(&forms, seen, &told).map_err(anyhow::Error::msg)?;
    let row = Row {
        suite,
        tests,
        records: evidence.counts.received,
        written: told.written.len(),
        transient: told.transient.len(),
        missed: judgement.missed.len(),
        invented: judgement.invented.len(),
        probe_set: recording.coverage.probe_set.word().to_owned(),
        kernel: kernel()?,
    };
    Ok((row, judgement))
}

/// Nothing of the caller's environment reaches the job: it would be another job on another machine.
fn surround(command: &mut Command, place: &Place) -> Result<()> {
    let home = place.beside("home")?;
    let site = place.beside("site")?;
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("TMPDIR", place.beside("tmp")?)
        .env("PYTHONPATH", &site)
        .env("NODE_PATH", site.join("node_modules"))
        .env("CARGO_HOME", home.join(".cargo"))
        .env("CARGO_NET_OFFLINE", "true")
        .env("RUSTC", super::sources::RUSTC)
        .env("HOME", home);
    Ok(())
}

/// The end of a text.
fn tail(text: &str) -> &str {
    let start = text.len().saturating_sub(TAIL);
    text.get(start..).unwrap_or(text)
}

/// The running kernel's version, without what its builder added.
fn kernel() -> Result<String> {
    let uname = nix::sys::utsname::uname().context("cannot ask for the kernel's release")?;
    let release = uname.release().to_string_lossy();
    Ok(release.split('-').next().unwrap_or_default().to_owned())
}
