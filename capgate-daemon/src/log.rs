//! The daemon's own log: structured records to journald when stderr is the journal, else lines on stderr.

use std::os::linux::fs::MetadataExt;

use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{Log, LogTarget};

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not one.
    #[error("log.filter is wrong: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// journald is not there.
    #[error("cannot reach journald: {0}")]
    Journald(std::io::Error),
    /// Something else already logs in this process.
    #[error("cannot start the log: {0}")]
    Taken(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts the log.
///
/// # Errors
/// When the filter is wrong, or journald was asked for and is not there.
pub fn start(log: &Log) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(&log.filter)?;
    let journald = match log.to {
        LogTarget::Stderr => None,
        LogTarget::Journald => Some(tracing_journald::layer().map_err(LogError::Journald)?),
        // Records on stderr reach the journal too, with less structure.
        LogTarget::Auto if stderr_is_journal() => tracing_journald::layer().ok(),
        LogTarget::Auto => None,
    };
    let layer = match journald {
        Some(journald) => journald
            .with_syslog_identifier("capgated".to_owned())
            .boxed(),
        None => tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init()?;
    Ok(())
}

/// Whether stderr is the stream that the service manager connected to the journal: device and inode are those in
/// `JOURNAL_STREAM` (systemd.exec(5)). The variable alone is inherited by children whose stderr is elsewhere.
fn stderr_is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|meta| stream == format!("{}:{}", meta.st_dev(), meta.st_ino()))
}
