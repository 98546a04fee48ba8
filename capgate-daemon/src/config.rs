//! `/etc/capgate/capgated.toml`: what an operator sets. Every key has a default, an unknown key is an error.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use capgate_common::{capability, discretion::Argv, limits};
use serde::{Deserialize, Deserializer, de::Error as _};

/// Where the configuration is looked for when the command line names no other file.
pub const DEFAULT_PATH: &str = "/etc/capgate/capgated.toml";

/// The smallest ring: one page would hold a few long paths only.
const SMALLEST_RING: u32 = 64 << 10;
/// The largest ring: the kernel's own limit is about 2 GiB, and a job that needs more than this is flooding.
const LARGEST_RING: u32 = 1 << 30;
/// What a job needs besides its ring to record anything worth while, in bytes.
const LEAST_RECORDING: u64 = 16 << 20;

/// Everything that an operator may set.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Name of the group whose members may record. When it does not exist only root may.
    pub group: String,
    /// Jobs at the same time, all users together.
    pub max_jobs: usize,
    /// Size of one job's ring, in bytes: a power of two.
    pub ring_bytes: u32,
    /// How long the probes stay attached after the last job, in seconds, so that the next one starts faster.
    pub linger_seconds: u64,
    /// Refuse every job when the probe set can be fooled by a hostile thread.
    pub require_race_free: bool,
    /// Capabilities that this host does not have, for all jobs.
    #[serde(deserialize_with = "capabilities")]
    pub absent: BTreeSet<String>,
    /// Let a client declare more of them for its own job.
    pub allow_client_absent: bool,
    /// What is kept of command lines, in evidence and in lists.
    pub argv: Argv,
    /// What one user may have at the same time.
    pub per_uid: PerUid,
    /// How long sealed jobs are kept.
    pub store: Retention,
    /// Where the daemon's own log goes.
    pub log: Log,
}

/// Limits on one user, root included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PerUid {
    /// Running jobs.
    pub jobs: usize,
    /// Open connections: a job holds one, its `enter` step one for a moment, each `tail` one.
    pub connections: usize,
    /// Memory of the running jobs, in MiB. Each of them may take its share, rings included; a recording that would need more
    /// loses facts, and says so.
    pub memory_mib: u64,
    /// Events of one job; what comes after them counts as lost.
    pub events: u64,
}

/// How long sealed jobs are kept; the oldest go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Jobs of one user.
    pub jobs_per_uid: usize,
    /// Ledgers and evidence of one user, in MiB.
    pub mib_per_uid: u64,
    /// Days; 0 keeps them for ever.
    pub days: u64,
}

/// The daemon's log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Where it goes.
    pub to: LogTarget,
    /// What is logged, in the filter language of `tracing-subscriber`: `info`, `capgate_daemon=debug`.
    pub filter: String,
}

/// Where the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogTarget {
    /// The journal when stderr is connected to it (`JOURNAL_STREAM`), else stderr.
    Auto,
    /// Lines on stderr.
    Stderr,
    /// Structured records to journald.
    Journald,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            group: "capgate".to_owned(),
            max_jobs: 64,
            ring_bytes: limits::RING_BYTES,
            linger_seconds: 10,
            require_race_free: false,
            absent: BTreeSet::new(),
            allow_client_absent: true,
            argv: Argv::default(),
            per_uid: PerUid::default(),
            store: Retention::default(),
            log: Log::default(),
        }
    }
}

impl Default for PerUid {
    fn default() -> Self {
        Self {
            jobs: 32,
            connections: 128,
            memory_mib: 8192,
            events: 50_000_000,
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            jobs_per_uid: 1000,
            mib_per_uid: 2048,
            days: 30,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            to: LogTarget::Auto,
            filter: "info".to_owned(),
        }
    }
}

/// Names of capabilities.
fn capabilities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    capability::names(names.iter().map(String::as_str)).map_err(D::Error::custom)
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {cause}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// The file is not what it should be.
    #[error("the configuration {path} is wrong: {what}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Which key, and what about it.
        what: String,
    },
}

impl Config {
    /// Reads `path`; a missing file gives the defaults unless the operator named it (`required`).
    ///
    /// # Errors
    /// When the file cannot be read, has a key that does not exist, or a value out of range.
    pub fn load(path: &Path, required: bool) -> Result<Self, ConfigError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && !required => {
                return Ok(Self::default());
            }
            Err(cause) => {
                return Err(ConfigError::Read {
                    path: path.to_owned(),
                    cause,
                });
            }
        };
        Self::parse(&text).map_err(|what| ConfigError::Wrong {
            path: path.to_owned(),
            what,
        })
    }

    /// Takes a configuration from its text.
    ///
    /// # Errors
    /// A phrase that names the line and key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map(|span| 1 + text[..span.start].matches('\n').count());
            match line {
                Some(line) => format!("line {line}: {}", error.message()),
                None => error.message().to_owned(),
            }
        })?;
        config.check()?;
        Ok(config)
    }

    /// Values that the type system cannot refuse.
    fn check(&self) -> Result<(), String> {
        let most = limits::MAX_JOBS as usize;
        if !(1..=most).contains(&self.max_jobs) {
            return Err(format!("max_jobs must be between 1 and {most}"));
        }
        if !self.ring_bytes.is_power_of_two()
            || !(SMALLEST_RING..=LARGEST_RING).contains(&self.ring_bytes)
        {
            return Err(format!(
                "ring_bytes must be a power of two between {SMALLEST_RING} and {LARGEST_RING}"
            ));
        }
        if self.per_uid.jobs == 0 || self.per_uid.connections < 2 {
            return Err(
                "per_uid.jobs must be at least 1 and per_uid.connections at least 2".to_owned(),
            );
        }
        let least = u64::from(self.ring_bytes) + LEAST_RECORDING;
        if self.per_uid.memory_of_job() < least {
            return Err(format!(
                "per_uid.memory_mib must be at least {}, so that each of per_uid.jobs jobs has its ring and {} MiB more",
                (least * self.per_uid.jobs as u64).div_ceil(1 << 20),
                LEAST_RECORDING >> 20
            ));
        }
        Ok(())
    }

    /// How long the probes stay attached after the last job.
    #[must_use]
    pub fn linger(&self) -> Duration {
        Duration::from_secs(self.linger_seconds)
    }
}

impl PerUid {
    /// The share of each job in [`PerUid::memory_mib`], in bytes.
    #[must_use]
    pub fn memory_of_job(&self) -> u64 {
        self.memory_mib.saturating_mul(1 << 20) / self.jobs.max(1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let got = match Config::parse(text) {
            Ok(_) => "ok".to_owned(),
            Err(what) => what,
        };
        assert!(
            got.starts_with(expect),
            "{text:?}: expected {expect:?}, got {got:?}"
        );
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(Config::parse("").as_ref(), Ok(&Config::default()));
    }

    #[test]
    fn the_file_that_is_installed_shows_the_defaults() {
        let installed = include_str!("../dist/capgated.toml");
        assert_eq!(Config::parse(installed).as_ref(), Ok(&Config::default()));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        check(
            "max_jobs = 3\nring_byte = 5\n",
            "line 2: unknown field `ring_byte`",
        );
        check(
            "[per_uid]\njobs = 3\nfoo = 1\n",
            "line 3: unknown field `foo`",
        );
    }

    #[test]
    fn values_out_of_range_are_refused() {
        check("max_jobs = 0", "max_jobs must be");
        check("max_jobs = 257", "max_jobs must be");
        check("ring_bytes = 100000", "ring_bytes must be");
        check("ring_bytes = 4096", "ring_bytes must be");
        check("ring_bytes = 65536", "ok");
        check(
            "[per_uid]\nmemory_mib = 4",
            "per_uid.memory_mib must be at least 768",
        );
        check("absent = [\"docker\", \"ipv6\"]", "ok");
        check("absent = [\"Docker\"]", "line 1: `Docker` is no name");
        for argv in ["scrubbed", "names", "full"] {
            check(&format!("argv = \"{argv}\""), "ok");
        }
        check("argv = \"none\"", "line 1: unknown variant `none`");
        check("[log]\nto = \"nowhere\"", "line 2: unknown variant");
    }

    #[test]
    fn a_missing_file_is_an_error_only_when_it_was_named() {
        let path = Path::new("/nonexistent/capgated.toml");
        assert!(Config::load(path, false).is_ok());
        assert!(matches!(
            Config::load(path, true),
            Err(ConfigError::Read { .. })
        ));
    }
}
