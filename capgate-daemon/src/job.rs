//! One job, from its start to its end: who may enter it, what ends it, how far it is.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use capgate_common::{
    capability::{Declaration, check_unit},
    protocol::{JobInfo, Start},
};
use rustix::process::Signal;

use crate::{
    cgroup::{CgroupError, Hierarchy, JobCgroup},
    id::{JobId, Token},
    peer::{NamespacePins, Namespaces, Peer, PeerError},
    proc,
    recorder::{Entered, Recording},
    skips::{SkipError, Skips},
    store::{self, Record},
    stream::{Stream, Subscription},
};

/// Arguments that lists show, and bytes of each.
const SHOWN_ARGS: usize = 64;
const SHOWN_BYTES: usize = 256;

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its cgroup is there and empty.
    Starting,
    /// Its first process has entered.
    Running,
    /// Its command has ended, or it was ended.
    Sealing,
    /// Sealed and stored.
    Done,
    /// Ended without a ledger.
    Lost,
}

impl Phase {
    /// The word for it in lists.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Sealing => "sealing",
            Self::Done => store::DONE,
            Self::Lost => store::LOST,
        }
    }
}

/// Why somebody may not enter.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The token was used.
    #[error("the token was used before: a job is entered once")]
    Used,
    /// The job is not waiting for anybody any more.
    #[error("the job has ended")]
    Ended,
    /// Not one of the lease's user's processes through and through.
    #[error("the process runs with uids {found:?}, the job belongs to uid {uid}")]
    Uid {
        /// Real, effective, saved and file system uid of the process.
        found: [u32; 4],
        /// The lease's uid.
        uid: u32,
    },
    /// It is not where the client is.
    #[error(
        "the process is not in the cgroup and the namespaces of the client that started the job"
    )]
    Elsewhere,
    /// The process itself cannot be told.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The kernel refuses.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// It was moved, and then was somewhere else.
    #[error("the process did not stay in the job's cgroup")]
    DidNotStay,
}

/// What every part of the daemon may know about a job.
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Whose.
    pub uid: u32,
    /// It was started by one of the host's own processes, see [`crate::peer::Home`].
    pub home: bool,
    /// The namespaces of the client that started it.
    pub namespaces: Namespaces,
    /// What the client asked for.
    pub start: Start,
    /// Its cgroup.
    pub cgroup: JobCgroup,
    /// Its live events.
    pub stream: Arc<Stream>,
    /// When it began.
    pub began: Instant,
    /// User CPU seconds that its contract allows; `None` when it is only recorded.
    pub cpu_budget: Option<u64>,
    pins: Option<NamespacePins>,
    client_cgroup: (PathBuf, u64),
    token: Token,
    declaration: Declaration,
    state: Mutex<State>,
}

/// What a job is made of.
pub struct Parts {
    /// See [`Job::id`].
    pub id: JobId,
    /// See [`Job::start`].
    pub start: Start,
    /// See [`Job::cgroup`].
    pub cgroup: JobCgroup,
    /// See [`Job::stream`].
    pub stream: Arc<Stream>,
    /// See [`Job::began`].
    pub began: Instant,
    /// Cgroup of the client, and the id of it.
    pub client_cgroup: (PathBuf, u64),
    /// The secret that lets a process enter.
    pub token: Token,
    /// What keeps the client's namespaces; `None` for the host's own.
    pub pins: Option<NamespacePins>,
    /// Its recording.
    pub recording: Box<dyn Recording>,
    /// What is declared absent for it.
    pub declaration: Declaration,
}

struct State {
    phase: Phase,
    recording: Option<Box<dyn Recording>>,
    /// Events when the recording was taken away to be closed.
    events: u64,
    entered: Option<Entered>,
    /// Who ended the job from outside.
    stopped_by: Option<String>,
    over_budget: bool,
    skips: Skips,
    verdict: Vec<String>,
}

impl Job {
    /// A job of `peer`.
    #[must_use]
    pub fn new(peer: &Peer, parts: Parts) -> Self {
        Self {
            id: parts.id,
            uid: peer.uid,
            home: peer.home,
            namespaces: peer.namespaces,
            start: parts.start,
            cgroup: parts.cgroup,
            stream: parts.stream,
            began: parts.began,
            cpu_budget: parts.recording.cpu_budget(),
            pins: parts.pins,
            client_cgroup: parts.client_cgroup,
            token: parts.token,
            declaration: parts.declaration,
            state: Mutex::new(State {
                phase: Phase::Starting,
                recording: Some(parts.recording),
                events: 0,
                entered: None,
                stopped_by: None,
                over_budget: false,
                skips: Skips::default(),
                verdict: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while it is held leaves a job that ends as any other.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `text` is this job's token.
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        self.token.matches(text)
    }

    /// The secret, for the client that started the job.
    #[must_use]
    pub fn token(&self) -> &str {
        self.token.reveal()
    }

    /// Moves the peer, which showed the token, into the job.
    ///
    /// # Errors
    /// When the peer is not what it should be, or somebody has entered before.
    pub fn enter(&self, peer: &Peer, hierarchy: &Hierarchy) -> Result<(), EnterError> {
        let mut state = self.lock();
        match state.phase {
            Phase::Starting if state.stopped_by.is_none() && !state.over_budget => {}
            Phase::Running => return Err(EnterError::Used),
            _ => return Err(EnterError::Ended),
        }
        self.check_entrant(peer, hierarchy)?;
        self.cgroup.admit(peer.pid)?;
        // It is in, whatever follows: no second one may come.
        state.phase = Phase::Running;
        let entered = state.entered.insert(Entered {
            pid: peer.pid,
            inherited: Vec::new(),
        });
        // Alive now and with the right cgroup: so it was this process that was moved, and no later one with its id.
        let path = peer.cgroup()?;
        if !self.cgroup.contains(&path) {
            return Err(EnterError::DidNotStay);
        }
        self.check_uids(peer)?;
        // After the move, so that what it opened until now is in this list and what it opens later is recorded.
        entered.inherited = proc::writable_fds(peer.pid).map_err(|cause| PeerError::Unknown {
            what: "its descriptors",
            cause,
        })?;
        Ok(())
    }

    /// Whether a process may enter, as far as its token does not say.
    fn check_entrant(&self, peer: &Peer, hierarchy: &Hierarchy) -> Result<(), EnterError> {
        // That it began before its connection was accepted was checked when it was.
        self.check_uids(peer)?;
        let cgroup = peer.cgroup()?;
        let id = hierarchy.id(&cgroup)?;
        if (cgroup, id) != self.client_cgroup || peer.namespaces != self.namespaces {
            return Err(EnterError::Elsewhere);
        }
        Ok(())
    }

    fn check_uids(&self, peer: &Peer) -> Result<(), EnterError> {
        let found = peer.uids()?;
        if found == [self.uid; 4] && peer.uid == self.uid {
            Ok(())
        } else {
            Err(EnterError::Uid {
                found,
                uid: self.uid,
            })
        }
    }

    /// Whether `peer` may see and stop what it started: the same user, and for one in other namespaces than the host's
    /// the same namespaces.
    #[must_use]
    pub fn belongs_to(&self, peer: &Peer) -> bool {
        peer.uid == self.uid
            && (peer.home || (self.pins.is_some() && peer.namespaces == self.namespaces))
    }

    /// Tells one of the job's own processes whether a capability is absent, with its meaning; then its unit is skipped.
    ///
    /// # Errors
    /// When the names are none, there are too many skips, or the job has ended.
    pub fn need(&self, capability: &str, unit: &str) -> Result<(String, bool), SkipError> {
        check_unit(unit)?;
        let (meaning, absent) = self.declaration.look_up(capability)?;
        if absent {
            let mut state = self.lock();
            if state.phase != Phase::Running {
                return Err(SkipError::Ended);
            }
            let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            state.skips.add(capability, unit, ms)?;
        }
        Ok((meaning.to_owned(), absent))
    }

    /// What is declared absent for it, and the units that were skipped for that.
    #[must_use]
    pub fn skipped(&self) -> (&Declaration, Skips) {
        (&self.declaration, self.lock().skips.clone())
    }

    /// Ends the job from outside: it is killed, and sealed as interrupted.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn stop(&self, who: &str) -> Result<(), CgroupError> {
        let mut state = self.lock();
        match state.phase {
            Phase::Starting | Phase::Running => {
                state.stopped_by.get_or_insert_with(|| who.to_owned());
                self.cgroup.kill()
            }
            // Its command has ended by itself: only what is left of it is killed earlier.
            Phase::Sealing => self.cgroup.kill(),
            Phase::Done | Phase::Lost => Ok(()),
        }
    }

    /// Tells the job that it has used up its CPU time.
    pub fn over_budget(&self) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Done | Phase::Lost) {
            return;
        }
        state.over_budget = true;
        if let Err(error) = self.cgroup.signal(Signal::XCPU) {
            tracing::warn!(job = %self.id, %error, "cannot send SIGXCPU");
        }
    }

    /// Notes that a job which is about to be killed has used more CPU time than its budget, even if it was not told so: what a
    /// command leaves behind ends earlier than a job that goes on.
    pub fn end_over_budget(&self) {
        self.lock().over_budget = true;
    }

    /// Kills a job that has used up its CPU time and was told so.
    pub fn kill_over_budget(&self) {
        let state = self.lock();
        if matches!(state.phase, Phase::Done | Phase::Lost) {
            return;
        }
        if let Err(error) = self.cgroup.kill() {
            tracing::error!(job = %self.id, %error, "cannot kill a job over its CPU budget");
        }
    }

    /// User CPU time so far, in microseconds; `None` when the cgroup is gone.
    #[must_use]
    pub fn user_usec(&self) -> Option<u64> {
        self.cgroup.user_usec().ok()
    }

    /// Whether it is sealed or lost.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.lock().phase, Phase::Done | Phase::Lost)
    }

    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Ends the time in which it runs; false when that was done before.
    #[must_use]
    pub fn begin_sealing(&self) -> bool {
        let mut state = self.lock();
        let runs = matches!(state.phase, Phase::Starting | Phase::Running);
        if runs {
            state.phase = Phase::Sealing;
        }
        runs
    }

    /// Takes out the recording, to close it, with what is known of the first process; `None` when that was done before.
    #[must_use]
    pub fn take_recording(&self) -> Option<(Box<dyn Recording>, Option<Entered>)> {
        let mut state = self.lock();
        let recording = state.recording.take()?;
        state.events = recording.events();
        Some((recording, state.entered.take()))
    }

    /// Begins to follow its events.
    #[must_use]
    pub fn follow(&self, backlog: bool) -> Subscription {
        match &self.lock().recording {
            Some(recording) => recording.follow(backlog),
            None => Subscription {
                backlog: Vec::new(),
                live: self.stream.subscribe(),
            },
        }
    }

    /// Who ended it from outside, if somebody did.
    #[must_use]
    pub fn stopped_by(&self) -> Option<String> {
        self.lock().stopped_by.clone()
    }

    /// Whether it was signalled or killed because of its CPU budget.
    #[must_use]
    pub fn was_over_budget(&self) -> bool {
        self.lock().over_budget
    }

    /// Ends it, unless that was done before: then false.
    pub fn end(&self, phase: Phase, verdict: Vec<String>) -> bool {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Done | Phase::Lost) {
            return false;
        }
        state.phase = phase;
        state.verdict = verdict;
        // Of a job that never came to its end.
        state.recording = None;
        true
    }

    /// Its verdict words, when it has any.
    #[must_use]
    pub fn verdict(&self) -> Vec<String> {
        self.lock().verdict.clone()
    }

    /// What is kept of it, as it is now. `user_usec`: its CPU time, when that is known already.
    #[must_use]
    pub fn record(&self, user_usec: Option<u64>) -> Record {
        let user_usec = user_usec.or_else(|| self.user_usec()).unwrap_or(0);
        let state = self.lock();
        let events = match &state.recording {
            Some(recording) => recording.events(),
            None => state.events,
        };
        Record {
            info: JobInfo {
                job: self.id.to_string(),
                uid: self.uid,
                state: state.phase.word().to_owned(),
                argv: shown(&self.start.argv),
                cwd: cut(&self.start.cwd),
                labels: shown(&self.start.labels),
                started: self.id.started(),
                events,
                cpu_sec: user_usec / 1_000_000,
                verdict: state.verdict.clone(),
            },
            home: self.home,
        }
    }
}

/// Texts for a list, not too many of them.
#[must_use]
pub fn shown(texts: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = texts
        .iter()
        .take(SHOWN_ARGS)
        .map(|text| cut(text))
        .collect();
    if texts.len() > SHOWN_ARGS {
        shown.push("…".to_owned());
    }
    shown
}

/// A text for a list, not too long.
fn cut(text: &str) -> String {
    if text.len() <= SHOWN_BYTES {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(SHOWN_BYTES);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_cut_for_lists() {
        let words = vec!["x".to_owned(); 100];
        assert_eq!(shown(&words).len(), SHOWN_ARGS + 1);
        assert_eq!(shown(&["é".repeat(200)])[0].chars().count(), 129);
        assert_eq!(shown(&["short".to_owned()]), ["short"]);
    }
}
