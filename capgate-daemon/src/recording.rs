//! The real recorder: probes, one drain and one session for each job.

use std::{
    collections::BTreeSet,
    fs,
    net::IpAddr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use capgate_common::{
    contract::Contract,
    event::{Counters, Mounted},
    evidence::Evidence,
    pathform::{self, Forms},
    rules::Rules,
    suite::Tests,
};
use nix::unistd::{Uid, User};

use crate::{
    decode::DecodeError,
    dns::configured::{Configured, MOST_BYTES},
    drain::{self, Drain, Take},
    enforcement::Plan,
    event::Event,
    forwarder::Ready,
    junit,
    look::{JobRoot, Look as _},
    loss, memory,
    mounts::{Mounts, newest},
    permit::NOT_DENIED,
    probes::{At, JobSlot, Probes, ProbesError},
    recorder::{Closing, Facts, Opening, RecordError, Recorded, Recorder, Recording},
    refused::{Place, Refused},
    resolve::Places,
    session::{self, JobView, Limits, Session},
    stream::{Stream, Subscription},
};

mod enforced;

use enforced::Enforced;

/// How long looking at a job's names may take when it is sealed.
const LOOK_PATIENCE: Duration = Duration::from_secs(30);

/// An error of another room, as this border has it.
fn sentence(error: impl std::fmt::Display) -> RecordError {
    RecordError(error.to_string())
}

/// What all recordings share.
struct Shared {
    probes: Mutex<Kernel>,
    /// Records received by all jobs.
    events: AtomicU64,
    /// Records lost by jobs that are closed.
    lost: AtomicU64,
}

/// The kernel's side.
struct Kernel {
    probes: Probes,
    /// Jobs in scope.
    open: usize,
}

impl Shared {
    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        // What a panic leaves is a job that keeps its slot.
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches the probes, and takes a job into scope.
    fn open(
        &self,
        cgroup_id: u64,
        level: u32,
        beginning: &Beginning,
        plan: Option<&Plan>,
    ) -> Result<(JobSlot, aya::maps::RingBuf<aya::maps::MapData>), ProbesError> {
        let mut kernel = self.kernel();
        kernel.probes.attach()?;
        let at = At {
            root: beginning.root.as_fd(),
            slash: beginning.slash.as_fd(),
            mounts: &beginning.mounts,
            newest_mount: beginning.newest_mount,
            resolvers: &beginning.resolvers,
        };
        let (slot, ring) = kernel.probes.open_job(cgroup_id, level, &at)?;
        // The job has no task yet: it is never without its rules.
        let enforced = match plan {
            Some(plan) => {
                let stand_ins = plan.forwarder.as_ref().map_or(&[][..], Ready::stand_ins);
                let netns = plan.netns;
                kernel.probes.enforce(&slot, netns, &plan.rules, stand_ins)
            }
            None => Ok(()),
        };
        if let Err(error) = enforced {
            let closed = kernel.probes.close_scope(&slot);
            let released = kernel.probes.release(slot);
            if let Err(error) = closed.and(released) {
                tracing::error!(%error, "the recording of a job that could not begin stays in the kernel");
            }
            return Err(error);
        }
        kernel.open += 1;
        Ok((slot, ring))
    }

    /// Takes a job out of scope, and says what the kernel counted for it, and how many runs of programs it skipped meanwhile.
    fn close(&self, slot: JobSlot) -> Result<(Counters, u64), ProbesError> {
        let mut kernel = self.kernel();
        kernel.open -= 1;
        let counters = kernel
            .probes
            .close_scope(&slot)
            .and_then(|()| kernel.probes.counters(&slot));
        let skipped = kernel.probes.skipped_since(&slot);
        kernel.probes.release(slot)?;
        let (counters, skipped) = (counters?, skipped?);
        let lost = counters.lost.iter().sum();
        self.lost.fetch_add(lost, Ordering::Relaxed);
        Ok((counters, skipped))
    }
}

/// Where a job began. The probes know these by identity, so they stay open as long as the job is recorded.
struct Beginning {
    root: OwnedFd,
    slash: OwnedFd,
    /// The mounts that there were.
    mounts: Vec<(u32, Mounted)>,
    /// The newest of them.
    newest_mount: Option<u64>,
    /// The resolvers that it is configured for.
    resolvers: Vec<IpAddr>,
}

/// Records jobs with the probes.
pub struct ProbeRecorder {
    shared: Arc<Shared>,
    ring_bytes: u32,
    socket: Option<Vec<u8>>,
}

impl ProbeRecorder {
    /// A recorder with these probes, which were loaded for rings of this size, of a daemon that listens at `socket`.
    #[must_use]
    pub fn new(probes: Probes, ring_bytes: u32, socket: &Path) -> Self {
        Self {
            shared: Arc::new(Shared {
                probes: Mutex::new(Kernel { probes, open: 0 }),
                events: AtomicU64::new(0),
                lost: AtomicU64::new(0),
            }),
            ring_bytes,
            // A socket that cannot be found is one that a job cannot find either.
            socket: fs::canonicalize(socket)
                .ok()
                .map(|path| path.into_os_string().into_vec()),
        }
    }
}

impl Recorder for ProbeRecorder {
    fn open(&self, opening: Opening<'_>) -> Result<Box<dyn Recording>, RecordError> {
        let slash = opening
            .slash
            .try_clone()
            .map_err(|error| sentence(format!("cannot keep the client's `/` open: {error}")))?;
        let mut beginning = Beginning {
            root: opening.root,
            slash,
            mounts: Vec::new(),
            newest_mount: None,
            resolvers: Vec::new(),
        };
        let root = JobRoot::new(beginning.root.as_fd(), opening.slash)
            .map_err(sentence)?
            .with_netns(opening.client_netns, opening.client_pid)
            .with_cgroup(opening.cgroup.path().as_os_str().as_bytes());
        let mnt_ns = fs::metadata(format!("/proc/{}/ns/mnt", opening.client_pid))
            .map_err(|error| {
                sentence(format!("cannot tell the client's mount namespace: {error}"))
            })?
            .ino();
        let own = fs::metadata("/proc/self/ns/mnt").is_ok_and(|own| own.ino() == mnt_ns);
        let mounts = if own {
            // A client in a chroot is not shown all.
            let mounts = Mounts::read(&mountinfo("self")?, b"/");
            // After the list: what comes in between is in none of both.
            beginning.newest_mount = newest::newest();
            mounts
        } else {
            Mounts::read(
                &mountinfo(&opening.client_pid.to_string())?,
                root.slash_path(),
            )
        };
        beginning.mounts = mounts.known();
        let root = root.with_mounts(mounts.ids(), beginning.newest_mount);
        let start = opening.start;
        let forms = forms(&root, opening.uid)?;
        let rules = match &start.contract {
            Some(text) => {
                let contract = Contract::from_json(text.as_bytes()).map_err(sentence)?;
                let rules = Rules::new(contract, &start.env, &forms, start.commit_rules.as_deref())
                    .map_err(sentence)?;
                Some(Arc::new(rules))
            }
            None => None,
        };
        let contract = rules.as_deref().map(Rules::contract);
        let configured = configured(&root);
        beginning.resolvers.clone_from(&configured.resolvers);
        let plan = Plan::make(start, contract, opening.client_pid, &beginning.resolvers)
            .map_err(sentence)?;
        let refused = rules
            .as_ref()
            .filter(|rules| !rules.refuse().is_empty())
            .map(|rules| {
                let place = Place {
                    forms: &forms,
                    search: start.env.get("PATH").map_or("", String::as_str),
                    real: &|path| root.real(path),
                    open: &|path| root.file(path),
                };
                Refused::find(rules.refuse(), start.shims.as_deref(), &place).map_err(sentence)
            })
            .transpose()?;
        let probe_set = self.shared.kernel().probes.set();
        // A job that is only recorded still has its `ignore_writes` and `scratch`, and is judged by nothing.
        let judged = rules.clone().filter(|_| !start.record);
        let results = judged
            .as_ref()
            .and_then(|rules| rules.contract().tests.as_ref())
            .map(|pins| Results::new(&pins.junit, &forms))
            .transpose()?;
        let view = JobView {
            rules: rules.clone(),
            contract_path: start.contract_path.as_deref().and_then(pathform::unescape),
            socket: self.socket.clone(),
            temp_dirs: start
                .tmpdir
                .as_deref()
                .and_then(|path| root.real(path.as_bytes()))
                .into_iter()
                .collect(),
            slash: root.slash_path().to_vec(),
            mnt_ns: u32::try_from(mnt_ns).unwrap_or(0),
            places: Places {
                root: root.root_path().to_vec(),
                mounts,
            },
            configured,
            netns: opening.client_netns,
            probe_set,
            started_ns: opening.began_ns,
            limits: Limits::of_memory(
                opening.memory.saturating_sub(u64::from(self.ring_bytes)),
                opening.most_events,
            ),
            discretion: opening.discretion.clone(),
            forms,
            refused,
        };
        let session = Session::open(view, Box::new(root))
            .map_err(|_| sentence("the job's share of memory is too small to record anything"))?;
        let session = Arc::new(Mutex::new(session));
        let (slot, ring) = self
            .shared
            .open(
                opening.cgroup.id(),
                opening.cgroup.level(),
                &beginning,
                plan.as_ref(),
            )
            .map_err(sentence)?;
        let taker = Taker {
            shared: Arc::clone(&self.shared),
            session: Arc::clone(&session),
            stream: Arc::clone(&opening.stream),
        };
        let drain = drain::spawn(ring, taker).map_err(|error| {
            // The error that matters is the one that is on its way.
            let _closed = self.shared.close(slot);
            sentence(error)
        })?;
        let enforced = plan.map(|plan| Enforced::begin(plan, &self.shared, slot));
        Ok(Box::new(ProbeRecording {
            shared: Arc::clone(&self.shared),
            open: Some(Open {
                slot,
                drain,
                session,
                beginning,
                enforced,
            }),
            stream: opening.stream,
            rules: judged,
            results,
            sealed: start.sealed.clone(),
        }))
    }

    fn rest(&self) {
        let mut kernel = self.shared.kernel();
        if kernel.open == 0 {
            kernel.probes.detach();
        }
        drop(kernel);
        // What a large job took is not kept for the next one.
        memory::give_back();
    }

    fn facts(&self) -> Facts {
        let kernel = self.shared.kernel();
        Facts {
            probe_set: kernel.probes.set().word(),
            fallback: kernel.probes.fallback().map(str::to_owned),
            race_free: kernel.probes.race_free(),
            attached: kernel.probes.attached(),
            not_covered: kernel.probes.not_covered(),
            not_denied: NOT_DENIED.map(str::to_owned).to_vec(),
            events: self.shared.events.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
        }
    }
}

/// The mounts that a process sees.
fn mountinfo(process: &str) -> Result<Vec<u8>, RecordError> {
    fs::read(format!("/proc/{process}/mountinfo")).map_err(|error| {
        sentence(format!(
            "cannot read the mounts of process {process}: {error}"
        ))
    })
}

/// The resolvers of a job. A file that cannot be read means what a C library takes it for: that there is none.
fn configured(root: &JobRoot) -> Configured {
    let file = root.read(b"/etc/resolv.conf", MOST_BYTES as u64);
    file.map_or_else(|_| Configured::default(), |file| Configured::read(&file))
}

/// How the paths of a job are written.
fn forms(root: &JobRoot, uid: u32) -> Result<Forms, RecordError> {
    let user = User::from_uid(Uid::from_raw(uid))
        .map_err(|errno| sentence(format!("cannot look up uid {uid}: {errno}")))?;
    let home = user.map(|user| {
        let home = user.dir.as_os_str().as_bytes();
        root.real(home).unwrap_or_else(|| home.to_vec())
    });
    Forms::new(root.root_path(), home.as_deref(), uid).map_err(sentence)
}

/// What the drain hands events to.
struct Taker {
    shared: Arc<Shared>,
    session: Arc<Mutex<Session>>,
    stream: Arc<Stream>,
}

/// A session, even after a panic while it was used: what it then lacks, its counts tell.
fn lock(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Take for Taker {
    fn take(&mut self, event: Event) {
        self.shared.events.fetch_add(1, Ordering::Relaxed);
        let mut session = lock(&self.session);
        // Sent under the lock, so that whoever begins to follow gets each event once.
        if let Some(event) = session.apply(event, self.stream.is_read()) {
            self.stream.send(event);
        }
    }

    fn reject(&mut self, error: DecodeError) {
        tracing::warn!(%error, "a record of the probes could not be read");
        lock(&self.session).reject();
    }
}

/// A recording that goes on.
struct Open {
    slot: JobSlot,
    drain: Drain<Taker>,
    session: Arc<Mutex<Session>>,
    beginning: Beginning,
    enforced: Option<Enforced>,
}

/// One job's recording.
struct ProbeRecording {
    shared: Arc<Shared>,
    /// `None` once it is closed.
    open: Option<Open>,
    stream: Arc<Stream>,
    rules: Option<Arc<Rules>>,
    results: Option<Results>,
    /// Names of the environment variables that the job does not get.
    sealed: Vec<String>,
}

/// The file of test results that the contract names.
struct Results {
    /// Relative to the root.
    path: String,
    /// As an entry of the write set.
    entry: String,
}

impl Results {
    fn new(path: &str, forms: &Forms) -> Result<Self, RecordError> {
        let entry = forms
            .in_root(path.as_bytes())
            .ok_or_else(|| sentence(format!("the results {path} are not a file in the root")))?
            .entry;
        Ok(Self {
            path: path.to_owned(),
            entry,
        })
    }

    /// Counts them. What the job did not write is a file of another day.
    fn count(&self, root: BorrowedFd<'_>, record: &session::Record) -> Tests {
        let written = &record.recording.write_paths;
        if written.contains(&self.entry) || record.ignored.contains(&self.entry) {
            junit::read(root, &self.path)
        } else {
            Tests::Unreadable {
                unreadable: "the job did not write it".to_owned(),
            }
        }
    }
}

impl Recording for ProbeRecording {
    fn events(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.drain.events())
    }

    fn follow(&self, backlog: bool) -> Subscription {
        let Some(open) = &self.open else {
            return Subscription {
                backlog: Vec::new(),
                live: self.stream.subscribe(),
            };
        };
        let session = lock(&open.session);
        Subscription {
            backlog: if backlog {
                session.backlog()
            } else {
                Vec::new()
            },
            live: self.stream.subscribe(),
        }
    }

    fn cpu_budget(&self) -> Option<u64> {
        self.rules.as_ref().map(|rules| rules.contract().cpu_budget)
    }

    fn close(mut self: Box<Self>, closing: Closing) -> Result<Recorded, RecordError> {
        let closed = || sentence("the recording was closed before");
        let Open {
            slot,
            drain,
            session,
            beginning,
            enforced,
        } = self.open.take().ok_or_else(closed)?;
        let enforced = enforced.map(Enforced::end);
        // In this order: nothing is written to the ring any more when its end is looked for.
        let (counters, skipped) = self.shared.close(slot).map_err(sentence)?;
        drop(drain.finish().map_err(sentence)?);
        let mut session = Arc::into_inner(session)
            .ok_or_else(closed)?
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(entered) = closing.entered {
            let pid = u32::try_from(entered.pid).unwrap_or(0);
            for inherited in &entered.inherited {
                session.inherited(pid, inherited.target.as_os_str().as_bytes());
            }
        }
        let leftovers: Vec<u32> = closing
            .leftovers
            .iter()
            .filter_map(|member| u32::try_from(member.pid).ok())
            .collect();
        session.leftovers(&leftovers);
        let kernel = self.shared.kernel();
        let race_free = kernel.probes.race_free();
        let hooks = kernel.probes.attached().into_iter().collect();
        let not_covered = kernel.probes.not_covered().into_iter().collect();
        drop(kernel);
        let mut record = session.seal(session::Closing {
            counters,
            user_usec: closing.user_usec,
            hooks,
            not_covered,
            race_free,
            unseen: BTreeSet::new(),
            enforced,
            lost: closing
                .lost
                .into_iter()
                .chain([(loss::SKIPPED, skipped)])
                .map(|(kind, count)| (kind.to_owned(), count))
                .collect(),
            time_limit: LOOK_PATIENCE,
        });
        let results = self.results.take();
        record.recording.suite.tests =
            results.map(|results| results.count(beginning.root.as_fd(), &record));
        Ok(Recorded {
            recording: record.recording,
            evidence: Evidence {
                sealed: std::mem::take(&mut self.sealed),
                ..record.evidence
            },
            rules: self.rules.take(),
            ignored: record.ignored,
            notes: record.notes,
        })
    }
}

impl Drop for ProbeRecording {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            drop(open.enforced.map(Enforced::end));
            let Err(error) = self.shared.close(open.slot) else {
                return;
            };
            tracing::error!(%error, "the recording of a lost job stays in the kernel");
        }
    }
}
