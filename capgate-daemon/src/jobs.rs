//! All jobs: what may begin, what runs, what was sealed, and who may see it.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use capgate_common::{
    capability::{self, Declaration},
    contract::Contract,
    discretion::Discretion,
    protocol::{JobInfo, Sealed, Start, Status},
};
use rustix::fs::FileType;

use crate::{
    cgroup::{Hierarchy, Mark},
    config::Config,
    cpu::CpuWatch,
    id::{JobId, Token},
    job::{Job, Parts, Phase},
    lease::{Lease, remove},
    peer::{Peer, PeerError},
    proc,
    recorder::{Opening, RecordError, Recorder},
    refusal::JobError,
    store::{self, Store, StoreError},
    stream::Stream,
    support,
};

/// Why there may be no more.
#[derive(Default)]
struct Inner {
    running: BTreeMap<JobId, Arc<Job>>,
    /// Jobs of each user that are running, starting or stuck.
    of_user: HashMap<u32, usize>,
    total: usize,
    stopping: bool,
}

/// All jobs of this daemon.
pub struct Jobs {
    config: Config,
    hierarchy: Hierarchy,
    kernel: String,
    store: Store,
    recorder: Box<dyn Recorder>,
    watch: CpuWatch,
    inner: Mutex<Inner>,
}

/// The right to one more job. Held for as long as anything of the job takes memory or a thread.
pub struct Slot {
    jobs: Arc<Jobs>,
    uid: u32,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut inner = self.jobs.lock();
        inner.total -= 1;
        if let Some(count) = inner.of_user.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                inner.of_user.remove(&self.uid);
            }
        }
    }
}

impl Jobs {
    /// No jobs yet. What a crashed daemon left in the store is marked as lost.
    ///
    /// # Errors
    /// When the store or a thread fails.
    pub fn new(
        config: Config,
        hierarchy: Hierarchy,
        kernel: String,
        store: Store,
        recorder: Box<dyn Recorder>,
    ) -> Result<Arc<Self>, JobError> {
        for id in store.ids()? {
            // What cannot be read is left for `prune`.
            if let Ok(record) = store.record(&id)
                && ![store::DONE, store::LOST].contains(&record.info.state.as_str())
            {
                tracing::warn!(job = %id, "the daemon before this one lost a job");
                if let Err(error) = store.lose(&id, &record) {
                    tracing::warn!(job = %id, %error, "cannot mark a job as lost");
                }
            }
        }
        Ok(Arc::new(Self {
            config,
            hierarchy,
            kernel,
            store,
            recorder,
            watch: CpuWatch::start().map_err(JobError::System)?,
            inner: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change below is whole before anything can panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operator's configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where sealed jobs go.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The cgroup hierarchy.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Takes the right to one more job.
    ///
    /// # Errors
    /// When there are enough.
    pub fn reserve(self: &Arc<Self>, uid: u32) -> Result<Slot, JobError> {
        let limit = self.config.per_uid;
        let mut inner = self.lock();
        let own = inner.of_user.get(&uid).copied().unwrap_or(0);
        if inner.stopping {
            return Err(JobError::Stopping);
        }
        if inner.total >= self.config.max_jobs {
            return Err(JobError::TooManyJobs(inner.total));
        }
        if own >= limit.jobs {
            return Err(JobError::TooManyOfUser { uid, jobs: own });
        }
        inner.total += 1;
        *inner.of_user.entry(uid).or_default() += 1;
        Ok(Slot {
            jobs: Arc::clone(self),
            uid,
        })
    }

    /// Opens a job for `peer`. Takes a while, and as long as the client's file systems take to answer.
    ///
    /// # Errors
    /// When the request is not right, or something refuses. Nothing is left behind then.
    pub fn start(
        self: &Arc<Self>,
        slot: Slot,
        peer: &Peer,
        mut start: Start,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Lease, JobError> {
        let declaration = self.declaration(&start)?;
        let count = descriptors.len();
        let [root, slash]: [OwnedFd; 2] = descriptors
            .try_into()
            .map_err(|_| JobError::Descriptors(count))?;
        check_directory(&root, "root directory")?;
        check_directory(&slash, "client's /")?;
        let facts = self.recorder.facts();
        if self.config.require_race_free && !facts.race_free {
            return Err(JobError::NotRaceFree(facts.probe_set));
        }
        let id = JobId::new().map_err(JobError::System)?;
        let token = Token::new().map_err(JobError::System)?;
        let mark = Mark::ours(id.as_str()).map_err(JobError::System)?;
        // The command gets the client's environment unchanged. Looked at before the peer is found to be alive, so that it is its own.
        let environ = proc::environ(peer.pid).map_err(|cause| PeerError::Unknown {
            what: "its environment, whose secrets are not to be kept",
            cause,
        })?;
        let discretion = Discretion::new(self.config.argv, &environ);
        start.argv = discretion.keep(&start.argv);
        for label in &mut start.labels {
            *label = discretion.keep_text(label);
        }
        let client_cgroup = peer.cgroup()?;
        let client_cgroup_id = self.hierarchy.id(&client_cgroup)?;
        // Of the host's own namespaces there is one of each, for ever.
        let pins = (!peer.home).then(|| peer.pin_namespaces()).transpose()?;
        let cgroup = self.hierarchy.make(&client_cgroup, &mark)?;
        let stream = Stream::new();
        let opened = self.recorder.open(Opening {
            cgroup: &cgroup,
            uid: peer.uid,
            client_pid: peer.pid,
            client_netns: peer.netns,
            start: &start,
            discretion: &discretion,
            root,
            slash,
            began_ns: proc::now_ns(),
            most_events: self.config.per_uid.events,
            memory: self.config.per_uid.memory_of_job(),
            stream: Arc::clone(&stream),
        });
        let recording = match opened {
            Ok(recording) => recording,
            Err(error) => {
                remove(&id, &cgroup);
                return Err(error.into());
            }
        };
        let job = Job::new(
            peer,
            Parts {
                id,
                start,
                cgroup,
                stream,
                began: Instant::now(),
                client_cgroup: (client_cgroup, client_cgroup_id),
                token,
                pins,
                recording,
                declaration,
            },
        );
        let job = Arc::new(job);
        if let Err(error) = self.admit(&job) {
            job.end(Phase::Lost, Vec::new());
            remove(&job.id, &job.cgroup);
            return Err(error);
        }
        let lease = Lease::new(Arc::clone(self), Arc::clone(&job), slot);
        if let Some(budget) = job.cpu_budget {
            self.watch.watch(&job, budget);
        }
        tracing::info!(job = %job.id, uid = job.uid, pid = peer.pid, cgroup = %job.cgroup.path().display(), "job started");
        Ok(lease)
    }

    /// What is declared absent for a job.
    fn declaration(&self, start: &Start) -> Result<Declaration, JobError> {
        let Config {
            absent,
            allow_client_absent,
            ..
        } = &self.config;
        if !start.absent.is_empty() && !allow_client_absent {
            return Err(JobError::MayNotDeclare);
        }
        let client = capability::names(start.absent.iter().map(String::as_str))
            .map_err(|cause| JobError::Declared { cause })?;
        let contract = start
            .contract
            .as_ref()
            .map(|text| Contract::from_json(text.as_bytes()))
            .transpose()
            .map_err(|error| RecordError(error.to_string()))?;
        let declaration = Declaration::new(contract.as_ref(), absent, &client)
            .map_err(|cause| JobError::Declared { cause })?;
        let requires = contract.iter().flat_map(|contract| &contract.requires);
        let lacking: BTreeMap<String, String> = requires
            .filter_map(|name| match declaration.look_up(name) {
                Ok((meaning, true)) => Some((name.clone(), meaning.to_owned())),
                _ => None,
            })
            .collect();
        if lacking.is_empty() {
            Ok(declaration)
        } else {
            Err(JobError::Lacking(lacking))
        }
    }

    /// The running job that a cgroup lies in.
    #[must_use]
    pub fn holding(&self, cgroup: &Path) -> Option<Arc<Job>> {
        let inner = self.lock();
        let job = inner
            .running
            .values()
            .find(|job| job.cgroup.contains(cgroup));
        job.cloned()
    }

    /// Keeps a job in the store and in the list of those that run.
    fn admit(&self, job: &Arc<Job>) -> Result<(), JobError> {
        self.store.begin(&job.id, &job.record(Some(0)))?;
        let mut inner = self.lock();
        if inner.stopping {
            self.store.forget(&job.id);
            return Err(JobError::Stopping);
        }
        inner.running.insert(job.id.clone(), Arc::clone(job));
        Ok(())
    }

    /// Moves `peer` into the job that `token` is for.
    ///
    /// # Errors
    /// When there is none, or the peer may not.
    pub fn enter(&self, peer: &Peer, token: &str) -> Result<JobId, JobError> {
        let job = {
            let inner = self.lock();
            // All are compared, so that the time does not tell which one is near.
            inner
                .running
                .values()
                .fold(
                    None,
                    |found, job| if job.holds(token) { Some(job) } else { found },
                )
                .cloned()
                .ok_or(JobError::WrongToken)?
        };
        match job.enter(peer, &self.hierarchy) {
            Ok(()) => {
                tracing::debug!(job = %job.id, pid = peer.pid, "command entered");
                Ok(job.id.clone())
            }
            Err(error) => {
                tracing::warn!(job = %job.id, pid = peer.pid, uid = peer.uid, %error, "refused to let a process enter");
                Err(error.into())
            }
        }
    }

    /// A running job that `peer` may read.
    fn readable(&self, peer: &Peer, id: &JobId) -> Option<Arc<Job>> {
        let job = self.lock().running.get(id).cloned()?;
        (is_root(peer) || job.belongs_to(peer)).then_some(job)
    }

    /// Stops a job, on root's behalf.
    ///
    /// # Errors
    /// When there is no such job, or the peer is not root.
    pub fn stop(&self, peer: &Peer, text: &str) -> Result<(), JobError> {
        let id = parse(text)?;
        let job = self
            .readable(peer, &id)
            .ok_or_else(|| JobError::NoSuchJob(text.to_owned()))?;
        if !is_root(peer) {
            return Err(JobError::MayNotStop(id));
        }
        tracing::info!(job = %id, pid = peer.pid, "job stopped by root");
        Ok(job.stop("root")?)
    }

    /// Every job that `peer` may see, oldest first.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn list(&self, peer: &Peer) -> Result<Vec<JobInfo>, JobError> {
        let running: Vec<Arc<Job>> = self.lock().running.values().cloned().collect();
        let mut found: BTreeMap<JobId, JobInfo> = running
            .iter()
            .filter(|job| is_root(peer) || job.belongs_to(peer))
            .map(|job| (job.id.clone(), job.record(None).info))
            .collect();
        for id in self.store.ids()? {
            if running.iter().any(|job| job.id == id) {
                continue;
            }
            match self.store.record(&id) {
                Ok(mut record) if may_read_stored(peer, &record) => {
                    if ![store::DONE, store::LOST].contains(&record.info.state.as_str()) {
                        store::LOST.clone_into(&mut record.info.state);
                    }
                    found.insert(id, record.info);
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(job = %id, %error, "cannot list a stored job"),
            }
        }
        Ok(found.into_values().collect())
    }

    /// A sealed job.
    ///
    /// # Errors
    /// When there is none of that id that `peer` may read.
    pub fn show(&self, peer: &Peer, text: &str) -> Result<Sealed, JobError> {
        let id = parse(text)?;
        if let Some(job) = self.readable(peer, &id) {
            return Err(JobError::NotSealed(id, job.phase().word()));
        }
        let missing = || JobError::NoSuchJob(text.to_owned());
        let record = match self.store.record(&id) {
            Err(StoreError::NoSuchJob(_)) => return Err(missing()),
            other => other?,
        };
        if !may_read_stored(peer, &record) {
            return Err(missing());
        }
        match self.store.sealed(&id) {
            Err(StoreError::NoSuchJob(_)) => Err(JobError::NoLedger(id)),
            other => Ok(other?),
        }
    }

    /// A job to follow.
    ///
    /// # Errors
    /// When there is no job of that id that `peer` may read.
    pub fn find(&self, peer: &Peer, text: &str) -> Result<Found, JobError> {
        let id = parse(text)?;
        if let Some(job) = self.readable(peer, &id) {
            return Ok(Found::Running(job));
        }
        match self.store.record(&id) {
            Ok(record) if may_read_stored(peer, &record) => Ok(Found::Over(record.info.verdict)),
            Ok(_) | Err(StoreError::NoSuchJob(_)) => Err(JobError::NoSuchJob(text.to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    /// What the daemon is and does.
    #[must_use]
    pub fn status(&self) -> Status {
        let facts = self.recorder.facts();
        let running = self.lock().running.len();
        Status {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            probe_set: facts.probe_set.to_owned(),
            fallback: facts.fallback,
            race_free: facts.race_free,
            attached: facts.attached,
            not_covered: facts.not_covered,
            not_denied: facts.not_denied,
            cgroup_root: self.hierarchy.root().display().to_string(),
            kernel: self.kernel.clone(),
            running,
            max_jobs: self.config.max_jobs,
            rss: support::resident_bytes(),
            events: facts.events,
            lost: facts.lost,
            store: self.store.path().display().to_string(),
            absent: self.config.absent.clone(),
            allow_client_absent: self.config.allow_client_absent,
        }
    }

    /// Takes no new jobs from now on.
    pub fn stop_taking(&self) {
        self.lock().stopping = true;
    }

    /// No job runs.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.lock().total == 0
    }

    /// Lets the recorder rest, if no job runs.
    pub fn rest(&self) {
        self.recorder.rest();
    }

    /// Removes from the store what need not be kept.
    pub fn prune(&self) {
        let runs = |id: &JobId| self.lock().running.contains_key(id);
        if let Err(error) = self.store.prune(&self.config.store, runs) {
            tracing::warn!(%error, "cannot remove old jobs from the store");
        }
    }

    /// The end of every job, sealed or not: it runs no more.
    pub(crate) fn conclude(&self, job: &Job, result: &Result<Sealed, JobError>) {
        match result {
            Ok(sealed) => {
                tracing::info!(job = %job.id, verdict = %sealed.judgement.headline, exit_code = sealed.exit_code, "job sealed");
            }
            Err(error) => {
                tracing::error!(job = %job.id, %error, "job lost");
                if job.end(Phase::Lost, Vec::new()) {
                    remove(&job.id, &job.cgroup);
                    if let Err(error) = self.store.lose(&job.id, &job.record(Some(0))) {
                        tracing::warn!(job = %job.id, %error, "cannot mark a job as lost");
                    }
                }
            }
        }
        self.lock().running.remove(&job.id);
        job.stream.close();
    }

    /// Gives up a job whose sealing does not come to an end.
    pub fn give_up(&self, job: &Job) {
        self.conclude(job, &Err(JobError::GivenUp(job.id.clone())));
    }

    /// Ends the use of the store, when nobody else has a part of this.
    ///
    /// # Errors
    /// When the store cannot be closed.
    pub fn close(self: Arc<Self>) -> Result<(), StoreError> {
        match Arc::try_unwrap(self) {
            Ok(jobs) => jobs.store.close(),
            Err(_) => {
                tracing::warn!("something still uses the store");
                Ok(())
            }
        }
    }
}

/// What there is to follow.
pub enum Found {
    /// A job that runs.
    Running(Arc<Job>),
    /// One that is over, with its verdict words.
    Over(Vec<String>),
}

/// Whether this is the host's root.
fn is_root(peer: &Peer) -> bool {
    peer.home && peer.uid == 0
}

/// Whether `peer` may read a job of the store. One in other namespaces has nothing to prove that it started it: the
/// namespaces that the job came from are gone.
fn may_read_stored(peer: &Peer, record: &store::Record) -> bool {
    peer.home && (peer.uid == 0 || peer.uid == record.info.uid)
}

fn parse(text: &str) -> Result<JobId, JobError> {
    JobId::parse(text).ok_or_else(|| JobError::NoSuchJob(text.chars().take(64).collect()))
}

fn check_directory(descriptor: &OwnedFd, what: &'static str) -> Result<(), JobError> {
    let stat = rustix::fs::fstat(descriptor).map_err(|errno| JobError::Descriptor {
        what,
        cause: errno.into(),
    })?;
    if FileType::from_raw_mode(stat.st_mode).is_dir() {
        Ok(())
    } else {
        Err(JobError::NotDirectory { what })
    }
}
