//! The rules against the file system: random operations of several processes at the same time on a real directory, recorded by the
//! real probes, compared with what a walk before and a walk after show.
//!
//! What differs must be in the write set. What was never there, before or after, must not.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "support/hierarchy.rs"]
mod hierarchy;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    os::{
        fd::AsFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use capgate_common::{discretion::Discretion, ledger::Recording, pathform::Forms};
use capgate_daemon::{
    decode::DecodeError,
    dns::configured::Configured,
    drain::{self, Take},
    event::Event,
    look::JobRoot,
    mounts::{Mounts, newest},
    probes::{At, ProbeChoice, Probes},
    resolve::Places,
    session::{Closing, JobView, Limits, Session},
};
use hierarchy::cgroup_root;

/// Sequences of operations.
const SEQUENCES: u64 = 10_000;
/// Of these at most so many, by the thousand, may be recorded incompletely: a name that another process takes away before it is
/// looked at cannot be resolved, and says so.
const INCOMPLETE_PERMILLE: u64 = 100;
/// And in so many a name too many: what came along with a directory while another process removed it can look like a record in the
/// wrong place, and over-reporting beats under-reporting.
const STRANGE_PERMILLE: u64 = 1;
/// Processes at work on a sequence at the same time.
const WORKERS: usize = 3;
/// Sequences at the same time, each in a job of its own: most of a short job's time is waiting.
const LANES: u64 = 8;
/// Names that they fight for.
const NAMES: [&str; 12] = [
    "a", "b", "c", "d", "e", "d/a", "d/b", "d/s", "e/a", "e/s", "d/s/a", "e/s/a",
];
const OPERATIONS: [&str; 13] = [
    "create",
    "create",
    "write",
    "truncate",
    "nameless",
    "unlink",
    "rmdir",
    "mkdir",
    "fifo",
    "symlink",
    "link",
    "rename",
    "noreplace",
];

/// xorshift64*: enough to vary, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap() % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }

    /// One operation as a line.
    fn operation(&mut self, number: usize) -> String {
        let (one, two) = (self.pick(&NAMES), self.pick(&NAMES));
        if self.roll(16) == 0 {
            return format!("exchange {one} {two}");
        }
        match self.pick(&OPERATIONS) {
            word @ ("create" | "write") => format!("{word} {one} {number}"),
            word @ ("link" | "rename" | "noreplace") => format!("{word} {one} {two}"),
            word => format!("{word} {one}"),
        }
    }
}

/// What is at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    Link,
    Fifo,
    File(Vec<u8>),
}

/// Everything below a directory: inode and kind by name.
type Tree = BTreeMap<String, (u64, Kind)>;

fn walk(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let about = fs::symlink_metadata(entry.path()).unwrap();
            let kind = if about.is_dir() {
                directories.push(entry.path());
                Kind::Directory
            } else if about.is_symlink() {
                Kind::Link
            } else if about.file_type().is_fifo() {
                Kind::Fifo
            } else {
                Kind::File(fs::read(entry.path()).unwrap())
            };
            let name = entry.path().strip_prefix(root).unwrap().to_owned();
            tree.insert(name.display().to_string(), (about.ino(), kind));
        }
    }
    tree
}

/// Takes events into a recording, as the daemon does.
struct Live(Session);

impl Take for Live {
    fn take(&mut self, event: Event) {
        self.0.apply(event, false);
    }

    fn reject(&mut self, error: DecodeError) {
        panic!("{error}");
    }
}

/// A process that changes files, in the job's cgroup.
struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(cgroup: &Path) -> Self {
        let test = std::env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("examples/operate");
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        fs::write(cgroup.join("cgroup.procs"), child.id().to_string()).unwrap();
        Self {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn order(&mut self, directory: &Path, operations: &[String]) {
        let mut text = format!("{}\n", directory.display());
        for operation in operations {
            text.push_str(operation);
            text.push('\n');
        }
        text.push('\n');
        self.orders.write_all(text.as_bytes()).unwrap();
    }

    fn wait(&mut self) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    fn end(mut self) {
        drop(self.orders);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Records what the workers do in a directory.
fn record(probes: &Mutex<Probes>, cgroup: u64, root: &Path, work: impl FnOnce()) -> Recording {
    let directory = File::open(root).unwrap();
    let slash = File::open("/").unwrap();
    let mounts = Mounts::read(&fs::read("/proc/self/mountinfo").unwrap(), b"/");
    let known = mounts.known();
    let bytes = root.as_os_str().as_encoded_bytes().to_vec();
    let view = JobView {
        forms: Forms::new(&bytes, None, 0).unwrap(),
        rules: None,
        contract_path: None,
        socket: None,
        temp_dirs: Vec::new(),
        slash: b"/".to_vec(),
        mnt_ns: 0,
        places: Places {
            root: bytes,
            mounts,
        },
        configured: Configured::default(),
        netns: None,
        probe_set: probes.lock().unwrap().set(),
        started_ns: 0,
        limits: Limits::of_memory(16 << 20, 1_000_000),
        discretion: Discretion::default(),
        refused: None,
    };
    let look = JobRoot::new(directory.as_fd(), File::open("/").unwrap().into()).unwrap();
    let session = Session::open(view, Box::new(look)).unwrap_or_else(|_| panic!("no room"));
    let at = At {
        root: directory.as_fd(),
        slash: slash.as_fd(),
        mounts: &known,
        newest_mount: newest::newest(),
        resolvers: &[],
    };
    let (slot, ring) = probes
        .lock()
        .unwrap()
        .open_job(cgroup, 1, &at)
        .unwrap_or_else(|error| panic!("{error}"));
    let drain = drain::spawn(ring, Live(session)).unwrap();
    work();
    let mut kernel = probes.lock().unwrap();
    kernel.close_scope(&slot).unwrap();
    let counters = kernel.counters(&slot).unwrap();
    kernel.release(slot).unwrap();
    drop(kernel);
    let session = drain.finish().unwrap().taker.0;
    let closing = Closing {
        counters,
        user_usec: 0,
        hooks: BTreeSet::new(),
        not_covered: BTreeSet::new(),
        enforced: None,
        race_free: false,
        unseen: BTreeSet::new(),
        lost: BTreeMap::new(),
        time_limit: Duration::from_secs(60),
    };
    session.seal(closing).recording
}

/// The directories that a name is in, nearest first; the last is the root, empty.
fn above(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| {
        (!name.is_empty()).then(|| name.rsplit_once('/').map_or("", |(above, _)| above))
    })
    .skip(1)
}

/// What differs and is not in the write set: neither itself, nor a directory that it is in, nor as what cannot be told of one.
fn lacking(before: &Tree, after: &Tree, writes: &BTreeSet<String>) -> Vec<String> {
    let directory = |at: Option<&(u64, Kind)>| matches!(at, Some((_, Kind::Directory)));
    let differs = |name: &&&String| {
        let (was, is) = (before.get(**name), after.get(**name));
        // Git does not track directories: one that was made, or made again, is nothing.
        was != is && !(directory(is) && (was.is_none() || directory(was)))
    };
    let covered = |name: &str| {
        let names = |name: &str| writes.contains(name) || writes.contains(&format!("{name}/"));
        let nearest = above(name)
            .find(|above| above.is_empty() || after.contains_key(*above))
            .unwrap_or_default();
        let untold = [nearest, "*"].join(if nearest.is_empty() { "" } else { "/" });
        names(name) || above(name).any(names) || writes.contains(&untold)
    };
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let lacking = names.iter().filter(differs).filter(|name| !covered(name));
    lacking.map(|name| (*name).clone()).collect()
}

/// Members of the write set that name what was never there: neither before nor after.
fn undue(before: &Tree, after: &Tree, writes: &BTreeSet<String>) -> Vec<String> {
    let is_due = |entry: &&String| {
        let name = entry.strip_suffix("/*").or(entry.strip_suffix('/'));
        let name = name.unwrap_or(entry);
        name == "*" || before.contains_key(name) || after.contains_key(name)
    };
    writes
        .iter()
        .filter(|entry| !is_due(entry))
        .cloned()
        .collect()
}

/// What came of some sequences.
#[derive(Default)]
struct Outcome {
    incomplete: u64,
    /// Members of write sets that nothing explains.
    strange: Vec<String>,
}

/// Some names in a directory, and what each worker is to do with them.
fn prepare(seed: u64, root: &Path) -> Vec<Vec<String>> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    fs::create_dir(root).unwrap();
    for name in NAMES {
        let path = root.join(name);
        let below = format!("{name}/");
        let roll = dice.roll(3);
        if roll == 0 || !path.parent().unwrap().is_dir() {
            continue;
        }
        if NAMES.iter().any(|other| other.starts_with(&below)) {
            fs::create_dir(&path).unwrap();
        } else {
            fs::write(&path, name).unwrap();
        }
    }
    let count = dice.roll(8);
    let mut order = || (0..count).map(|number| dice.operation(number)).collect();
    (0..WORKERS).map(|_| order()).collect()
}

/// Every [`LANES`]th sequence, in a cgroup of its own.
fn lane(probes: &Mutex<Probes>, place: &Path, first: u64) -> Outcome {
    let name = format!("capgate-test-sequences-{}-{first}", std::process::id());
    let cgroup = cgroup_root().join(name);
    fs::create_dir(&cgroup).unwrap();
    let id = fs::metadata(&cgroup).unwrap().ino();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::start(&cgroup)).collect();
    let mut outcome = Outcome::default();
    for seed in (first..=SEQUENCES).step_by(usize::try_from(LANES).unwrap()) {
        let root = place.join(seed.to_string());
        let orders = prepare(seed, &root);
        let before = walk(&root);
        let recording = record(probes, id, &root, || {
            for (worker, order) in workers.iter_mut().zip(&orders) {
                worker.order(&root, order);
            }
            workers.iter_mut().for_each(Worker::wait);
        });
        let after = walk(&root);
        let told = format!("seed {seed}: {orders:?}\nbefore {before:?}\nafter {after:?}");
        if recording.lost.is_empty() && recording.coverage.unseen.is_empty() {
            let writes = &recording.write_paths;
            let lacking = lacking(&before, &after, writes);
            assert!(lacking.is_empty(), "{lacking:?} not in {writes:?}, {told}");
            let undue = undue(&before, &after, writes);
            if !undue.is_empty() {
                outcome
                    .strange
                    .push(format!("{undue:?} in {writes:?}, {told}"));
            }
        } else {
            outcome.incomplete += 1;
        }
        fs::remove_dir_all(&root).unwrap();
    }
    workers.into_iter().for_each(Worker::end);
    fs::remove_dir(&cgroup).unwrap();
    outcome
}

#[test]
fn what_differs_after_random_operations_is_in_the_write_set() {
    let mut probes = Probes::load(ProbeChoice::Auto, &cgroup_root(), 256 << 10)
        .unwrap_or_else(|error| panic!("{error}"));
    probes.attach().unwrap_or_else(|error| panic!("{error}"));
    let probes = Mutex::new(probes);
    let place = tempfile::tempdir().unwrap();
    let path = place.path().canonicalize().unwrap();
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let lanes: Vec<_> = (1..=LANES)
            .map(|first| {
                scope.spawn({
                    let (probes, path) = (&probes, &path);
                    move || lane(probes, path, first)
                })
            })
            .collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    let incomplete: u64 = outcomes.iter().map(|outcome| outcome.incomplete).sum();
    let strange: Vec<&String> = outcomes
        .iter()
        .flat_map(|outcome| &outcome.strange)
        .collect();
    assert!(
        incomplete * 1000 <= SEQUENCES * INCOMPLETE_PERMILLE,
        "{incomplete} of {SEQUENCES} are incomplete"
    );
    let most = usize::try_from(SEQUENCES * STRANGE_PERMILLE / 1000).unwrap();
    assert!(
        strange.len() <= most,
        "{} are strange: {strange:#?}",
        strange.len()
    );
}
