//! A private capgated for measurements, and jobs in it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::workspace::{self, binary};

/// How long the daemon may take to answer, to attach or to detach.
const PATIENCE: Duration = Duration::from_secs(15);

/// The exit code of a job that was recorded with a loss.
const INCOMPLETE: i32 = 121;

/// A running capgated. It ends with this value.
pub(crate) struct Recorder {
    /// The process.
    daemon: Child,
    /// Its socket, store and configuration, and the ledgers of the jobs.
    dir: PathBuf,
}

impl Recorder {
    /// Starts a daemon with its files in `dir`. Its probes are detached as soon as no job runs, so that a bare
    /// run right after a job is bare.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        Self::start_for(dir, "")
    }

    /// The same, with further lines of configuration.
    pub(crate) fn start_for(dir: &Path, lines: &str) -> Result<Self> {
        let config = dir.join("capgated.toml");
        fs::write(&config, format!("linger_seconds = 0\n{lines}"))
            .with_context(|| format!("cannot write {}", config.display()))?;
        let log = dir.join("capgated.log");
        let log =
            fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(binary("capgated"));
        command
            .arg("--socket")
            .arg(dir.join("socket"))
            .arg("--store")
            .arg(dir.join("store"))
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stderr(log);
        let daemon = command.spawn().context("cannot start capgated")?;
        let mut this = Self {
            daemon,
            dir: dir.to_owned(),
        };
        this.wait_until("capgated listens", |this| Ok(this.socket().exists()))?;
        Ok(this)
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// A command of `capgate run` for this daemon, to which the job's words are to be added.
    pub(crate) fn job(&self) -> Command {
        self.job_with(&[])
    }

    /// The same, with a network that the kernel enforces: every loopback address may be reached.
    pub(crate) fn enforced_job(&self) -> Result<Command> {
        const CONTRACT: &str = concat!(
            r#"{"allow_net": ["127.0.0.0/8:*"], "cpu_budget": 600, "#,
            r#""writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}"#
        );
        let contract = self.dir.join("contract.json");
        fs::write(&contract, CONTRACT)
            .with_context(|| format!("cannot write {}", contract.display()))?;
        let contract = contract.into_os_string();
        Ok(self.job_with(&["--enforce".as_ref(), "--contract".as_ref(), &contract]))
    }

    fn job_with(&self, options: &[&OsStr]) -> Command {
        let mut command = Command::new(binary("capgate"));
        command
            .args(["run", "--record"])
            .args(options)
            .arg("--socket")
            .arg(self.socket());
        // The directory of the bench, not a repository around it.
        command
            .arg("--root")
            .arg(&self.dir)
            .arg("--ledger")
            .arg(self.dir.join("ledger.json"))
            .arg("--");
        command
    }

    /// Starts a job that does nothing until it is ended, and waits for the probes.
    pub(crate) fn idle_job(&mut self) -> Result<IdleJob> {
        let mut command = self.job();
        // Reads until its end of the pipe closes.
        let child = command
            .arg("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start capgate")?;
        let job = IdleJob(child);
        self.wait_until("the probes are attached", |this| Ok(this.attached()? > 0))?;
        Ok(job)
    }

    /// Waits until no probe is attached.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.wait_until("the probes are detached", |this| Ok(this.attached()? == 0))
    }

    /// Programs that the daemon holds attached, from the kernel's description of its descriptors.
    pub(crate) fn attached(&self) -> Result<usize> {
        let dir = PathBuf::from(format!("/proc/{}/fdinfo", self.daemon.id()));
        let entries =
            fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
        // A descriptor may close while its directory is read.
        let infos = entries
            .flatten()
            .filter_map(|entry| fs::read_to_string(entry.path()).ok());
        Ok(infos
            .filter(|info| info.lines().any(|line| line.starts_with("link_type:")))
            .count())
    }

    /// Resident memory of the daemon, in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.daemon.id());
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .with_context(|| format!("{path} has no VmRSS"))
    }

    /// Polls until something holds; the daemon's end, or the end of patience, is an error.
    fn wait_until(&mut self, what: &str, holds: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let started = Instant::now();
        while !holds(self)? {
            if let Some(status) = self.daemon.try_wait().context("cannot wait for capgated")? {
                let log = fs::read_to_string(self.dir.join("capgated.log")).unwrap_or_default();
                bail!("capgated ended with {status} before {what}: {}", log.trim());
            }
            if started.elapsed() > PATIENCE {
                bail!("waited {} s in vain until {what}", PATIENCE.as_secs());
            }
            sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // SIGTERM, so that it takes its cgroups along.
        let pid = nix::unistd::Pid::from_raw(self.daemon.id().cast_signed());
        if nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).is_ok() {
            // Its exit status changes nothing any more.
            let _ = self.daemon.wait();
        }
    }
}

/// A job that runs and does nothing. It ends with this value.
pub(crate) struct IdleJob(Child);

impl Drop for IdleJob {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its exit status is that of a recording nobody reads.
        let _ = self.0.wait();
    }
}

/// What a measured command printed, and whether its recording was complete.
pub(crate) fn output(command: &mut Command) -> Result<(String, bool)> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", workspace::show(command)))?;
    let complete = output.status.code() != Some(INCOMPLETE);
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if complete && !output.status.success() {
        let talk = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} ended with {}:\n{printed}\n{talk}",
            workspace::show(command),
            output.status
        );
    }
    Ok((printed, complete))
}
