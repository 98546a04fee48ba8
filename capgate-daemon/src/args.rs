//! The command line.

use std::path::PathBuf;

use capgate_common::{ledger, protocol::SOCKET_PATH};
use clap::{Parser, ValueEnum};

use crate::{config, probes::ProbeChoice};

/// Records what CI jobs do on this host, through eBPF, and judges it by their contracts.
///
/// Runs as root. Clients are served at the socket: root, and the members of the configured group.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "capgated",
    version,
    after_help = "Example:\n  capgated --config /etc/capgate/capgated.toml --store /var/lib/capgate"
)]
pub struct Args {
    /// Where to listen
    #[arg(long, value_name = "PATH", default_value = SOCKET_PATH)]
    pub socket: PathBuf,

    /// Where sealed jobs are kept
    #[arg(long, value_name = "DIR", default_value = "/var/lib/capgate")]
    pub store: PathBuf,

    /// Configuration file [default: /etc/capgate/capgated.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Which probes to use
    #[arg(long, value_name = "SET", default_value = "auto")]
    pub probe_set: ProbeSet,

    /// Serve one job of one user: how `capgate run --local` starts its daemon. Writes a line to stdout when it serves, ends
    /// with the job or with stdin, and removes its store
    #[arg(long, value_name = "UID", hide = true)]
    pub private: Option<u32>,
}

/// The probe sets by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProbeSet {
    /// The best one that loads
    Auto,
    /// Tracepoints at the exit of system calls
    Tracepoint,
    /// The kernel's own functions at their entry and exit
    Fentry,
}

impl From<ProbeSet> for ProbeChoice {
    fn from(set: ProbeSet) -> Self {
        match set {
            ProbeSet::Auto => Self::Auto,
            ProbeSet::Tracepoint => Self::Only(ledger::ProbeSet::Tracepoint),
            ProbeSet::Fentry => Self::Only(ledger::ProbeSet::Fentry),
        }
    }
}

impl Args {
    /// The configuration file, and whether the operator named it.
    #[must_use]
    pub fn config_file(&self) -> (PathBuf, bool) {
        match &self.config {
            Some(path) => (path.clone(), true),
            None => (config::DEFAULT_PATH.into(), false),
        }
    }
}
