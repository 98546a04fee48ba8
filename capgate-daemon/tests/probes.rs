//! The probes on the running kernel: real programs in a real cgroup, and what the ring says they did.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "support/hierarchy.rs"]
mod hierarchy;

use std::{
    fs,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::PathBuf,
    process::Command,
};

use capgate_common::{contract::Contract, event::Counters};
use capgate_daemon::{
    decode::DecodeError,
    drain::{self, Take},
    event::{Event, Fact, InetOp, Membership, Named, Top},
    forwarder::StandIn,
    permit::Permits,
    probes::{At, ProbeChoice, Probes},
};
use hierarchy::cgroup_root;

/// A job cgroup that is removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Self {
        let path = cgroup_root().join(format!("capgate-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Takes events into a list.
struct List {
    events: Vec<Event>,
    rejected: Vec<DecodeError>,
}

impl Take for List {
    fn take(&mut self, event: Event) {
        self.events.push(event);
    }

    fn reject(&mut self, error: DecodeError) {
        self.rejected.push(error);
    }
}

/// One job's events, and the fresh directory that it ran in.
struct Recorded {
    events: Vec<Event>,
    counters: Counters,
    _temporary: tempfile::TempDir,
}

/// Runs a shell script in a fresh job, in a fresh directory.
fn record(name: &str, ring_bytes: u32, script: &str) -> Recorded {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().canonicalize().unwrap();
    fs::write(dir.join(".script"), script).unwrap();
    let cgroup = Cgroup::new(name);
    let mut probes = Probes::load(ProbeChoice::Auto, &cgroup_root(), ring_bytes)
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        probes.attached(),
        Vec::<String>::new(),
        "loading attaches nothing"
    );
    let id = fs::metadata(&cgroup.0).unwrap().ino();
    probes.attach().unwrap_or_else(|e| panic!("{e}"));
    let (root, slash) = (fs::File::open(&dir).unwrap(), fs::File::open("/").unwrap());
    let at = At {
        root: root.as_fd(),
        slash: slash.as_fd(),
        mounts: &[],
        newest_mount: None,
        resolvers: &[],
    };
    let (slot, ring) = probes
        .open_job(id, 1, &at)
        .unwrap_or_else(|e| panic!("{e}"));
    let drain = drain::spawn(
        ring,
        List {
            events: Vec::new(),
            rejected: Vec::new(),
        },
    )
    .unwrap();
    let status = Command::new("/bin/sh")
        .arg("-c")
        .arg(format!(
            "echo $$ > {}/cgroup.procs && exec /bin/sh .script",
            cgroup.0.display()
        ))
        .current_dir(&dir)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    probes.close_scope(&slot).unwrap();
    let counters = probes.counters(&slot).unwrap();
    assert_eq!(probes.skipped_since(&slot).unwrap(), 0);
    let drained = drain.finish().unwrap();
    assert_eq!(drained.taker.rejected, []);
    assert_eq!(drained.received, drained.decoded + drained.rejected);
    assert_eq!(
        drained.received,
        counters.emitted.iter().sum::<u64>(),
        "all that was emitted arrived"
    );
    for kind in 0..counters.attempted.len() {
        assert_eq!(
            counters.attempted[kind],
            counters.emitted[kind] + counters.deduplicated[kind] + counters.lost[kind],
            "kind {kind}"
        );
    }
    probes.release(slot).unwrap();
    Recorded {
        events: drained.taker.events,
        counters,
        _temporary: temporary,
    }
}

impl Recorded {
    /// Paths below the job's directory that were opened for writing, with what the kernel said of them.
    fn files(&self) -> Vec<(String, bool, bool)> {
        self.events
            .iter()
            .filter_map(|event| match &event.fact {
                Fact::File(file) => {
                    let path = String::from_utf8(file.path.bytes.clone()).unwrap();
                    let below = path.strip_prefix('/').unwrap().to_owned();
                    (file.path.top == Top::Root).then_some((below, file.created, file.truncate))
                }
                _ => None,
            })
            .collect()
    }

    /// Name operations as `op base string [base string]`, the job's directory written as `.`.
    fn names(&self) -> Vec<String> {
        self.events
            .iter()
            .filter_map(|event| match &event.fact {
                Fact::Name(name) => {
                    let show = |named: &Named| {
                        let base = String::from_utf8_lossy(&named.base.bytes);
                        let base = match named.base.top {
                            Top::Root => format!(".{}", base.trim_end_matches('/')),
                            _ => base.into_owned(),
                        };
                        format!("{base} {}", String::from_utf8_lossy(&named.string))
                    };
                    let (first, second) = (show(&name.first), show(&name.second));
                    Some(format!("{:?} {first} | {second}", name.op))
                }
                _ => None,
            })
            .collect()
    }

    fn lost(&self) -> u64 {
        self.counters.lost.iter().sum()
    }
}

#[test]
fn opens_are_recorded_with_the_kernels_path_and_created_flag() {
    let job = record(
        "opens",
        1 << 20,
        "echo a > f; echo b >> f; ln -s f l; echo c >> l; mkdir d; cd d; echo d > ../g; cat < ../g",
    );
    assert_eq!(
        job.files(),
        [
            ("f".to_owned(), true, true),
            ("f".to_owned(), false, false),
            ("f".to_owned(), false, false),
            ("g".to_owned(), true, true),
        ]
    );
    assert_eq!(job.lost(), 0);
}

#[test]
fn name_operations_come_with_their_base_directory_and_string() {
    let job = record(
        "names",
        1 << 20,
        "mkdir d; echo > f; mv f d/g; ln d/g h; ln -s d/g s; cd d; rm g; cd ..; rm h s; rmdir d",
    );
    assert_eq!(
        job.names(),
        [
            "Mkdir . d | / ",
            "Rename . f | . d/g",
            "Link . d/g | . h",
            "Symlink / d/g | . s",
            "Unlink ./d g | / ",
            "Unlink . h | / ",
            "Unlink . s | / ",
            "Rmdir . d | / ",
        ]
    );
}

#[test]
fn a_job_that_floods_a_small_ring_loses_and_the_counters_say_how_much() {
    let job = record(
        "flood",
        4096,
        "i=0; while [ $i -lt 3000 ]; do : > f; i=$((i+1)); done",
    );
    let arrived = job.files().len() as u64;
    let kind = usize::from(capgate_common::event::KIND_FILE);
    assert_eq!(job.counters.attempted[kind], 3000);
    assert_eq!(arrived + job.counters.lost[kind], 3000);
}

#[test]
fn programs_processes_and_arguments_are_recorded() {
    let job = record(
        "exec",
        1 << 20,
        "printf '#!/bin/sh\\necho $1\\n' > tool; chmod +x tool; ./tool one",
    );
    let execs: Vec<(String, String, bool, usize)> = job
        .events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::Exec(exec) => Some((
                String::from_utf8_lossy(&exec.exe.bytes).into_owned(),
                String::from_utf8_lossy(&exec.name.string).into_owned(),
                exec.script,
                exec.argv.len(),
            )),
            _ => None,
        })
        .collect();
    let shell = fs::canonicalize("/bin/sh").unwrap().display().to_string();
    assert!(
        execs.contains(&(shell, "./tool".to_owned(), true, 3)),
        "{execs:?}"
    );
    let forks = job
        .events
        .iter()
        .filter(|e| matches!(e.fact, Fact::Fork { outside: false, .. }))
        .count();
    let exits = job
        .events
        .iter()
        .filter(|e| matches!(e.fact, Fact::Exit { .. }))
        .count();
    assert_eq!(
        forks + 1,
        exits,
        "every process that began has ended, the first one included"
    );
}

#[test]
fn inet_and_unix_peers_and_listeners_are_recorded() {
    let script = r#"/usr/bin/python3 - <<'P'
import socket
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.sendto(b"x", ("127.0.0.1", 9))
t = socket.socket()
try: t.connect(("127.0.0.1", 9))
except OSError: pass
l = socket.socket(socket.AF_INET6); l.bind(("::1", 0)); l.listen()
s = socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen(1)
c = socket.socket(socket.AF_UNIX); c.connect("sock")
P
"#;
    let job = record("net", 1 << 20, script);
    let inet: Vec<String> = job
        .events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::Inet(inet) if inet.op == InetOp::Listen => {
                Some(format!("{:?} {}", inet.op, inet.addr))
            }
            Fact::Inet(inet) => Some(format!("{:?} {}:{}", inet.op, inet.addr, inet.port)),
            _ => None,
        })
        .collect();
    assert_eq!(
        inet,
        [
            "Send 127.0.0.1:9",
            "Egress 127.0.0.1:9",
            "Connect 127.0.0.1:9",
            "Listen ::1"
        ]
    );
    assert!(job.events.iter().any(|event| matches!(
        &event.fact,
        Fact::Unix(unix) if unix.connect
            && unix.peer.as_ref().is_some_and(|p| p.top == Top::Root && p.bytes == b"/sock")
    )));
}

#[test]
fn a_task_that_leaves_the_cgroup_is_reported() {
    let root = cgroup_root().display().to_string();
    let job = record(
        "leave",
        1 << 20,
        &format!("sh -c 'echo $$ > {root}/cgroup.procs'"),
    );
    assert!(
        job.events
            .iter()
            .any(|event| matches!(event.fact, Fact::Move { left: true, .. }))
    );
}

#[test]
fn child_cgroups_belong_to_the_job() {
    let root = cgroup_root().display().to_string();
    let script = format!(
        "d={root}$(grep ^0:: /proc/self/cgroup | cut -d: -f3)/inner; mkdir $d; sh -c \"echo \\$\\$ > $d/cgroup.procs; echo > f; echo \\$\\$ > $d/../cgroup.procs\"; rmdir $d"
    );
    let job = record("child", 1 << 20, &script);
    assert!(
        job.files().contains(&("f".to_owned(), true, true)),
        "{:?}",
        job.files()
    );
    assert!(
        !job.events
            .iter()
            .any(|event| matches!(event.fact, Fact::Move { left: true, .. }))
    );
}

#[test]
fn threads_are_members_until_they_end() {
    // strace reads the memory of whichever thread makes a call, and that one may be gone when the daemon looks.
    let script = r#"exec python3 -c '
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
buffer = ctypes.create_string_buffer(8)
class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
iovec = Iovec(ctypes.addressof(buffer), 8)
def reach(target):
    assert libc.process_vm_readv(target, ctypes.byref(iovec), 1, ctypes.byref(iovec), 1, 0) == 8
def body():
    reach(threading.get_native_id())
    os.execv("/bin/true", ["true"])
reach(os.getpid())
thread = threading.Thread(target=body)
thread.start()
thread.join()
'"#;
    let job = record("threads", 1 << 20, script);
    let reached: Vec<Membership> = job
        .events
        .iter()
        .filter_map(|event| match event.fact {
            Fact::Ptrace { target_is, .. } => Some(target_is),
            _ => None,
        })
        .collect();
    assert_eq!(reached, [Membership::Inside, Membership::Inside]);
}

#[test]
fn no_rule_survives_its_job() {
    let cgroup = Cgroup::new("rules");
    let mut probes = Probes::load(ProbeChoice::Auto, &cgroup_root(), 4096).unwrap();
    let id = fs::metadata(&cgroup.0).unwrap().ino();
    let (root, slash) = (fs::File::open("/").unwrap(), fs::File::open("/").unwrap());
    let at = At {
        root: root.as_fd(),
        slash: slash.as_fd(),
        mounts: &[],
        newest_mount: None,
        resolvers: &[],
    };
    let contract = serde_json::json!({
        "allow_net": ["192.0.2.0/24:80", "[2001:db8::1]:443", "raw:192.0.2.1/1", "www.example.org:443"],
        "cpu_budget": 1,
        "writes": capgate_common::ledger::EMPTY_DIGEST,
    });
    let contract = Contract::from_json(contract.to_string().as_bytes()).unwrap();
    let permits = Permits::of_contract(&contract, |_| None);
    let rules = permits.rules().unwrap();
    let resolver = "192.0.2.53".parse().unwrap();
    let stand_ins = [StandIn {
        resolver,
        port: 5353,
    }];
    // The second one finds the slot as the first one did.
    for _ in 0..2 {
        let (job, ring) = probes.open_job(id, 1, &at).unwrap();
        assert_eq!(probes.rules(), 0);
        probes.enforce(&job, 1, &rules, &stand_ins).unwrap();
        assert_eq!(probes.rules(), rules.len() + stand_ins.len());
        let name = "www.example.org".parse().unwrap();
        let answered = permits
            .clone()
            .answer(&name, &["198.51.100.1".parse().unwrap()])
            .unwrap();
        probes.permit(&job, &answered).unwrap();
        assert_eq!(probes.rules(), rules.len() + stand_ins.len() + 1);
        probes.close_scope(&job).unwrap();
        probes.release(job).unwrap();
        drop(ring);
        assert_eq!(probes.rules(), 0);
    }
}
