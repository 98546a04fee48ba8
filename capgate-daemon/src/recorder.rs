//! The border between a job's life and its recording: what the one asks of the other.

use std::{collections::BTreeSet, os::fd::OwnedFd, sync::Arc};

use capgate_common::{
    discretion::Discretion, evidence::Evidence, ledger, protocol::Start, rules::Rules,
};

use crate::{
    cgroup::{JobCgroup, Member},
    proc::WritableFd,
    stream::{Stream, Subscription},
};

/// Why something could not be recorded: one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(pub String);

/// A job that is about to begin: its cgroup is there and empty.
#[derive(Debug)]
pub struct Opening<'a> {
    /// Where it will run.
    pub cgroup: &'a JobCgroup,
    /// Whose job it is.
    pub uid: u32,
    /// Process id of the client, which is alive while this is handled.
    pub client_pid: i32,
    /// Cookie of the network namespace that the client is in; `None` where the kernel has none.
    pub client_netns: Option<u64>,
    /// What the client asks for.
    pub start: &'a Start,
    /// What is kept of command lines.
    pub discretion: &'a Discretion,
    /// The job's root directory.
    pub root: OwnedFd,
    /// `/` as the client sees it.
    pub slash: OwnedFd,
    /// When the job began, in nanoseconds since boot: the zero of `ms` in events and evidence.
    pub began_ns: u64,
    /// Most events that are taken; the rest counts as lost.
    pub most_events: u64,
    /// Bytes that the recording may take, its ring included.
    pub memory: u64,
    /// Where events go while somebody reads.
    pub stream: Arc<Stream>,
}

/// The first process of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Process id.
    pub pid: i32,
    /// Descriptors open for writing that it brought along and that stay open when it executes the command.
    pub inherited: Vec<WritableFd>,
}

/// What the job's life knows when the job is over: its cgroup is empty.
#[derive(Debug)]
pub struct Closing {
    /// User CPU time of the whole job, in microseconds.
    pub user_usec: u64,
    /// The job's first process, and the descriptors that it began with; `None` when nobody entered.
    pub entered: Option<Entered>,
    /// Processes that outlived the command and were killed.
    pub leftovers: Vec<Member>,
    /// Losses that the job's life knows of, by kind.
    pub lost: Vec<(&'static str, u64)>,
}

/// A finished recording, not judged yet.
#[derive(Debug)]
pub struct Recorded {
    /// The facts of the ledger.
    pub recording: ledger::Recording,
    /// Who did it.
    pub evidence: Evidence,
    /// What the job is judged by; `None` to record only.
    pub rules: Option<Arc<Rules>>,
    /// Names that the contract's patterns covered.
    pub ignored: BTreeSet<String>,
    /// Remarks that decide nothing, a sentence each.
    pub notes: Vec<String>,
}

/// What a recorder is and does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Name of the probe set.
    pub probe_set: &'static str,
    /// Why a better set is not in use.
    pub fallback: Option<String>,
    /// The set resists a hostile thread.
    pub race_free: bool,
    /// Programs attached now.
    pub attached: Vec<String>,
    /// What the set does not cover, a phrase each.
    pub not_covered: Vec<String>,
    /// What is not refused to a job whose network is enforced, a phrase each.
    pub not_denied: Vec<String>,
    /// Events seen since start.
    pub events: u64,
    /// Events lost since start.
    pub lost: u64,
}

/// Records jobs. Its calls take a while (attaching, reading file systems) and come from threads that may wait.
pub trait Recorder: Send + Sync {
    /// Begins to record a job. From here on every event in its cgroup is taken.
    ///
    /// # Errors
    /// When the contract cannot be used, or the kernel refuses.
    fn open(&self, opening: Opening<'_>) -> Result<Box<dyn Recording>, RecordError>;

    /// No job runs, and none has for a while: do nothing that costs anything.
    fn rest(&self);

    /// What it is and does now.
    fn facts(&self) -> Facts;
}

/// One job's recording. Dropping it ends the recording.
pub trait Recording: Send {
    /// Events so far.
    fn events(&self) -> u64;

    /// The kept events, when they are wanted, and what comes next.
    fn follow(&self, backlog: bool) -> Subscription;

    /// CPU seconds that the contract allows; `None` without one.
    fn cpu_budget(&self) -> Option<u64>;

    /// Ends the recording, and takes everything that was on its way.
    ///
    /// # Errors
    /// When the recording broke.
    fn close(self: Box<Self>, closing: Closing) -> Result<Recorded, RecordError>;
}
