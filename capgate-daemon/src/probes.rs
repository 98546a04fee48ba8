//! The probes: loaded once, attached while jobs run, one ring for each job.

use std::{
    any::Any,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use aya::{
    Btf, Ebpf, EbpfLoader, Pod,
    maps::{Array, ArrayOfMaps, HashMap, Map, MapData, MapError, ProgramArray, RingBuf},
    programs::{
        BtfTracePoint, CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, CgroupSockAddr, Program,
        ProgramError,
    },
};
use aya_log::EbpfLogger;
use capgate_common::{
    event::{Counters, Offsets, Scope, Slot},
    limits::{MAX_JOBS, MAX_LEVELS, WAKE_SHIFT},
};

use crate::{
    memory,
    offsets::{self, KERNEL_BTF, OffsetsError},
};

/// The object that the build script made.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capgate-ebpf"));

/// Tracepoints with BTF-typed arguments, by program name; the tracepoint has the same name.
const TRACEPOINTS: [&str; 5] = [
    "sys_exit",
    "sched_process_exec",
    "sched_process_fork",
    "sched_process_exit",
    "cgroup_attach_task",
];
/// Second programs of `sys_exit`, reached by tail calls, in the order of their indexes.
const CONCERNS: [&str; 7] = [
    "opened",
    "named",
    "socket",
    "addressed",
    "sent_many",
    "received",
    "traced",
];
/// The tracepoint that tells io_uring operations; kernels before 6.3 lack it.
const IO_URING: &str = "io_uring_submit_req";
/// Socket address programs, attached at the root of the v2 hierarchy.
const SOCK_ADDR: [&str; 4] = ["connect4", "connect6", "sendmsg4", "sendmsg6"];
/// The packet program, attached likewise.
const EGRESS: &str = "egress";

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
    /// The `tracepoint` set.
    Tracepoint,
}

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
    /// The object lacks something that this file names.
    #[error("the probe object has no `{0}`: it does not belong to this daemon")]
    Object(&'static str),
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

fn map_error(what: &'static str) -> impl FnOnce(MapError) -> ProbesError {
    move |cause| ProbesError::Map { what, cause }
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

/// [`Slot`] as a map value.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct SlotValue(Slot);
// SAFETY: a struct of u32 without padding; every bit pattern is a value.
unsafe impl Pod for SlotValue {}

/// The loaded probe set. Dropping it detaches and unloads everything.
pub struct Probes {
    ebpf: Ebpf,
    logger: EbpfLogger<&'static dyn log::Log>,
    cgroup_root: PathBuf,
    ring_bytes: u32,
    io_uring_ops: bool,
    scope: Array<MapData, ScopeValue>,
    more_scope: HashMap<MapData, u64, SlotValue>,
    counters: Array<MapData, CountersValue>,
    rings: ArrayOfMaps<MapData, RingBuf<MapData>>,
    /// The kernel empties the array when nobody holds it open.
    _concerns: ProgramArray<MapData>,
    /// What `scope` holds.
    places: Scope,
    /// Depth of the job in each slot; `None` is free.
    slots: Vec<Option<u8>>,
    generation: u32,
    /// What is attached, and what detaches it when dropped.
    links: Vec<(&'static str, Box<dyn Any + Send>)>,
}

/// A job's place in the kernel.
#[derive(Clone, Copy, Debug)]
pub struct JobSlot {
    index: u32,
    cgroup_id: u64,
}

impl Probes {
    /// Loads the programs and has the verifier check them; attaches nothing.
    ///
    /// # Errors
    /// When the kernel lacks BTF or a struct member, or refuses a program or map.
    pub fn load(
        choice: ProbeChoice,
        cgroup_root: &Path,
        ring_bytes: u32,
    ) -> Result<Self, ProbesError> {
        match choice {
            ProbeChoice::Auto | ProbeChoice::Tracepoint => {}
        }
        if !ring_bytes.is_power_of_two() || ring_bytes < MIN_RING_BYTES {
            return Err(ProbesError::RingSize(ring_bytes));
        }
        let found = offsets::read(Path::new(KERNEL_BTF))?;
        memory::give_back();
        let btf = Btf::from_sys_fs().map_err(|e| ProbesError::Load {
            cause: one_line(&e),
        })?;
        let globals = OffsetsGlobal(found.offsets);
        let io_uring_ops = u32::from(found.io_uring_ops);
        let wake_bytes = u64::from(ring_bytes >> WAKE_SHIFT);
        // Looking at the fill costs a helper call: in a large ring, one record in so many does.
        let look_mask: u64 = if ring_bytes >= LARGE_RING {
            LOOK_EVERY - 1
        } else {
            0
        };
        let mut ebpf = EbpfLoader::new()
            .btf(Some(&btf))
            .override_global("OFFSETS", &globals, true)
            .override_global("IO_URING_OPS", &io_uring_ops, true)
            .override_global("WAKE_BYTES", &wake_bytes, true)
            .override_global("LOOK_MASK", &look_mask, true)
            .load(OBJECT)
            .map_err(|e| ProbesError::Load {
                cause: one_line(&e),
            })?;
        let logger = EbpfLogger::init(&mut ebpf).map_err(|e| ProbesError::Load {
            cause: one_line(&e),
        })?;
        for name in TRACEPOINTS {
            load_tracepoint(&mut ebpf, name, name, &btf)?;
        }
        if found.io_uring_ops {
            load_tracepoint(&mut ebpf, IO_URING, IO_URING, &btf)?;
        }
        let mut concerns: ProgramArray<MapData> = take(&mut ebpf, "CONCERNS")?;
        for (index, name) in (0..).zip(CONCERNS) {
            load_tracepoint(&mut ebpf, name, "sys_exit", &btf)?;
            let fd = program::<BtfTracePoint>(&mut ebpf, name)?
                .fd()
                .map_err(refused("load", name))?;
            concerns
                .set(index, fd, 0)
                .map_err(map_error("link the probes"))?;
        }
        for name in SOCK_ADDR {
            program::<CgroupSockAddr>(&mut ebpf, name)?
                .load()
                .map_err(refused("load", name))?;
        }
        program::<CgroupSkb>(&mut ebpf, EGRESS)?
            .load()
            .map_err(refused("load", EGRESS))?;
        drop(btf);
        memory::give_back();
        Ok(Self {
            scope: take(&mut ebpf, "SCOPE")?,
            more_scope: take(&mut ebpf, "MORE_SCOPE")?,
            counters: take(&mut ebpf, "COUNTERS")?,
            rings: take(&mut ebpf, "RINGS")?,
            _concerns: concerns,
            ebpf,
            logger,
            cgroup_root: cgroup_root.to_path_buf(),
            ring_bytes,
            io_uring_ops: found.io_uring_ops,
            places: Scope::default(),
            slots: vec![None; MAX_JOBS as usize],
            generation: 0,
            links: Vec::new(),
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
        let root = File::open(&self.cgroup_root).map_err(|cause| ProbesError::CgroupRoot {
            path: self.cgroup_root.clone(),
            cause,
        })?;
        let io_uring = self.io_uring_ops.then_some(IO_URING);
        for name in TRACEPOINTS.into_iter().chain(io_uring) {
            let program = program::<BtfTracePoint>(&mut self.ebpf, name)?;
            let link = program.attach().and_then(|id| program.take_link(id));
            self.links
                .push((name, Box::new(link.map_err(refused("attach", name))?)));
        }
        for name in SOCK_ADDR {
            let program = program::<CgroupSockAddr>(&mut self.ebpf, name)?;
            // Links are always shared with other programs; asking for it by flag is refused on older kernels.
            let link = program
                .attach(&root, CgroupAttachMode::Single)
                .and_then(|id| program.take_link(id));
            self.links
                .push((name, Box::new(link.map_err(refused("attach", name))?)));
        }
        let program = program::<CgroupSkb>(&mut self.ebpf, EGRESS)?;
        let link = program
            .attach(&root, CgroupSkbAttachType::Egress, CgroupAttachMode::Single)
            .and_then(|id| program.take_link(id));
        self.links
            .push((EGRESS, Box::new(link.map_err(refused("attach", EGRESS))?)));
        Ok(())
    }

    /// Detaches every program. They stay loaded.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Names of the programs that are attached now.
    #[must_use]
    pub fn attached(&self) -> Vec<String> {
        self.links
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect()
    }

    /// The set's name, as coverage has it.
    #[must_use]
    pub fn set_name(&self) -> &'static str {
        "tracepoint"
    }

    /// Whether a thread that rewrites a path while the kernel uses it cannot fool the set.
    #[must_use]
    pub fn race_free(&self) -> bool {
        false
    }

    /// What the set cannot record, a phrase each. When one of these happens the ledger is incomplete.
    #[must_use]
    pub fn not_covered(&self) -> Vec<String> {
        let mut phrases = vec![
            "32-bit and x32 system calls (detected)".to_owned(),
            "mounts made by the job, and work in another mount namespace (detected)".to_owned(),
            "a thread that rewrites a path or swaps a descriptor while a call runs (not detected)"
                .to_owned(),
        ];
        phrases.push(if self.io_uring_ops {
            "io_uring operations that open, name or connect (detected)".to_owned()
        } else {
            "io_uring (a ring is detected as a whole)".to_owned()
        });
        phrases
    }

    /// Makes a job's ring and takes its cgroup into scope: events flow from here on. `level` is the depth of
    /// the cgroup below the root of the v2 hierarchy.
    ///
    /// # Errors
    /// When there is no slot or depth left, or the kernel refuses the ring.
    pub fn open_job(
        &mut self,
        cgroup_id: u64,
        level: u32,
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
        let ring = self.new_ring()?;
        self.rings
            .set(index, &ring, 0)
            .map_err(map_error("hand over a job's ring"))?;
        self.counters
            .set(index, CountersValue(Counters::default()), 0)
            .map_err(map_error("clear a job's counters"))?;
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
        Ok((JobSlot { index, cgroup_id }, ring))
    }

    /// Takes a job's cgroup out of scope: nothing is recorded from here on. The ring still holds what was.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn close_scope(&mut self, job: &JobSlot) -> Result<(), ProbesError> {
        // Rare diagnostics of the probes; they go to the daemon's own log.
        self.logger.flush();
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
        let Some(depth) = self
            .slots
            .get_mut(job.index as usize)
            .and_then(Option::take)
        else {
            return Ok(());
        };
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

/// A program of the object, as the type that it must have.
fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, ProbesError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or(ProbesError::Object(name))?;
    program.try_into().map_err(refused("find", name))
}

fn load_tracepoint(
    ebpf: &mut Ebpf,
    name: &'static str,
    tracepoint: &str,
    btf: &Btf,
) -> Result<(), ProbesError> {
    program::<BtfTracePoint>(ebpf, name)?
        .load(tracepoint, btf)
        .map_err(refused("load", name))
}

fn refused(what: &'static str, name: &'static str) -> impl FnOnce(ProgramError) -> ProbesError {
    move |error| ProbesError::Program {
        what,
        name,
        cause: one_line(&error),
    }
}

/// Takes a map out of the loader's hands.
fn take<T: TryFrom<Map, Error = MapError>>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<T, ProbesError> {
    let map = ebpf.take_map(name).ok_or(ProbesError::Object(name))?;
    T::try_from(map).map_err(map_error("use a map"))
}

/// An error with its causes in one line. The verifier's log can be megabytes: its end says why.
fn one_line(error: &dyn std::error::Error) -> String {
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
