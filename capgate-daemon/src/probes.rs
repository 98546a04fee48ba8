//! The probes: loaded once, attached while jobs run, one ring for each job.

use std::{
    fs::File,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use aya::{
    Btf, Ebpf, EbpfLoader, Pod,
    maps::{Array, ArrayOfMaps, HashMap, Map, MapData, MapError, ProgramArray, RingBuf},
    programs::ProgramFd,
};
use aya_log::EbpfLogger;
use capgate_common::{
    event::{Counters, MountKey, Mounted, Offsets, Root, Scope, Slot},
    ledger::ProbeSet,
    limits::{MAX_JOBS, WAKE_SHIFT},
};

mod error;
mod kernel;
mod resolvers;
mod set;
mod wall;

pub use error::ProbesError;
use error::{map_error, one_line};
use resolvers::Resolvers;
use set::{FORWARD_HOOKS, Hook, IO_URING, Link, MPTCP, Where};
use wall::Wall;

use crate::{
    forwarder::StandIn,
    memory,
    offsets::{self, Found, KERNEL_BTF},
    permit::Rule,
};

/// A ring of which so many records of the largest size are less than the part that may fill unread.
const LARGE_RING: u32 = 4 << 20;
/// How often the fill of a large ring is looked at, a power of two.
const LOOK_EVERY: u64 = 16;

/// Smallest ring: one page of data is the kernel's own lower bound.
pub const MIN_RING_BYTES: u32 = 4096;

/// Which probe set to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeChoice {
    /// The best one that loads.
    #[default]
    Auto,
    /// This one and no other.
    Only(ProbeSet),
}

/// [`Offsets`] as the loader takes globals.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct OffsetsGlobal(Offsets);
// SAFETY: a struct of u32 without padding.
unsafe impl Pod for OffsetsGlobal {}

/// [`Counters`] as a map value.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct CountersValue(Counters);
// SAFETY: a struct of u64 without padding; every bit pattern is a value.
unsafe impl Pod for CountersValue {}

/// [`Scope`] as a map value.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct ScopeValue(Scope);
// SAFETY: integers without padding; every bit pattern is a value.
unsafe impl Pod for ScopeValue {}

/// [`MountKey`] as a map key.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct MountKeyValue(MountKey);
// SAFETY: a struct of u32 without padding; every bit pattern is a value.
unsafe impl Pod for MountKeyValue {}

/// [`Mounted`] as a map value.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct MountedValue(Mounted);
// SAFETY: a struct of u32 and bytes without padding; every bit pattern is a value.
unsafe impl Pod for MountedValue {}

/// [`Root`] as a map value.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct RootValue(Root);
// SAFETY: a struct of u64 without padding; every bit pattern is a value.
unsafe impl Pod for RootValue {}

/// [`Slot`] as a map value.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct SlotValue(Slot);
// SAFETY: a struct of u32 without padding; every bit pattern is a value.
unsafe impl Pod for SlotValue {}

/// The loaded probe set. Dropping it detaches and unloads everything.
pub struct Probes {
    set: ProbeSet,
    /// Why the better set is not in use.
    fallback: Option<String>,
    ebpf: Ebpf,
    hooks: Vec<&'static Hook>,
    /// A descriptor of each program.
    programs: Vec<ProgramFd>,
    logger: Option<EbpfLogger<&'static dyn log::Log>>,
    cgroup_root: PathBuf,
    ring_bytes: u32,
    scope: Array<MapData, ScopeValue>,
    more_scope: HashMap<MapData, u64, SlotValue>,
    counters: Array<MapData, CountersValue>,
    rings: ArrayOfMaps<MapData, RingBuf<MapData>>,
    roots: Array<MapData, RootValue>,
    mounts: HashMap<MapData, MountKeyValue, MountedValue>,
    resolvers: Resolvers,
    /// What `mounts` holds: slot and id.
    known_mounts: Vec<(u32, u32)>,
    wall: Wall,
    /// The kernel empties the array when nobody holds it open.
    _concerns: Option<ProgramArray<MapData>>,
    /// What `scope` holds.
    places: Scope,
    /// Depth of the job in each slot; `None` is free.
    slots: Vec<Option<u8>>,
    generation: u32,
    /// What is attached, and what detaches it when dropped.
    links: Vec<(&'static str, Link)>,
    /// The same for jobs whose queries go to the daemon.
    forward_links: Vec<(&'static str, Link)>,
}

/// Where a job begins.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The job's root directory.
    pub root: BorrowedFd<'a>,
    /// The client's `/`.
    pub slash: BorrowedFd<'a>,
    /// The mounts that there are: [`Mounts::known`](crate::mounts::Mounts::known).
    pub mounts: &'a [(u32, Mounted)],
    /// The newest of them, by the number that is never used again; `None` when not known.
    pub newest_mount: Option<u64>,
    /// Addresses of the resolvers that it is configured for.
    pub resolvers: &'a [IpAddr],
}

/// A job's place in the kernel.
#[derive(Clone, Copy, Debug)]
pub struct JobSlot {
    index: u32,
    cgroup_id: u64,
    /// Program runs that the kernel had skipped when the job began, of all programs since they were loaded.
    skipped_before: u64,
}

impl Probes {
    /// Loads the programs and has the verifier check them; leaves none attached.
    ///
    /// # Errors
    /// When the kernel lacks BTF or a struct member, or refuses a program or map.
    pub fn load(
        choice: ProbeChoice,
        cgroup_root: &Path,
        ring_bytes: u32,
    ) -> Result<Self, ProbesError> {
        if !ring_bytes.is_power_of_two() || ring_bytes < MIN_RING_BYTES {
            return Err(ProbesError::RingSize(ring_bytes));
        }
        let found = offsets::read(Path::new(KERNEL_BTF))?;
        memory::give_back();
        let btf = Btf::from_sys_fs().map_err(|e| ProbesError::Load {
            cause: one_line(&e),
        })?;
        let load = |set| Self::load_set(set, &found, &btf, cgroup_root, ring_bytes);
        let loaded = match choice {
            ProbeChoice::Only(set) => load(set),
            ProbeChoice::Auto => {
                load(ProbeSet::Fentry).or_else(|fentry| match load(ProbeSet::Tracepoint) {
                    Ok(probes) => Ok(Self {
                        fallback: Some(fentry.to_string()),
                        ..probes
                    }),
                    Err(tracepoint) => Err(ProbesError::Neither {
                        fentry: Box::new(fentry),
                        tracepoint: Box::new(tracepoint),
                    }),
                })
            }
        };
        drop(btf);
        memory::give_back();
        loaded
    }

    fn load_set(
        set: ProbeSet,
        found: &Found,
        btf: &Btf,
        cgroup_root: &Path,
        ring_bytes: u32,
    ) -> Result<Self, ProbesError> {
        let globals = OffsetsGlobal(found.offsets);
        let io_uring_ops = u32::from(found.io_uring_ops);
        let wake_bytes = u64::from(ring_bytes >> WAKE_SHIFT);
        // Looking at the fill costs a helper call: in a large ring, one record in so many does.
        let look_mask: u64 = if ring_bytes >= LARGE_RING {
            LOOK_EVERY - 1
        } else {
            0
        };
        let mut loader = EbpfLoader::new();
        // Each object has the other set's scratch memory too, which is for every processor.
        match set {
            ProbeSet::Tracepoint => loader.map_max_entries("SCRATCH_POOL", 1),
            ProbeSet::Fentry => &mut loader,
        };
        let mut ebpf = loader
            .btf(Some(btf))
            .override_global("OFFSETS", &globals, true)
            .override_global("IO_URING_OPS", &io_uring_ops, true)
            .override_global("WAKE_BYTES", &wake_bytes, true)
            .override_global("LOOK_MASK", &look_mask, true)
            .load(set::object(set))
            .map_err(|e| ProbesError::Load {
                cause: one_line(&e),
            })?;
        let has = |place: &str| match place {
            IO_URING => found.io_uring_ops,
            MPTCP => found.mptcp,
            _ => false,
        };
        let hooks = set::hooks(set, has);
        let mut programs = Vec::with_capacity(hooks.len());
        for hook in &hooks {
            set::load(&mut ebpf, hook, btf)?;
            programs.push(set::descriptor(&ebpf, hook.program)?);
        }
        for hook in &FORWARD_HOOKS {
            set::load(&mut ebpf, hook, btf)?;
        }
        set::load_adopt(&mut ebpf)?;
        let (concerns, logger) = match set {
            ProbeSet::Tracepoint => {
                let logger = EbpfLogger::init(&mut ebpf).map_err(|e| ProbesError::Load {
                    cause: one_line(&e),
                })?;
                (Some(concerns(&mut ebpf, &hooks, &programs)?), Some(logger))
            }
            ProbeSet::Fentry => (None, None),
        };
        let mut probes = Self {
            set,
            fallback: None,
            scope: take(&mut ebpf, "SCOPE")?,
            more_scope: take(&mut ebpf, "MORE_SCOPE")?,
            counters: take(&mut ebpf, "COUNTERS")?,
            rings: take(&mut ebpf, "RINGS")?,
            roots: take(&mut ebpf, "ROOTS")?,
            mounts: take(&mut ebpf, "MOUNTS")?,
            resolvers: Resolvers::new(take(&mut ebpf, "RESOLVERS")?),
            known_mounts: Vec::new(),
            wall: Wall::take(&mut ebpf)?,
            _concerns: concerns,
            ebpf,
            hooks,
            programs,
            logger,
            cgroup_root: cgroup_root.to_path_buf(),
            ring_bytes,
            places: Scope::default(),
            slots: vec![None; MAX_JOBS as usize],
            generation: 0,
            links: Vec::new(),
            forward_links: Vec::new(),
        };
        if set == ProbeSet::Fentry {
            // Some kernels load such programs and have no way to attach them (arm64 before 6.4).
            let root = probes.open_root()?;
            if let Some(hook) = probes.hooks.first() {
                drop(set::attach(&mut probes.ebpf, hook, &root)?);
            }
        }
        Ok(probes)
    }

    fn open_root(&self) -> Result<File, ProbesError> {
        File::open(&self.cgroup_root).map_err(|cause| ProbesError::CgroupRoot {
            path: self.cgroup_root.clone(),
            cause,
        })
    }

    /// Attaches every program; does nothing when they are attached.
    ///
    /// # Errors
    /// When the kernel refuses one. Then none is attached.
    pub fn attach(&mut self) -> Result<(), ProbesError> {
        if !self.links.is_empty() {
            return Ok(());
        }
        let result = self.try_attach();
        if result.is_err() {
            self.detach();
        }
        result
    }

    fn try_attach(&mut self) -> Result<(), ProbesError> {
        let root = self.open_root()?;
        for hook in &self.hooks {
            if let Some(link) = set::attach(&mut self.ebpf, hook, &root)? {
                self.links.push((hook.program, link));
            }
        }
        Ok(())
    }

    /// Detaches every program. They stay loaded.
    pub fn detach(&mut self) {
        self.links.clear();
        self.forward_links.clear();
    }

    /// Names of the programs that are attached now.
    #[must_use]
    pub fn attached(&self) -> Vec<String> {
        self.links
            .iter()
            .chain(&self.forward_links)
            .map(|(name, _)| (*name).to_owned())
            .collect()
    }

    /// Which set it is.
    #[must_use]
    pub fn set(&self) -> ProbeSet {
        self.set
    }

    /// Why the better set is not in use: the kernel's word, when that was left to the kernel.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Whether a thread that rewrites a path while the kernel uses it cannot fool the set.
    #[must_use]
    pub fn race_free(&self) -> bool {
        self.set == ProbeSet::Fentry
    }

    /// What the set cannot record, a phrase each. When one of these happens the ledger is incomplete, or it says otherwise.
    #[must_use]
    pub fn not_covered(&self) -> Vec<String> {
        let mut phrases = vec![
            "files on file systems that were not mounted when the job began (detected)",
            "files below what the job mounts and leaves mounted (detected)",
        ];
        if self.set == ProbeSet::Tracepoint {
            phrases.extend([
                "32-bit and x32 system calls (detected)",
                "names with directories in them where the job sees other mounts (detected)",
                "core dumps (detected)",
                "a thread that rewrites a path or swaps a descriptor while a call runs (not detected)",
            ]);
            let has_io_uring = self
                .hooks
                .iter()
                .any(|hook| hook.only_with == Some(IO_URING));
            phrases.push(if has_io_uring {
                "io_uring operations that open, name or connect (detected)"
            } else {
                "io_uring (a ring is detected as a whole)"
            });
        }
        phrases.into_iter().map(str::to_owned).collect()
    }

    /// Program runs that the kernel skipped since the programs were loaded, since the same program ran already on that CPU.
    fn skipped(&self) -> Result<u64, ProbesError> {
        let mut sum = 0u64;
        for program in &self.programs {
            let misses = kernel::recursion_misses(program.as_fd()).map_err(ProbesError::Skipped)?;
            sum = sum.saturating_add(misses);
        }
        Ok(sum)
    }

    /// Program runs that were skipped while a job ran, its own or another's.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn skipped_since(&self, job: &JobSlot) -> Result<u64, ProbesError> {
        Ok(self.skipped()?.saturating_sub(job.skipped_before))
    }

    /// Makes a job's ring and takes its cgroup into scope: events flow from here on. `level` is the depth of
    /// the cgroup below the root of the v2 hierarchy. The caller holds the directories of `at` open until the job is released.
    ///
    /// # Errors
    /// When there is no slot or depth left, or the kernel refuses the ring.
    pub fn open_job(
        &mut self,
        cgroup_id: u64,
        level: u32,
        at: &At<'_>,
    ) -> Result<(JobSlot, RingBuf<MapData>), ProbesError> {
        let place = self
            .slots
            .iter()
            .position(Option::is_none)
            .ok_or(ProbesError::Slots)?;
        let index = u32::try_from(place).map_err(|_| ProbesError::Slots)?;
        let depth = u8::try_from(level)
            .ok()
            .filter(|depth| *depth > 0)
            .ok_or(ProbesError::Levels { level })?;
        let mut places = self.places;
        if !places.levels.contains(&depth) {
            let free = places.levels.iter_mut().find(|level| **level == 0);
            *free.ok_or(ProbesError::Levels { level })? = depth;
        }
        self.adopt(index, at)?;
        // What a job that could not begin left.
        self.wall.fell(index)?;
        let ring = self.new_ring()?;
        self.rings
            .set(index, &ring, 0)
            .map_err(map_error("hand over a job's ring"))?;
        self.counters
            .set(index, CountersValue(Counters::default()), 0)
            .map_err(map_error("clear a job's counters"))?;
        let skipped_before = self.skipped()?;
        self.generation = self.generation.wrapping_add(1);
        let slot = Slot {
            index,
            generation: self.generation,
        };
        match places.ids.iter().position(|id| *id == 0) {
            Some(near) => {
                places.ids[near] = cgroup_id;
                places.slots[near] = slot;
            }
            None => {
                self.more_scope
                    .insert(cgroup_id, SlotValue(slot), 0)
                    .map_err(map_error("take a job's cgroup into scope"))?;
                places.more += 1;
            }
        }
        self.set_places(places, "take a job's cgroup into scope")?;
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = Some(depth);
        }
        let job = JobSlot {
            index,
            cgroup_id,
            skipped_before,
        };
        Ok((job, ring))
    }

    /// Has the kernel refuse a job every connection but to itself and to what a rule permits. Before the job has a task; its own
    /// addresses are those of the network namespace `netns`. Its queries go to `stand_ins`.
    ///
    /// # Errors
    /// When the kernel refuses to keep the rules.
    pub fn enforce(
        &mut self,
        job: &JobSlot,
        netns: u64,
        rules: &[Rule],
        stand_ins: &[StandIn],
    ) -> Result<(), ProbesError> {
        if !stand_ins.is_empty() && self.forward_links.is_empty() {
            let root = self.open_root()?;
            for hook in &FORWARD_HOOKS {
                let link = set::attach(&mut self.ebpf, hook, &root)?;
                self.forward_links
                    .extend(link.map(|link| (hook.program, link)));
            }
        }
        self.wall.raise(job.index, netns, rules, stand_ins)
    }

    /// Lets an enforced job reach more.
    ///
    /// # Errors
    /// When the kernel refuses to keep the rules.
    pub fn permit(&mut self, job: &JobSlot, rules: &[Rule]) -> Result<(), ProbesError> {
        self.wall.permit(job.index, rules)
    }

    /// When a socket of a job with this port last sent something to a stand-in, in nanoseconds since boot; `None` when it did not.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn asked(
        &self,
        job: &JobSlot,
        to: SocketAddr,
        from: u16,
        is_tcp: bool,
    ) -> Result<Option<u64>, ProbesError> {
        self.wall.asked(job.index, to, from, is_tcp)
    }

    /// How many rules of enforcement the kernel holds, of all jobs.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.wall.len()
    }

    /// Tells the kernel where the job in a slot begins.
    fn adopt(&mut self, index: u32, at: &At<'_>) -> Result<(), ProbesError> {
        let nowhere = RootValue(Root::default());
        self.roots
            .set(index, nowhere, 0)
            .map_err(map_error("clear where a job begins"))?;
        set::adopt(&self.ebpf, index, at)?;
        let found = self
            .roots
            .get(&index, 0)
            .map_err(map_error("read where a job begins"))?;
        if found == nowhere {
            return Err(ProbesError::Nowhere);
        }
        // What a job that could not begin left.
        self.forget_mounts(index)?;
        for &(mount, mounted) in at.mounts {
            let key = MountKeyValue(MountKey { slot: index, mount });
            self.mounts
                .insert(key, MountedValue(mounted), 0)
                .map_err(map_error("say which mounts there are"))?;
            self.known_mounts.push((index, mount));
        }
        self.resolvers.set(index, at.resolvers)
    }

    /// Forgets the mounts of a slot's job.
    fn forget_mounts(&mut self, index: u32) -> Result<(), ProbesError> {
        let (gone, kept) = std::mem::take(&mut self.known_mounts)
            .into_iter()
            .partition(|&(slot, _)| slot == index);
        self.known_mounts = kept;
        let gone: Vec<(u32, u32)> = gone;
        for (slot, mount) in gone {
            self.mounts
                .remove(&MountKeyValue(MountKey { slot, mount }))
                .map_err(map_error("forget a mount"))?;
        }
        Ok(())
    }

    /// Takes a job's cgroup out of scope: nothing is recorded from here on. The ring still holds what was.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn close_scope(&mut self, job: &JobSlot) -> Result<(), ProbesError> {
        // Rare diagnostics of the probes; they go to the daemon's own log.
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
        const WHAT: &str = "take a job's cgroup out of scope";
        let mut places = self.places;
        match places.ids.iter().position(|id| *id == job.cgroup_id) {
            Some(near) => places.ids[near] = 0,
            None => {
                self.more_scope
                    .remove(&job.cgroup_id)
                    .map_err(map_error(WHAT))?;
                places.more -= 1;
            }
        }
        self.set_places(places, WHAT)
    }

    fn set_places(&mut self, places: Scope, what: &'static str) -> Result<(), ProbesError> {
        self.scope
            .set(0, ScopeValue(places), 0)
            .map_err(map_error(what))?;
        self.places = places;
        Ok(())
    }

    /// What the kernel counted for a job. Final only after [`Self::close_scope`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn counters(&self, job: &JobSlot) -> Result<Counters, ProbesError> {
        let value = self
            .counters
            .get(&job.index, 0)
            .map_err(map_error("read a job's counters"))?;
        Ok(value.0)
    }

    /// Gives a closed job's slot back. The ring lives until its reader drops it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn release(&mut self, job: JobSlot) -> Result<(), ProbesError> {
        self.wall.fell(job.index)?;
        let Some(depth) = self
            .slots
            .get_mut(job.index as usize)
            .and_then(Option::take)
        else {
            return Ok(());
        };
        self.forget_mounts(job.index)?;
        self.resolvers.forget(job.index)?;
        if self.slots.contains(&Some(depth)) {
            return Ok(());
        }
        let mut places = self.places;
        for level in places.levels.iter_mut().filter(|level| **level == depth) {
            *level = 0;
        }
        self.set_places(places, "set the depths in use")
    }

    fn new_ring(&self) -> Result<RingBuf<MapData>, ProbesError> {
        let definition = aya_obj::Map::new_from_params(
            aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF as u32,
            0,
            0,
            self.ring_bytes,
            0,
        );
        let data = MapData::create(definition, "capgate_ring", None)
            .map_err(map_error("make a job's ring"))?;
        RingBuf::try_from(Map::RingBuf(data)).map_err(map_error("map a job's ring"))
    }
}

/// Links the programs behind another to it, by the order in which the set has them.
fn concerns(
    ebpf: &mut Ebpf,
    hooks: &[&'static Hook],
    programs: &[ProgramFd],
) -> Result<ProgramArray<MapData>, ProbesError> {
    let mut concerns: ProgramArray<MapData> = take(ebpf, "CONCERNS")?;
    let behind = hooks
        .iter()
        .zip(programs)
        .filter(|(hook, _)| matches!(hook.at, Where::Behind(_)));
    for (index, (_, program)) in (0..).zip(behind) {
        concerns
            .set(index, program, 0)
            .map_err(map_error("link the probes"))?;
    }
    Ok(concerns)
}

/// Takes a map out of the loader's hands.
fn take<T: TryFrom<Map, Error = MapError>>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<T, ProbesError> {
    let map = ebpf.take_map(name).ok_or(ProbesError::Object(name))?;
    T::try_from(map).map_err(map_error("use a map"))
}
