//! Jobs told in a few words, for tests of the rooms from resolve to session.
//!
//! A story is a list of steps, separated by `;` or newlines. Names are relative to `/repo` or absolute. Processes are told apart by
//! `@PID`, and threads by `@PID.TID`, which holds until the next; a step takes a millisecond, `+MS` waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use capgate_common::{
    contract::Contract, discretion::Discretion, event as wire, evidence::Item, ledger::ProbeSet,
    pathform::Forms, rules::Rules,
};

use crate::{
    cgroup::Member,
    dns::{configured::Configured, craft},
    event::{
        Dns, Event, Exec, Fact, File, FileId, Flow, Inet, InetOp, KernelPath, Membership, Name,
        NameOp, Named, Socket, SocketOp, Task, Top, Unix,
    },
    look::{At, End, Look},
    mounts::Mounts,
    resolve::Places,
    session::{Closing, JobView, Limits, Record, Session},
};

/// The network namespace of stories, and of the machine that they run on.
pub(crate) const NETNS: u64 = 1;
/// A process outside that runs sccache.
pub(crate) const SERVER: u32 = 4226;
/// The mount namespace of stories.
pub(crate) const MNT_NS: u32 = 4_026_531_841;
/// When a story begins, nanoseconds since boot.
const START: u64 = 5_000_000_000;

/// A machine that answers from a list.
#[derive(Clone, Default)]
pub(crate) struct Machine {
    /// What is there, during the whole story and at its end: `name`, `name/`, `name->text`, `name!` (owned by root), `name?` (cannot be told).
    files: BTreeMap<String, At>,
    /// The time of every look.
    now_ns: u64,
}

impl Machine {
    /// Reads a list, separated by spaces.
    pub(crate) fn new(list: &str) -> Self {
        let mut files = BTreeMap::new();
        for word in list.split_whitespace() {
            let (name, at) = if let Some((name, text)) = word.split_once("->") {
                (name, At::Link(text.as_bytes().to_vec()))
            } else if let Some(name) = word.strip_suffix('/') {
                (name, At::Directory)
            } else if let Some(name) = word.strip_suffix('!') {
                (name, At::Other { uid: 0 })
            } else if let Some(name) = word.strip_suffix('?') {
                (name, At::Unknown)
            } else {
                (word, At::Other { uid: 1000 })
            };
            files.insert(String::from_utf8(absolute(name)).expect("text"), at);
        }
        Self {
            files,
            now_ns: u64::MAX / 2,
        }
    }

    /// From names and what is at them.
    pub(crate) fn with(files: impl IntoIterator<Item = (String, At)>) -> Self {
        let files = files.into_iter();
        let files = files.map(|(name, at)| (String::from_utf8(absolute(&name)).expect("text"), at));
        Self {
            files: files.collect(),
            now_ns: u64::MAX / 2,
        }
    }

    /// The same, looked at when the story began.
    pub(crate) fn early(list: &str) -> Self {
        Self {
            now_ns: START,
            ..Self::new(list)
        }
    }
}

impl Look for Machine {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn at(&self, path: &[u8]) -> At {
        let path = std::str::from_utf8(path).expect("text");
        let inside = format!("{path}/");
        match self.files.get(path) {
            Some(at) => at.clone(),
            None if self.files.keys().any(|name| name.starts_with(&inside)) => At::Directory,
            None => At::Nothing,
        }
    }

    fn ends(&self, directory: &[u8], names: &[&[u8]]) -> Vec<End> {
        let end = |name: &&[u8]| {
            let path = [directory.strip_suffix(b"/").unwrap_or(directory), name].join(&b'/');
            match self.at(&path) {
                At::Directory => End::Directory,
                At::Link(_) | At::Other { .. } => End::Other,
                At::Nothing => End::Nothing,
                At::Unknown => End::Unknown,
            }
        };
        names.iter().map(end).collect()
    }

    fn identity(&self, path: &[u8]) -> Option<(u32, u64)> {
        matches!(self.at(path), At::Other { .. }).then_some((8, 77))
    }

    fn addresses(&self, netns: u64) -> Vec<IpAddr> {
        if netns == NETNS {
            vec![Ipv4Addr::new(192, 0, 2, 7).into()]
        } else {
            Vec::new()
        }
    }

    fn interface(&self, netns: u64, index: u32) -> Option<Vec<u8>> {
        (netns == NETNS && index == 2).then(|| b"eth0".to_vec())
    }

    fn process(&self, pid: u32) -> Option<Member> {
        (pid == SERVER).then(|| Member {
            pid: 9,
            exe: Some("/usr/bin/sccache".into()),
            argv: vec![b"sccache".to_vec()],
        })
    }

    fn listeners(&self, netns: u64, ports: &BTreeSet<u16>) -> Vec<(u16, Member)> {
        let here = netns == NETNS && ports.contains(&4226);
        here.then(|| Some((4226, self.process(SERVER)?)))
            .flatten()
            .into_iter()
            .collect()
    }

    fn file(&self, _: &[u8]) -> Option<std::fs::File> {
        None
    }

    fn program(&self, _: u32) -> Option<std::fs::File> {
        None
    }

    fn is_outside(&self, _: u32, target: u32) -> Option<bool> {
        match target {
            1 => Some(true),
            2 => Some(false),
            _ => None,
        }
    }
}

/// A name of a story as an absolute path.
fn absolute(name: &str) -> Vec<u8> {
    match name {
        "." => b"/repo".to_vec(),
        _ if name.starts_with('/') => name.as_bytes().to_vec(),
        _ => format!("/repo/{name}").into_bytes(),
    }
}

/// A path as the kernel gives it.
pub(crate) fn kernel_path(path: &str) -> KernelPath {
    KernelPath {
        bytes: absolute(path),
        top: Top::Namespace,
        ..KernelPath::default()
    }
}

/// A name as a call gives it, from `/repo`.
pub(crate) fn named(string: &str) -> Named {
    let base = if string.starts_with('/') {
        kernel_path("/")
    } else {
        kernel_path("/repo")
    };
    Named {
        base,
        string: string.as_bytes().to_vec(),
        broken: false,
    }
}

/// A regular file.
pub(crate) fn file(path: &str, ino: u64) -> File {
    File {
        path: kernel_path(path),
        id: FileId {
            dev: 8,
            ino,
            generation: 1,
        },
        mode: 0o100_644,
        nlink: 1,
        rdev: 0,
        write: true,
        created: false,
        truncate: false,
        received: false,
    }
}

/// Makes events out of steps.
pub(crate) struct Teller {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) ms: u64,
    next_ino: u64,
}

impl Teller {
    pub(crate) fn new() -> Self {
        Self {
            pid: 10,
            tid: 10,
            ms: 0,
            next_ino: 1000,
        }
    }

    /// An event of the process whose turn it is.
    pub(crate) fn event(&mut self, fact: Fact) -> Event {
        self.ms += 1;
        Event {
            time_ns: START + self.ms * 1_000_000,
            task: Task {
                tid: self.tid,
                ..task(self.pid)
            },
            mnt_ns: MNT_NS,
            damaged: false,
            fact,
        }
    }

    fn ino(&mut self, word: Option<&str>) -> u64 {
        self.next_ino += 1;
        word.map_or(self.next_ino, |word| word.parse().expect("an inode number"))
    }

    fn step(&mut self, step: &str) -> Option<Event> {
        let words: Vec<&str> = step.split_whitespace().collect();
        let word = |index: usize| {
            *words
                .get(index)
                .unwrap_or_else(|| panic!("`{step}` lacks a word"))
        };
        let name = |op, first: Named, second: Named, arg| {
            Some(Fact::Name(Name {
                op,
                attempt: false,
                refused: false,
                arg,
                first,
                second,
            }))
        };
        let one = |op, arg| name(op, named(word(1)), Named::default(), arg);
        let two = |op, arg| name(op, named(word(1)), named(word(2)), arg);
        let fact = match *words.first()? {
            at if at.starts_with('@') => {
                let (pid, tid) = at[1..].split_once('.').unwrap_or((&at[1..], &at[1..]));
                self.pid = pid.parse().expect("a pid");
                self.tid = tid.parse().expect("a thread id");
                None
            }
            wait if wait.starts_with('+') => {
                self.ms += wait[1..].parse::<u64>().expect("milliseconds");
                None
            }
            "create" => {
                let ino = self.ino(words.get(2).copied());
                Some(Fact::File(File {
                    created: true,
                    ..file(word(1), ino)
                }))
            }
            "open" => {
                let ino = self.ino(words.get(2).copied());
                Some(Fact::File(file(word(1), ino)))
            }
            "receive" => {
                let ino = self.ino(words.get(2).copied());
                Some(Fact::File(File {
                    received: true,
                    ..file(word(1), ino)
                }))
            }
            "truncate" => one(NameOp::Truncate, 0),
            "unlink" => one(NameOp::Unlink, 0),
            "rmdir" => one(NameOp::Rmdir, 0),
            "mkdir" => one(NameOp::Mkdir, 0o755),
            "mknod" => one(NameOp::Mknod, 0o10_644),
            "chmod" => one(NameOp::Chmod, 0o755),
            "lchown" => one(NameOp::Chown, 0x100),
            "symlink" => {
                let text = Named {
                    string: word(1).as_bytes().to_vec(),
                    ..Named::default()
                };
                name(NameOp::Symlink, text, named(word(2)), 0)
            }
            "link" => two(NameOp::Link, 0),
            "linkfollow" => two(NameOp::Link, 0x400),
            "rename" => two(NameOp::Rename, 0),
            "noreplace" => two(NameOp::Rename, 1),
            "exchange" => two(NameOp::Rename, 2),
            "whiteout" => two(NameOp::Rename, 4),
            "bind" => {
                let first = match word(1).strip_prefix('@') {
                    Some(name) => Named {
                        string: format!("\0{name}").into_bytes(),
                        ..Named::default()
                    },
                    None => Named {
                        base: kernel_path(word(1)),
                        ..Named::default()
                    },
                };
                name(NameOp::Bind, first, Named::default(), 0)
            }
            "unix" | "unixsend" => {
                let name = match word(1).strip_prefix('@') {
                    Some(name) => Named {
                        string: format!("\0{name}").into_bytes(),
                        ..Named::default()
                    },
                    None => named(word(1)),
                };
                let ret = words.get(2).map_or(0, |ret| ret.parse().expect("a result"));
                let connect = words[0] == "unix";
                Some(Fact::Unix(Unix {
                    connect,
                    ret,
                    peer_pid: words
                        .get(3)
                        .map_or(0, |pid| pid.parse().expect("a process")),
                    peer: None,
                    name,
                    sock_type: 1,
                }))
            }
            op @ ("tcp" | "udp" | "denied" | "send" | "egress" | "listen" | "bindudp") => {
                let (addr, port) = address(word(1));
                let local = words.get(2).map(|local| address(local));
                let op = match op {
                    "tcp" | "udp" | "denied" => InetOp::Connect,
                    "send" => InetOp::Send,
                    "egress" => InetOp::Egress,
                    "listen" => InetOp::Listen,
                    _ => InetOp::Bind,
                };
                let tcp = matches!(words[0], "tcp" | "listen");
                Some(Fact::Inet(Inet {
                    op,
                    netns: NETNS,
                    addr,
                    port,
                    scope_id: 0,
                    local: local.map_or(Ipv4Addr::UNSPECIFIED.into(), |(addr, _)| addr),
                    local_port: local.map_or(0, |(_, port)| port),
                    sock_type: if tcp { 1 } else { 2 },
                    protocol: if tcp { 6 } else { 17 },
                    denied: words[0] == "denied",
                }))
            }
            "ask" | "answer" => {
                let answer = words[0] == "answer";
                let (name, kind) = word(1).split_once('/').unwrap_or((word(1), "1"));
                let kind = kind.parse().expect("a kind");
                let records = |addresses: &str| {
                    let kind = if kind == 28 { "AAAA" } else { "A" };
                    let records = addresses.split(',').filter(|addr| *addr != "-");
                    let records: Vec<String> = records
                        .map(|addr| format!("{name} {kind} {addr}"))
                        .collect();
                    records.join(";")
                };
                let piece = if answer {
                    let records = records(word(2));
                    let rcode = if records.is_empty() { 3 } else { 0 };
                    craft::answer(1, rcode, name, kind, &records)
                } else {
                    craft::query(1, name, kind)
                };
                let resolver = words
                    .get(if answer { 3 } else { 2 })
                    .unwrap_or(&"192.0.2.53");
                Some(Fact::Dns(Dns {
                    flow: Flow {
                        netns: NETNS,
                        // A thread has a socket.
                        socket: u64::from(self.tid),
                        resolver: resolver.parse().expect("an address"),
                        local: Ipv4Addr::new(192, 0, 2, 7).into(),
                        local_port: 4000,
                        tcp: false,
                    },
                    answer,
                    seq: 0,
                    syn: false,
                    at: 0,
                    total: u32::try_from(piece.len()).expect("short"),
                    piece,
                }))
            }
            "socket" => {
                let number = |index| word(index).parse().expect("a number");
                Some(Fact::Socket(Socket {
                    op: SocketOp::Create,
                    netns: 0,
                    ret: 3,
                    family: number(1),
                    sock_type: number(2),
                    protocol: number(3),
                    addr: Vec::new(),
                }))
            }
            "exec" | "script" => Some(Fact::Exec(Exec {
                exe: kernel_path(word(1)),
                attempt: false,
                first: false,
                was: 0,
                id: FileId {
                    dev: 8,
                    ino: 1,
                    generation: 0,
                },
                name: named(if words[0] == "script" {
                    word(2)
                } else {
                    word(1)
                }),
                size: 0,
                cwd: None,
                script: words[0] == "script",
                argv: words[1..]
                    .iter()
                    .map(|word| word.as_bytes().to_vec())
                    .collect(),
                argv_cut: false,
            })),
            "fork" => {
                let child = task(word(1).parse().expect("a pid"));
                Some(Fact::Fork {
                    child,
                    outside: words.get(2) == Some(&"outside"),
                })
            }
            "exit" => Some(Fact::Exit { code: 0 }),
            "join" | "leave" => {
                let tgid = word(1).parse().expect("a pid");
                Some(Fact::Move {
                    tgid,
                    left: words[0] == "leave",
                    cgroup: 1,
                })
            }
            "unseen" => Some(Fact::Unseen {
                what: word(1).parse().expect("a number"),
                arg: 0,
            }),
            "ptrace" => {
                let target = word(1).parse().expect("a pid");
                Some(Fact::Ptrace {
                    op: wire::PTRACE_ATTACH,
                    target,
                    target_is: Membership::Unknown,
                })
            }
            other => panic!("no such step: {other}"),
        };
        fact.map(|fact| self.event(fact))
    }

    /// The events of some steps.
    pub(crate) fn tell(&mut self, steps: &str) -> Vec<Event> {
        steps
            .split([';', '\n'])
            .filter_map(|step| self.step(step))
            .collect()
    }
}

/// A process whose id says when it began.
pub(crate) fn task(pid: u32) -> Task {
    Task {
        tgid: pid,
        tid: pid,
        start_ns: u64::from(pid),
    }
}

fn address(text: &str) -> (IpAddr, u16) {
    let address: std::net::SocketAddr = text.parse().expect("an address");
    (address.ip(), address.port())
}

/// A contract in JSON with what is given and nothing allowed.
pub(crate) fn rules(more: &str) -> Arc<Rules> {
    let json = format!(
        r#"{{"allow_net": [], "cpu_budget": 30, "writes": "{}"{more}}}"#,
        capgate_common::ledger::EMPTY_DIGEST
    );
    let contract = Contract::from_json(json.as_bytes()).expect("a contract");
    Arc::new(Rules::new(contract, &BTreeMap::new(), &forms(), None).expect("patterns"))
}

pub(crate) fn forms() -> Forms {
    Forms::new(b"/repo", Some(b"/home/u"), 1000).expect("a normal root")
}

/// What a session knows of the job of a story.
pub(crate) fn view() -> JobView {
    JobView {
        forms: forms(),
        rules: None,
        contract_path: Some(b"/repo/tests/contract.json".to_vec()),
        socket: Some(b"/run/capgate/capgated.sock".to_vec()),
        temp_dirs: Vec::new(),
        slash: b"/".to_vec(),
        mnt_ns: MNT_NS,
        places: Places {
            root: b"/repo".to_vec(),
            mounts: Mounts::read(b"1 1 0:1 / / rw - ext4 none rw", b"/"),
        },
        configured: Configured::read(
            b"nameserver 192.0.2.53\nnameserver 192.0.2.54\nsearch a.example b.example\n",
        ),
        netns: Some(NETNS),
        probe_set: ProbeSet::Tracepoint,
        started_ns: START,
        limits: Limits::of_memory(64 << 20, 1_000_000),
        discretion: Discretion::default(),
        refused: None,
    }
}

/// What is known at the end of a story: the kernel lost nothing.
pub(crate) fn closing(emitted: u64) -> Closing {
    let mut counters = wire::Counters::default();
    counters.attempted[1] = emitted;
    counters.emitted[1] = emitted;
    Closing {
        counters,
        user_usec: 2_900_000,
        hooks: BTreeSet::new(),
        not_covered: BTreeSet::new(),
        enforced: None,
        race_free: false,
        unseen: BTreeSet::new(),
        lost: BTreeMap::new(),
        time_limit: Duration::from_secs(1),
    }
}

/// Records events on a machine.
pub(crate) fn record(view: JobView, machine: Machine, events: Vec<Event>) -> Record {
    let mut session = Session::open(view, Box::new(machine)).expect("room");
    for event in events {
        session.apply(event, false);
    }
    let received = session.received();
    session.seal(closing(received))
}

/// Tells a story on a machine.
pub(crate) fn tell(story: &str, machine: Machine) -> Record {
    record(view(), machine, Teller::new().tell(story))
}

/// The words of a list, with spaces between.
pub(crate) fn words<'a>(list: impl IntoIterator<Item = &'a String>) -> String {
    list.into_iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The entries of evidence, with spaces between.
pub(crate) fn entries(items: &[Item]) -> String {
    words(items.iter().map(|item| &item.entry))
}

/// What was lost: `kind=count`, with spaces between.
pub(crate) fn lost(record: &Record) -> String {
    let lost: Vec<String> = record
        .recording
        .lost
        .iter()
        .map(|(kind, count)| format!("{kind}={count}"))
        .collect();
    lost.join(" ")
}
