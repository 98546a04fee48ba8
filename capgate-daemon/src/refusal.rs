//! Why something about a job is refused or fails: a sentence each, as the client shows it.

use std::{collections::BTreeMap, io};

use capgate_common::capability::{self, CapabilityError};

use crate::{
    cgroup::CgroupError, id::JobId, job::EnterError, peer::PeerError, recorder::RecordError,
    store::StoreError,
};

/// Why something about a job failed. One sentence each.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Too many jobs, all users together.
    #[error("{0} jobs run, as many as max_jobs allows: try again when one has ended")]
    TooManyJobs(usize),
    /// Too many jobs of this user.
    #[error(
        "uid {uid} runs {jobs} jobs, as many as per_uid.jobs allows: try again when one has ended"
    )]
    TooManyOfUser {
        /// Whose.
        uid: u32,
        /// How many.
        jobs: usize,
    },
    /// The daemon ends.
    #[error("capgated is stopping and takes no new jobs")]
    Stopping,
    /// Not the two descriptors that have to come with a start.
    #[error("a start needs two descriptors, the root directory and /, and {0} came")]
    Descriptors(usize),
    /// The client declares something absent, and the operator does not let it.
    #[error(
        "the daemon's configuration says allow_client_absent = false: unset {} and ask the operator to declare what this host lacks",
        capability::VARIABLE
    )]
    MayNotDeclare,
    /// The client declares what it cannot.
    #[error("cannot take what {variable} declares absent: {cause}", variable = capability::VARIABLE)]
    Declared {
        /// Why not.
        cause: CapabilityError,
    },
    /// The contract requires what is declared absent: names and meanings.
    #[error("runner declares {} absent, and the contract requires it", .0.keys().cloned().collect::<Vec<_>>().join(", "))]
    Lacking(BTreeMap<String, String>),
    /// A descriptor is no directory.
    #[error("the descriptor of the {what} is not one of a directory")]
    NotDirectory {
        /// Which one.
        what: &'static str,
    },
    /// A descriptor cannot be looked at.
    #[error("cannot look at the descriptor of the {what}: {cause}")]
    Descriptor {
        /// Which one.
        what: &'static str,
        /// The system's answer.
        cause: io::Error,
    },
    /// The operator demands more than the probes can do.
    #[error("the daemon's configuration says require_race_free, and the probe set {0} is not")]
    NotRaceFree(&'static str),
    /// The kernel has no random bytes, or /proc is broken.
    #[error("cannot start a job: {0}")]
    System(io::Error),
    /// The client ended while it was served.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// About the cgroup.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// About the recording.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// About the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// About entering.
    #[error(transparent)]
    Enter(#[from] EnterError),
    /// No job has this token.
    #[error("the token is not one of a job that waits for its command")]
    WrongToken,
    /// No such job, or not for this peer.
    #[error("there is no job {0}")]
    NoSuchJob(String),
    /// The job ended without a ledger.
    #[error("job {0} was lost: it has no ledger")]
    NoLedger(JobId),
    /// The job has not ended.
    #[error("job {0} is still {1}: follow it with capgate tail")]
    NotSealed(JobId, &'static str),
    /// Only some may stop a job.
    #[error("job {0} can be stopped by the client that started it and by root")]
    MayNotStop(JobId),
    /// A command ended that never began.
    #[error("the command did not enter job {0}, so nothing of it was recorded")]
    NeverEntered(JobId),
    /// The job was given up meanwhile.
    #[error("job {0} is lost: sealing it took too long")]
    GivenUp(JobId),
}
