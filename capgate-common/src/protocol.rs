//! The protocol between client and daemon: one JSON object a line over a Unix stream socket.
//!
//! The client speaks first with [`Request::Hello`]; every request gets exactly one [`Response`], but for
//! [`Request::Tail`], which is followed by a stream of [`Response::Event`], [`Response::Lagged`] and one
//! [`Response::End`]. Descriptors travel as `SCM_RIGHTS` with the first byte of the line that they belong to.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{compare::Judgement, evidence::Evidence, gitignored::CommitRules, ledger::Ledger};

/// The protocol version of this build. A daemon accepts its own and the one before.
pub const VERSION: u32 = 2;
/// The oldest version that this build accepts.
pub const OLDEST_VERSION: u32 = 1;
/// Longest line from a client, in bytes, the newline included: the contract (1 MiB at most) and the commit's rules dominate it,
/// doubled by JSON escaping.
pub const MAX_REQUEST: usize = 4 << 20;
/// Longest line from the daemon, in bytes: evidence dominates it.
pub const MAX_RESPONSE: usize = 256 << 20;
/// Where the service listens.
pub const SOCKET_PATH: &str = "/run/capgate/capgated.sock";

/// What a client asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Must come first on every connection.
    Hello {
        /// Protocol version of the client.
        version: u32,
        /// Program version, for messages.
        program: String,
    },
    /// Open a job. Two descriptors come with it: the job's root directory, and `/` as the client sees it.
    /// The connection is the job's lease from here on.
    Start(Box<Start>),
    /// The `enter` step: move the peer of this connection into the job.
    Enter {
        /// The one-time token of [`Response::Started`].
        token: String,
    },
    /// The command has ended: seal. Only on the lease.
    Finish {
        /// How the command ended.
        outcome: Outcome,
    },
    /// Kill a job's processes; it is then sealed as stopped. On the lease, or from root.
    Stop {
        /// Which job; on the lease it may be absent.
        job: Option<String>,
    },
    /// List jobs that the peer may see, running and stored.
    Ps,
    /// Ledger and evidence of a finished job.
    Show {
        /// Which job.
        job: String,
    },
    /// Follow a job's events.
    Tail {
        /// Which job.
        job: String,
        /// Only these kinds (names of `event::KIND_NAMES`); all when empty.
        kinds: Vec<String>,
        /// Send the kept backlog first.
        backlog: bool,
    },
    /// What the daemon is and does.
    Status,
    /// Whether a capability is absent for the job that the peer runs in, so that one of its units does not run. The only
    /// request that a process inside a job may make.
    Capability {
        /// The capability.
        name: String,
        /// The unit that needs it.
        unit: String,
    },
}

/// Everything that opens a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The command and its arguments, lossy UTF-8: for display only.
    pub argv: Vec<String>,
    /// Working directory, escaped form: for display only.
    pub cwd: String,
    /// The contract's text; `None` with `--record` and no contract.
    pub contract: Option<String>,
    /// Where the contract came from: a path, or `REF:path`.
    pub contract_source: Option<String>,
    /// Absolute path of the contract's file in the work tree, escaped form, to notice that the job wrote it.
    pub contract_path: Option<String>,
    /// What git ignores, by the base commit, when the contract has `ignore_gitignored`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_rules: Option<Box<CommitRules>>,
    /// Record only: no comparison and no CPU budget. A contract's patterns still say what does not count.
    pub record: bool,
    /// Have the kernel refuse connections that the contract's `allow_net` does not allow. The contract may ask for it too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enforce: bool,
    /// Have the kernel refuse every connection, but to the job itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_network: bool,
    /// Environment values that contract tokens (`$TMPDIR`, ...) resolve from; with `PATH` when the contract refuses programs.
    pub env: BTreeMap<String, String>,
    /// Free words that name the job in lists.
    pub labels: Vec<String>,
    /// The client's `TMPDIR`, if set: a temporary directory in the sense of the write set.
    pub tmpdir: Option<String>,
    /// Capabilities that the client declares absent: see [`crate::capability`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub absent: BTreeSet<String>,
    /// Names of the environment variables that the job does not get, escaped, for the evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sealed: Vec<String>,
    /// Directory of the programs that refuse, escaped, when the contract has `refuse_shims`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shims: Option<String>,
}

/// How the wrapped command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "how", content = "code")]
pub enum Outcome {
    /// Exit status.
    Exited(i32),
    /// Killed by a signal.
    Signaled(i32),
    /// exec failed: found, not executable (126).
    NotExecutable,
    /// exec failed: not found (127).
    NotFound,
    /// The client was told to end (the signal); the tree was killed.
    Interrupted(i32),
}

/// What the daemon answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// Answer to `Hello`.
    Hello {
        /// Version that this connection speaks.
        version: u32,
        /// Program version.
        program: String,
    },
    /// Answer to `Start`.
    Started {
        /// The job's id.
        job: String,
        /// One-time token for `Enter`.
        token: String,
        /// Things that the client should show on stderr, a line each.
        notes: Vec<String>,
    },
    /// Answer to `Start`: the job does not run, because the host is declared to lack what its contract requires.
    Lacking {
        /// The capabilities, with their meanings.
        absent: BTreeMap<String, String>,
    },
    /// Answer to `Capability`.
    Capability {
        /// The capability's meaning.
        meaning: String,
        /// It is declared absent; the unit is listed as skipped.
        absent: bool,
    },
    /// Answer to `Enter`: the peer is in the job now.
    Entered,
    /// Answer to `Finish`, and to `Show`.
    Sealed(Box<Sealed>),
    /// Answer to `Stop`.
    Stopped,
    /// Answer to `Ps`.
    Jobs {
        /// Newest last.
        jobs: Vec<JobInfo>,
    },
    /// Answer to `Status`.
    Status(Box<Status>),
    /// A live or kept event.
    Event(Box<StreamEvent>),
    /// The reader was too slow: this many events were not sent.
    Lagged {
        /// How many.
        missed: u64,
    },
    /// The job ended; nothing follows.
    End {
        /// Its verdict words.
        verdict: Vec<String>,
    },
    /// The request was refused or failed. One sentence: operation, subject, cause, hint.
    Error {
        /// The sentence.
        message: String,
    },
}

/// A finished job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sealed {
    /// The job's id.
    pub job: String,
    /// The ledger.
    pub ledger: Ledger,
    /// The evidence.
    pub evidence: Evidence,
    /// The contract's text that the job was judged by.
    pub contract: Option<String>,
    /// Where the contract came from.
    pub contract_source: Option<String>,
    /// Exit code by the table of verdicts.
    pub exit_code: i32,
    /// What the verdict rests on: a reader has neither the client's environment nor the daemon's configuration to judge again.
    pub judgement: Judgement,
    /// How the command ended; `None` when the lease was lost.
    pub outcome: Option<Outcome>,
    /// Sentences for the reader: leftovers, killed at the budget, lost, and so on.
    pub notes: Vec<String>,
    /// argv for display.
    pub argv: Vec<String>,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
}

/// One line of `ps`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobInfo {
    /// The job's id.
    pub job: String,
    /// Whose.
    pub uid: u32,
    /// `starting`, `running`, `sealing`, `done`, `lost`.
    pub state: String,
    /// argv for display.
    pub argv: Vec<String>,
    /// Working directory for display.
    pub cwd: String,
    /// Labels.
    pub labels: Vec<String>,
    /// Seconds since the epoch at start.
    pub started: u64,
    /// Events so far.
    pub events: u64,
    /// User CPU seconds so far.
    pub cpu_sec: u64,
    /// Verdict words of a finished job.
    pub verdict: Vec<String>,
}

/// What `status` shows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Program version.
    pub program: String,
    /// Process id.
    pub pid: u32,
    /// `tracepoint` or `fentry`.
    pub probe_set: String,
    /// Why the `fentry` set is not in use, when the daemon was left to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// The set resists a hostile thread.
    pub race_free: bool,
    /// Programs attached now.
    pub attached: Vec<String>,
    /// What the set does not cover, a phrase each.
    pub not_covered: Vec<String>,
    /// What is not refused to a job whose network is enforced, a phrase each.
    #[serde(default)]
    pub not_denied: Vec<String>,
    /// Where cgroup2 is mounted.
    pub cgroup_root: String,
    /// Kernel release.
    pub kernel: String,
    /// Running jobs of all users.
    pub running: usize,
    /// Limit on them.
    pub max_jobs: usize,
    /// Resident memory in bytes.
    pub rss: u64,
    /// Events seen since start.
    pub events: u64,
    /// Events lost since start.
    pub lost: u64,
    /// Where ledgers are stored.
    pub store: String,
    /// Capabilities that the operator declares absent.
    #[serde(default)]
    pub absent: BTreeSet<String>,
    /// Whether a client may declare more of them.
    #[serde(default)]
    pub allow_client_absent: bool,
}

/// An event as `tail` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEvent {
    /// Counts from 1 in each job.
    pub seq: u64,
    /// Milliseconds since the job began.
    pub ms: u64,
    /// Name of the kind.
    pub kind: String,
    /// Process id.
    pub pid: u32,
    /// The process' program, escaped, when known.
    pub exe: Option<String>,
    /// What it did: `open`, `create`, `unlink`, `connect`, `exec`, ...
    pub op: String,
    /// Upon what, in an entry's form, escaped.
    pub subject: String,
}

/// Why a line could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Longer than the bound.
    #[error("a message of more than {0} bytes")]
    TooLong(usize),
    /// Not a message of this protocol.
    #[error("not a message of this protocol: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// One message as a line, the newline included.
///
/// # Errors
/// When the message cannot be written as JSON, or is longer than `limit`.
pub fn encode<T: Serialize>(message: &T, limit: usize) -> Result<Vec<u8>, FrameError> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    if line.len() > limit {
        return Err(FrameError::TooLong(limit));
    }
    Ok(line)
}

/// A message from a line, with or without its newline.
///
/// # Errors
/// When the line is longer than `limit` or is not such a message.
pub fn decode<T: for<'de> Deserialize<'de>>(line: &[u8], limit: usize) -> Result<T, FrameError> {
    if line.len() > limit {
        return Err(FrameError::TooLong(limit));
    }
    Ok(serde_json::from_slice(line)?)
}
