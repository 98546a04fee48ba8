//! Why probes are not to be had.

use std::{io, path::PathBuf};

use aya::{maps::MapError, programs::ProgramError};
use capgate_common::limits::{MAX_JOBS, MAX_LEVELS};

use super::MIN_RING_BYTES;
use crate::offsets::OffsetsError;

/// Why probes are not to be had, a sentence each.
#[derive(Debug, thiserror::Error)]
pub enum ProbesError {
    /// Offsets.
    #[error(transparent)]
    Offsets(#[from] OffsetsError),
    /// The object or its maps were refused.
    #[error(
        "cannot load the probes: {cause} (capgated needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, or root)"
    )]
    Load {
        /// The kernel's or loader's word.
        cause: String,
    },
    /// A program was refused.
    #[error("cannot {what} the probe `{name}`: {cause}")]
    Program {
        /// load, attach or detach.
        what: &'static str,
        /// The program.
        name: &'static str,
        /// The kernel's word.
        cause: String,
    },
    /// A map operation failed.
    #[error("cannot {what} in the kernel: {cause}")]
    Map {
        /// What was tried.
        what: &'static str,
        /// The kernel's word.
        cause: MapError,
    },
    /// The object lacks something that the daemon names.
    #[error("the probe object has no `{0}`: it does not belong to this daemon")]
    Object(&'static str),
    /// No set was accepted.
    #[error("cannot use the fentry probes: {fentry}; nor the tracepoint probes: {tracepoint}")]
    Neither {
        /// Why not the one.
        fentry: Box<ProbesError>,
        /// Why not the other.
        tracepoint: Box<ProbesError>,
    },
    /// The program that looks at a job's directories could not run.
    #[error("cannot tell the kernel where the job begins: {0}")]
    Adopt(io::Error),
    /// A job's directories were not found in the kernel.
    #[error("cannot tell where the job begins: its `/` is in no mount namespace")]
    Nowhere,
    /// The kernel does not say how often it skipped a program.
    #[error("cannot ask the kernel how often it skipped a probe: {0}")]
    Skipped(io::Error),
    /// The cgroup root could not be opened.
    #[error("cannot open the cgroup root {path}: {cause}")]
    CgroupRoot {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// All slots are taken.
    #[error("cannot record another job: {MAX_JOBS} are running")]
    Slots,
    /// Too many distinct cgroup depths.
    #[error(
        "cannot record a job at this cgroup depth ({level}): jobs run at {MAX_LEVELS} other depths already"
    )]
    Levels {
        /// The depth.
        level: u32,
    },
    /// Ring size.
    #[error(
        "cannot use a ring of {0} bytes: it must be a power of two and at least {MIN_RING_BYTES}"
    )]
    RingSize(u32),
}

pub(super) fn map_error(what: &'static str) -> impl FnOnce(MapError) -> ProbesError {
    move |cause| ProbesError::Map { what, cause }
}

pub(super) fn refused(
    what: &'static str,
    name: &'static str,
) -> impl FnOnce(ProgramError) -> ProbesError {
    move |error| ProbesError::Program {
        what,
        name,
        cause: one_line(&error),
    }
}

/// An error with its causes in one line. The verifier's log can be megabytes: its end says why.
pub(super) fn one_line(error: &dyn std::error::Error) -> String {
    const MOST: usize = 600;
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = line.len().saturating_sub(MOST);
    let start = (cut..line.len())
        .find(|at| line.is_char_boundary(*at))
        .unwrap_or(line.len());
    line.get(start..).unwrap_or_default().to_owned()
}
