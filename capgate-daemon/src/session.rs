//! One recording, from open to sealed: every event of a job goes through [`Session::apply`], and [`Session::seal`] makes of
//! them what the ledger says.
//!
//! Fails closed: what cannot be known is counted in `lost` or named in `unseen`, and the ledger is not complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use capgate_common::{
    address::NetEntry,
    discretion::Discretion,
    escapes,
    event::{self as wire, UNSEEN_NAMES},
    evidence::{Evidence, Item, Process},
    ledger::{Enforcement, ProbeSet, Recording},
    pathform::{Form, Forms, escape},
    protocol::StreamEvent,
    rules::Rules,
};
use hashbrown::HashMap;

use crate::{
    columns::{self, Columns},
    dns::{configured::Configured, lookups::Lookups},
    event::{Event, Fact, KernelPath, Named, Task, Top},
    look::Look,
    loss,
    names::{Full, NameId, Names},
    process::{Image, ImageId, Processes, Program},
    refused::Refused,
    resolve::{Places, Resolver, Unresolved},
    seen::{Moment, Op, Seen},
    servers::Servers,
    sockets::{OwnSocket, Sockets},
    told::{Backlog, Told, What},
    touch::Touch,
    writes::{Ground, Writes},
};

use attempts::Attempts;
use reaches::Reaches;

/// Blind spots that are found here, beside those of `UNSEEN_NAMES`.
const UNSEEN_SOCKET_FAMILY: &str = "socket_family";
const UNSEEN_PTRACE: &str = "ptrace";
const UNSEEN_CORE_DUMP: &str = "core_dump";
const UNSEEN_MOUNT_NAMESPACE: &str = "mount_namespace";

/// A lookup takes as much memory as so many names of files.
const NAMES_PER_LOOKUP: usize = 8;

/// In an exit code: the kernel wrote a core (wait(2), `WCOREDUMP`).
const CORE_DUMPED: u32 = 0x80;

/// Bounds on one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most names, directories on the way included.
    pub names: usize,
    /// Most bytes of name text, and likewise of processes and their arguments.
    pub bytes: usize,
    /// Most events that are taken.
    pub events: u64,
}

impl Limits {
    /// Bounds for a recording that may take about this many bytes of memory: half of it for names, at about 200 bytes
    /// each beside their text.
    #[must_use]
    pub fn of_memory(bytes: u64, events: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            names: bytes / 2 / 200,
            bytes: bytes / 4,
            events,
        }
    }
}

/// What a session must know of its job.
pub struct JobView {
    /// How paths are written.
    pub forms: Forms,
    /// The contract, made ready; `None` to record only.
    pub rules: Option<Arc<Rules>>,
    /// The contract's file in the work tree, absolute, as the client calls it.
    pub contract_path: Option<Vec<u8>>,
    /// Where the daemon itself listens.
    pub socket: Option<Vec<u8>>,
    /// Temporary directories beside `/tmp`, `/var/tmp` and `/dev/shm`: the client's `TMPDIR`, symbolic links resolved.
    pub temp_dirs: Vec<Vec<u8>>,
    /// Root directory of the client's tasks, as a path of the job's mount tree: `/` but for a client in a chroot.
    pub slash: Vec<u8>,
    /// Inode number of the client's mount namespace.
    pub mnt_ns: u32,
    /// Where paths begin that the kernel does not give from the global root.
    pub places: Places,
    /// Which resolvers the job is to ask.
    pub configured: Configured,
    /// Cookie of the network namespace that the job begins in, when known.
    pub netns: Option<u64>,
    /// The probes in use.
    pub probe_set: ProbeSet,
    /// When the job began, nanoseconds since boot.
    pub started_ns: u64,
    /// Bounds on memory.
    pub limits: Limits,
    /// What is kept of command lines.
    pub discretion: Discretion,
    /// What the contract refuses, when it refuses anything.
    pub refused: Option<Refused>,
}

/// What is known when a job has ended and its ring is drained.
pub struct Closing {
    /// What the kernel counted.
    pub counters: wire::Counters,
    /// User CPU time of the job's cgroup, in microseconds (`cpu.stat`).
    pub user_usec: u64,
    /// The programs that were attached.
    pub hooks: BTreeSet<String>,
    /// What the probes do not cover, a phrase each.
    pub not_covered: BTreeSet<String>,
    /// What the probes recorded is what the kernel used, even against a hostile thread.
    pub race_free: bool,
    /// Further blind spots.
    pub unseen: BTreeSet<String>,
    /// How the job's network was enforced; `None` when it was not.
    pub enforced: Option<Enforcement>,
    /// Further losses: skipped program runs, a reader that failed.
    pub lost: BTreeMap<String, u64>,
    /// How long looking at names may take altogether; what is left then cannot be told.
    pub time_limit: Duration,
}

/// What a session comes to.
#[derive(Clone, Debug)]
pub struct Record {
    /// What the job did.
    pub recording: Recording,
    /// Who did it.
    pub evidence: Evidence,
    /// The names that the contract's `ignore_writes` and `scratch` covered.
    pub ignored: BTreeSet<String>,
    /// Remarks that decide nothing, a sentence each.
    pub notes: Vec<String>,
}

/// The contract's file in the work tree.
struct ContractFile {
    /// Its name, and where that leads if it is a symbolic link.
    names: Vec<NameId>,
    /// Device and inode, if it is there.
    identity: Option<(u32, u64)>,
}

/// The event at hand.
#[derive(Clone, Copy)]
struct Scene<'a> {
    task: &'a Task,
    moment: Moment,
    damaged: bool,
    /// The task is in another mount namespace.
    elsewhere: bool,
}

/// One recording.
pub struct Session {
    look: Box<dyn Look>,
    forms: Forms,
    discretion: Discretion,
    rules: Option<Arc<Rules>>,
    contract: Option<ContractFile>,
    temp_dirs: Vec<NameId>,
    mnt_ns: u32,
    probe_set: ProbeSet,
    started_ns: u64,
    ground: Ground,
    attempts: Attempts,
    processes: Processes,
    writes: Writes,
    sockets: Sockets,
    servers: Servers,
    lookups: Lookups,
    execs: HashMap<Program, Seen>,
    metadata: HashMap<NameId, Seen>,
    escapes: BTreeMap<String, Seen>,
    reaches: Reaches,
    unseen: BTreeMap<&'static str, Seen>,
    lost: BTreeMap<&'static str, u64>,
    inherited: Vec<Item>,
    leftovers: Vec<Process>,
    backlog: Backlog,
    most_events: u64,
    decoded: u64,
    rejected: u64,
    /// Time of the latest event: some have none of their own.
    latest_ns: u64,
}

impl Session {
    /// Begins a recording.
    ///
    /// # Errors
    /// When the bound on names leaves no room for the job's own directories.
    pub fn open(view: JobView, look: Box<dyn Look>) -> Result<Self, Full> {
        let JobView {
            forms,
            rules,
            contract_path,
            socket,
            temp_dirs,
            slash,
            mnt_ns,
            places,
            configured,
            netns,
            probe_set,
            started_ns,
            limits,
            discretion,
            refused,
        } = view;
        let mut names = Names::new(limits.names, limits.bytes);
        let mut resolver = Resolver::new(&mut names, &slash, places)?;
        let processes = Processes::new(limits.bytes);
        let mut temp = Vec::with_capacity(temp_dirs.len() + 3);
        for path in [&b"/tmp"[..], b"/var/tmp", b"/dev/shm"] {
            temp.push(names.path(path)?);
        }
        for path in temp_dirs
            .iter()
            .filter(|path| path.starts_with(b"/") && path.len() > 1)
        {
            temp.push(names.path(path)?);
        }
        let contract = contract_path.map(|path| {
            let base = KernelPath {
                bytes: slash,
                top: Top::Namespace,
                ..KernelPath::default()
            };
            let named = Named {
                base,
                string: path,
                broken: false,
            };
            let nobody = Task {
                tgid: 0,
                tid: 0,
                start_ns: 0,
            };
            // A link at its place is the contract as much as the file behind it.
            let mut resolve =
                |follow| resolver.name(&mut names, &*look, &processes, &nobody, &named, follow);
            let names_of = [resolve(false), resolve(true)];
            let found: Vec<NameId> = names_of.into_iter().flatten().collect();
            let identity = found
                .last()
                .and_then(|&name| look.identity(&names.bytes(name)));
            ContractFile {
                names: found,
                identity,
            }
        });
        let socket = socket.and_then(|path| {
            let identity = look.identity(&path)?;
            Some(OwnSocket { path, identity })
        });
        Ok(Self {
            look,
            forms,
            discretion,
            rules,
            contract,
            temp_dirs: temp,
            mnt_ns,
            probe_set,
            started_ns,
            ground: Ground { names, resolver },
            attempts: Attempts::default(),
            processes,
            writes: Writes::new(limits.names),
            servers: Servers::default(),
            sockets: Sockets::new(limits.names, socket),
            lookups: Lookups::new(configured, netns, limits.names / NAMES_PER_LOOKUP),
            execs: HashMap::new(),
            metadata: HashMap::new(),
            escapes: BTreeMap::new(),
            reaches: Reaches::of(refused),
            unseen: BTreeMap::new(),
            lost: BTreeMap::new(),
            inherited: Vec::new(),
            leftovers: Vec::new(),
            backlog: Backlog::default(),
            most_events: limits.events,
            decoded: 0,
            rejected: 0,
            latest_ns: started_ns,
        })
    }

    /// Takes in one event, in the order of the ring. With `watched` the answer is the event for the live stream; text is made
    /// only then.
    pub fn apply(&mut self, event: Event, watched: bool) -> Option<StreamEvent> {
        self.decoded += 1;
        if self.decoded > self.most_events {
            self.lose(loss::EVENTS);
            return None;
        }
        let mut kind = event.kind();
        let Event {
            time_ns,
            task,
            mnt_ns,
            damaged,
            fact,
        } = event;
        if damaged {
            self.lose(loss::DAMAGED);
        }
        self.latest_ns = self.latest_ns.max(time_ns);
        let moment = self.moment(time_ns, &task);
        let elsewhere = mnt_ns != 0 && self.mnt_ns != 0 && mnt_ns != self.mnt_ns;
        let scene = Scene {
            task: &task,
            moment,
            damaged,
            elsewhere,
        };
        let mut by = moment.by;
        let (op, what) = match fact {
            Fact::File(file) => self.file(scene, &file),
            Fact::Name(name) if name.refused => {
                self.reach_attempt(scene, &name, true);
                return None;
            }
            Fact::Name(name) if name.attempt => {
                self.reach_attempt(scene, &name, false);
                if !self.attempts.names(&task, name, damaged) {
                    self.lose(loss::MEMORY);
                }
                return None;
            }
            Fact::Name(name) => self.name(scene, &name),
            Fact::Done(op) => {
                // None when its record was lost, which was counted.
                let (name, damaged) = self.attempts.done(&task, op)?;
                kind = wire::KIND_NAME;
                self.name(Scene { damaged, ..scene }, &name)
            }
            Fact::Inet(inet) => self.inet(scene, &inet),
            Fact::Dns(dns) => (Op::Resolve, self.dns(scene, dns)?),
            Fact::Unix(unix) => self.unix(scene, unix),
            Fact::Socket(socket) => self.socket(scene, &socket),
            Fact::Exec(exec) if exec.attempt => {
                self.script(scene, &exec);
                return None;
            }
            Fact::Exec(exec) => {
                by = self.exec(scene, &exec);
                (Op::Exec, What::Program)
            }
            Fact::Fork { child, outside } => {
                self.processes.forked(&task, &child);
                if outside {
                    self.escape(escapes::CGROUP_LEAVE, Op::Fork, &moment);
                }
                (Op::Fork, What::Process(child.tgid))
            }
            Fact::Exit { code } => {
                self.processes.exited(&task, code);
                self.attempts.exited(&task);
                // The kernel opened the file itself, without a system call of the job.
                if code & CORE_DUMPED != 0 && self.probe_set == ProbeSet::Tracepoint {
                    self.unsee(UNSEEN_CORE_DUMP, &moment);
                }
                (Op::Exit, What::Nothing)
            }
            Fact::Move {
                tgid, left: true, ..
            } => {
                self.escape(escapes::CGROUP_LEAVE, Op::Leave, &moment);
                (Op::Leave, What::Process(tgid))
            }
            Fact::Move {
                tgid, left: false, ..
            } => {
                self.processes.joined(tgid);
                (Op::Join, What::Process(tgid))
            }
            Fact::Unseen { what, .. } => {
                let name = UNSEEN_NAMES
                    .get(what as usize)
                    .copied()
                    .unwrap_or("unknown");
                self.unsee(name, &moment);
                (Op::Unseen, What::Word(name))
            }
            Fact::Ptrace {
                target, target_is, ..
            } => self.ptrace(scene, target, target_is),
        };
        if self.processes.wants_sweep() {
            self.sweep();
        }
        let moment = Moment { by, ..moment };
        let told = Told {
            seq: self.decoded,
            kind,
            pid: task.tgid,
            moment,
            op,
            what,
        };
        self.backlog.push(told);
        watched.then(|| self.text(&told))
    }

    /// A record came that could not be decoded.
    pub fn reject(&mut self) {
        self.rejected += 1;
        self.lose(loss::REJECTED);
    }

    /// A process that was moved into the job holds a writable descriptor of the file at `path`, as `/proc/PID/fd` shows it.
    pub fn inherited(&mut self, pid: u32, path: &[u8]) {
        let form = self.forms.form(path, &|_| false);
        let by = self.processes.chain(self.processes.last_image(pid));
        self.inherited.push(Item {
            entry: form.map_or_else(|| escape(path), |form| form.entry),
            ops: vec![Op::Inherit.word().to_owned()],
            count: 1,
            first_ms: 0,
            by: by.map(|image| self.process(image)).collect(),
        });
    }

    /// Processes outlived the command and are killed, by their ids.
    pub fn leftovers(&mut self, pids: &[u32]) {
        for &pid in pids {
            let image = self.processes.get(self.processes.last_image(pid));
            self.leftovers.push(match image {
                Some(image) => self.process(image),
                None => Process {
                    pid,
                    exe: String::new(),
                    argv: Vec::new(),
                    status: None,
                },
            });
        }
    }

    /// The events that are kept for readers who come later, oldest first.
    #[must_use]
    pub fn backlog(&self) -> Vec<StreamEvent> {
        self.backlog.iter().map(|told| self.text(told)).collect()
    }

    /// How many records came so far, those that could not be decoded included.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.decoded + self.rejected
    }

    /// How much was lost on this side so far, all kinds together.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.values().sum()
    }

    /// Ends the recording: looks at which names exist now, and says what the job did.
    #[must_use]
    pub fn seal(mut self, closing: Closing) -> Record {
        let mut recording = Recording::empty(self.probe_set, closing.race_free);
        recording.coverage.hooks = closing.hooks;
        recording.coverage.not_covered = closing.not_covered;
        recording.coverage.enforced = closing.enforced;
        recording.cpu_sec = closing.user_usec / 1_000_000;
        let counts = columns::counts(&closing.counters, self.decoded, self.rejected);
        columns::kernel_losses(&mut recording, &closing.counters, &counts);
        for (kind, count) in &closing.lost {
            recording.lose(kind, *count);
        }

        *self.lost.entry(loss::UNRESOLVED).or_default() +=
            self.writes.follow_links() + self.writes.doubts();
        self.writes.put_nothing_aside(&self.ground.names);
        self.contract_written();
        let unseen = std::mem::take(&mut self.unseen);
        recording.coverage.unseen.extend(closing.unseen);
        recording
            .coverage
            .unseen
            .extend(unseen.into_keys().map(str::to_owned));

        let deadline = self
            .look
            .now_ns()
            .saturating_add(u64::try_from(closing.time_limit.as_nanos()).unwrap_or(u64::MAX));
        let (ends, unknown) = columns::ends(
            &self.writes,
            &self.ground.names,
            &self.ground.resolver,
            &*self.look,
            deadline,
        );
        let concluded = self.writes.conclude(&self.ground.names, &ends);
        *self.lost.entry(loss::UNRESOLVED).or_default() += unknown;
        for (kind, count) in &self.lost {
            recording.lose(kind, *count);
        }

        let mut columns = Columns::new(
            &self.ground.names,
            &self.forms,
            &self.discretion,
            self.rules.as_deref(),
            &self.temp_dirs,
        );
        columns.writes(&concluded);
        columns.execs(&self.execs);
        columns.metadata(&self.metadata);
        self.servers
            .connected(&*self.look, &self.sockets.local_ports());
        let form = |name| self.forms.form(&self.ground.names.bytes(name), &|_| false);
        let reaches = self.reaches.conclude();
        let refusals = reaches.as_ref().map(|(refused, _)| &refused.refusals);
        columns.net(
            self.sockets
                .conclude(&self.ground.names, &*self.look, &form, &self.lookups),
            refusals,
        );
        columns.escapes(self.escapes);
        if let Some((_, seen)) = reaches {
            columns.reaches(seen);
        }
        let (evidence, ignored) = columns.finish(&mut recording, &self.processes);
        Record {
            recording,
            evidence: Evidence {
                inherited: self.inherited,
                leftovers: self.leftovers,
                counts,
                ..evidence
            },
            ignored,
            notes: self.servers.notes(),
        }
    }

    /// A process as evidence shows it.
    fn process(&self, image: &Image) -> Process {
        columns::process(image, &self.ground.names, &self.forms, &self.discretion)
    }

    fn moment(&mut self, time_ns: u64, task: &Task) -> Moment {
        let time_ns = if time_ns == 0 {
            self.latest_ns
        } else {
            time_ns
        };
        let ms = time_ns.saturating_sub(self.started_ns) / 1_000_000;
        Moment {
            time_ns,
            ms: u32::try_from(ms).unwrap_or(u32::MAX),
            tid: task.tid,
            by: self.processes.image_of(task),
        }
    }

    fn lose(&mut self, kind: &'static str) {
        *self.lost.entry(kind).or_default() += 1;
    }

    fn escape(&mut self, entry: &str, op: Op, moment: &Moment) {
        match self.escapes.get_mut(entry) {
            Some(seen) => seen.again(op, moment),
            None => {
                self.escapes
                    .insert(entry.to_owned(), Seen::first(op, moment));
            }
        }
    }

    fn unsee(&mut self, name: &'static str, moment: &Moment) {
        let seen = Seen::first(Op::Unseen, moment);
        self.unseen
            .entry(name)
            .and_modify(|known| known.merge(&seen))
            .or_insert(seen);
    }

    /// Counts what a missing name means.
    fn unresolved(&mut self, scene: Scene<'_>, why: Unresolved) {
        match why {
            Unresolved::Nameless | Unresolved::Private => {}
            Unresolved::Full => self.lose(loss::MEMORY),
            // Counted with the event.
            Unresolved::Broken if scene.damaged => {}
            Unresolved::Foreign => self.unsee(UNSEEN_MOUNT_NAMESPACE, &scene.moment),
            Unresolved::Broken | Unresolved::Detached | Unresolved::Magic | Unresolved::Look => {
                self.lose(loss::UNRESOLVED);
            }
        }
    }

    /// Counts what did not fit.
    fn fit<T>(&mut self, result: Result<T, Full>) -> Option<T> {
        if result.is_err() {
            self.lose(loss::MEMORY);
        }
        result.ok()
    }

    fn try_resolve(
        &mut self,
        scene: Scene<'_>,
        named: &Named,
        follow: bool,
    ) -> Result<NameId, Unresolved> {
        let Self {
            ground: Ground { names, resolver },
            look,
            processes,
            ..
        } = self;
        resolver.name(names, &**look, processes, scene.task, named, follow)
    }

    /// Why a task may see other mounts than there were when the job began, if it may.
    fn other_mounts(&self, scene: Scene<'_>) -> Option<&'static str> {
        let mount = UNSEEN_NAMES[wire::UNSEEN_MOUNT as usize];
        if scene.elsewhere {
            Some(UNSEEN_MOUNT_NAMESPACE)
        } else {
            self.unseen.contains_key(mount).then_some(mount)
        }
    }

    /// The name that a call named, when it can be told.
    fn resolve(&mut self, scene: Scene<'_>, named: &Named, follow: bool) -> Option<NameId> {
        if may_cross(named, follow)
            && let Some(why) = self.other_mounts(scene)
        {
            self.unsee(why, &scene.moment);
            return None;
        }
        match self.try_resolve(scene, named, follow) {
            Ok(name) => Some(name),
            Err(why) => {
                self.unresolved(scene, why);
                None
            }
        }
    }

    /// The name at a path that the kernel gave, when it can be told.
    fn kernel_path(&mut self, scene: Scene<'_>, path: &KernelPath) -> Option<NameId> {
        let Ground { names, resolver } = &mut self.ground;
        match resolver.kernel_path(names, &self.processes, path) {
            Ok(name) => Some(name),
            Err(why) => {
                self.unresolved(scene, why);
                None
            }
        }
    }

    /// Says so when the contract's file was written, or a directory above it was put elsewhere.
    fn contract_written(&mut self) {
        let names = self
            .contract
            .iter()
            .flat_map(|contract| contract.names.iter().copied());
        let mut written = names.filter_map(|name| {
            let displaced =
                |above: &NameId| self.writes.find(*above).is_some_and(Touch::is_displaced);
            let above = || self.ground.names.ancestors(name).find(displaced);
            self.writes
                .find(name)
                .or_else(|| self.writes.find(above()?))
        });
        if let Some(touch) = written.next() {
            self.escapes
                .entry(escapes::CONTRACT_WRITTEN.to_owned())
                .or_insert(touch.seen);
            return;
        }
        // Whatever way it took: another file is at its place now.
        let replaced = self.contract.as_ref().is_some_and(|contract| {
            contract.identity.is_some()
                && contract.identity
                    != contract
                        .names
                        .last()
                        .and_then(|&name| self.look.identity(&self.ground.names.bytes(name)))
        });
        if replaced {
            let moment = Moment {
                time_ns: self.latest_ns,
                ms: u32::try_from(self.latest_ns.saturating_sub(self.started_ns) / 1_000_000)
                    .unwrap_or(u32::MAX),
                tid: 0,
                by: ImageId::UNKNOWN,
            };
            self.escapes
                .entry(escapes::CONTRACT_WRITTEN.to_owned())
                .or_insert(Seen::first(Op::Rename, &moment));
        }
    }

    fn sweep(&mut self) {
        let seen = self.execs.values().chain(self.metadata.values());
        let seen = seen
            .chain(self.escapes.values())
            .chain(self.unseen.values());
        let needed = seen.map(|seen| seen.by);
        let needed = needed
            .chain(self.writes.images())
            .chain(self.sockets.images())
            .chain(self.lookups.all().map(|(_, lookup)| lookup.seen.by))
            .chain(self.reaches.images());
        self.processes.sweep(needed.chain(self.backlog.images()));
    }

    fn form(&self, name: NameId) -> Option<Form> {
        self.forms.form(&self.ground.names.bytes(name), &|_| false)
    }

    fn text(&self, told: &Told) -> StreamEvent {
        let image = self.processes.get(told.moment.by);
        let exe = image
            .and_then(|image| columns::program(&image.program, &self.ground.names, &self.forms));
        let subject = match told.what {
            What::Nothing => String::new(),
            What::Name(name) => self.form(name).map(|form| form.entry).unwrap_or_default(),
            What::Destination(id) => self.sockets.entry(id, &|name| self.form(name)),
            What::Lookup(id) => self
                .lookups
                .get(id)
                .cloned()
                .map_or_else(String::new, |name| NetEntry::Lookup(name).to_string()),
            What::Program => exe.clone().unwrap_or_default(),
            What::Process(pid) => pid.to_string(),
            What::Word(word) => word.to_owned(),
        };
        StreamEvent {
            seq: told.seq,
            ms: u64::from(told.moment.ms),
            kind: wire::KIND_NAMES
                .get(usize::from(told.kind))
                .copied()
                .unwrap_or_default()
                .to_owned(),
            pid: told.pid,
            exe,
            op: told.op.word().to_owned(),
            subject,
        }
    }
}

/// Whether what a string leads to depends on the mounts that its task sees: it passes a directory or a link.
fn may_cross(named: &Named, follow: bool) -> bool {
    !named.string.is_empty() && (follow || named.string.contains(&b'/') || named.string == b"..")
}

mod attempts;
mod files;
mod network;
mod reaches;
mod running;
#[cfg(test)]
mod tests;
