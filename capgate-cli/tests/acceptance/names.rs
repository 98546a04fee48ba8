//! Destinations by name, through a resolver that is never the same twice.

use std::{
    collections::BTreeSet,
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

use crate::{
    job::{Done, Place},
    network::Network,
    programs::Programs,
    project::PYTHON,
    resolver::{CONFIGURATION, POISON, Resolver},
    service::Service,
};

/// What the C library's resolver is asked for, from Python.
const CLIENT: &str = "
import socket, sys
for name in sys.argv[1:]:
    try:
        found = socket.getaddrinfo(name, 8080, type=socket.SOCK_STREAM)
    except socket.gaierror:
        continue
    for family, kind, protocol, _, address in found[:4]:
        with socket.socket(family, kind, protocol) as s:
            s.connect(address)
";

/// Where jobs run whose `/etc/resolv.conf` is the test's.
pub(crate) struct Stand {
    service: Service,
    pub(crate) network: Network,
    pub(crate) place: Place,
}

impl Stand {
    pub(crate) fn new(configuration: &str) -> Self {
        let stand = Self {
            service: Service::start(),
            network: Network::new(),
            place: Place::of(0),
        };
        fs::write(stand.place.beside("resolv.conf"), configuration).unwrap();
        stand
    }

    /// Runs a job on the near side, gated by a contract if there is one.
    pub(crate) fn run(&self, contract: Option<&Path>, command: &[&str]) -> Done {
        self.network.near(|| {
            // For what this thread starts.
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            let configuration = self.place.beside("resolv.conf");
            let at = "/etc/resolv.conf";
            mount(Some(&configuration), at, none, MsFlags::MS_BIND, none).unwrap();
            let job = self.place.job(&self.service, command);
            let job = match contract {
                Some(contract) => job.gated(contract),
                None => job,
            };
            job.start().wait()
        })
    }
}

/// Takes connections to port 8080 of the far side while something is done.
pub(crate) fn web<T>(network: &Network, work: impl FnOnce() -> T) -> T {
    struct End<'a>(&'a AtomicBool, &'a Network);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
            self.1
                .far(|| drop(TcpStream::connect("10.77.0.1:8080").unwrap()));
        }
    }
    let listener = network.far(|| TcpListener::bind("[::]:8080").unwrap());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                drop(listener.accept().unwrap());
            }
        });
        let _end = End(&done, network);
        work()
    })
}

pub(crate) fn net(done: &Done) -> Vec<String> {
    done.sealed().recording.net.iter().cloned().collect()
}

/// The names that a run asks for.
struct Names {
    /// Asked for as they are.
    whole: Vec<String>,
    /// Asked for in the search domains.
    short: Vec<String>,
    /// Not there.
    missing: Vec<String>,
}

impl Names {
    fn new() -> Self {
        let several = |letter: &str, count: usize, below: &str| -> Vec<String> {
            (1..=count).map(|n| format!("{letter}{n}{below}")).collect()
        };
        let kinds = [("r", 20), ("c", 8), ("t", 6), ("p", 8)];
        let whole = kinds.map(|(letter, count)| several(letter, count, ".example.org"));
        Self {
            whole: whole.concat(),
            short: several("s", 8, ""),
            missing: several("m", 2, ".example.org"),
        }
    }

    fn all(&self) -> Vec<&str> {
        let all = self.whole.iter().chain(&self.short).chain(&self.missing);
        all.map(String::as_str).collect()
    }

    /// The column `net`, with what is in it beside the names.
    fn entries(&self, more: &[&str]) -> Vec<String> {
        let mut entries: BTreeSet<String> = more.iter().map(|&it| it.to_owned()).collect();
        entries.extend(self.whole.iter().map(|name| format!("{name}:8080")));
        entries.extend(
            self.short
                .iter()
                .map(|name| format!("{name}.b.example:8080")),
        );
        entries.extend(self.missing.iter().map(|name| format!("dns:{name}")));
        entries.into_iter().collect()
    }
}

/// Runs the names twenty times, by a C program and by Python in turn. Expects the same entries each time.
fn check(contract: Option<&str>, more_words: &[&str], more_entries: &[&str]) {
    const RUNS: usize = 20;
    let programs = Programs::new();
    let names_c = programs.build("names");
    let stand = Stand::new(CONFIGURATION);
    let resolver = Resolver::new(&stand.network);
    let contract = contract.map(|text| stand.place.contract(text));
    let names = Names::new();
    assert_eq!(names.whole.len() + names.short.len(), 50);
    let expected = names.entries(more_entries);
    // Each name after another one that may have had its address.
    let words = [&names.all()[..], more_words].concat();
    web(&stand.network, || {
        resolver.during(&stand.network, || {
            for turn in 0..RUNS {
                let client: &[&str] = if turn % 2 == 0 {
                    &[&names_c]
                } else {
                    &[PYTHON, "-c", CLIENT]
                };
                let done = stand.run(contract.as_deref(), &[client, &words].concat());
                assert_eq!(done.code, 0, "run {turn}: {}", done.stderr);
                let ledger = done.sealed();
                assert!(ledger.complete, "run {turn}: {:?}", ledger.recording.lost);
                assert_eq!(net(&done), expected, "run {turn}");
                let addresses = done.evidence().addresses();
                assert_eq!(addresses.len(), 50, "run {turn}");
                let of_both = addresses["r1.example.org:8080"].iter();
                let families: BTreeSet<bool> = of_both.map(|addr| addr.is_ipv6()).collect();
                assert_eq!(families.len(), 2, "run {turn}: {addresses:?}");
                assert!(
                    addresses.values().flatten().all(|addr| *addr != POISON),
                    "run {turn}: {addresses:?}"
                );
            }
        });
    });
}

#[test]
fn fifty_names_are_the_same_entries_in_every_run() {
    let poison = POISON.to_string();
    let entry = format!("{poison}:8080");
    check(None, &[&poison], &["resolver:53", &entry]);
}

#[test]
fn fifty_names_are_the_same_entries_in_every_run_that_is_enforced() {
    let contract = serde_json::json!({
        "allow_net": ["*.example.org:8080", "*.b.example:8080", "resolver:53"],
        "cpu_budget": 300, "enforce": true, "writes": capgate_common::ledger::EMPTY_DIGEST,
    });
    check(Some(&contract.to_string()), &[], &["resolver:53"]);
}

#[test]
fn without_a_resolver_the_name_stays_and_the_destination_is_its_address() {
    let programs = Programs::new();
    let names_c = programs.build("names");
    let stand = Stand::new("nameserver 10.77.0.53\noptions timeout:1 attempts:1\n");
    let command = [&*names_c, "www.example.org", "10.77.20.1"];
    let done = web(&stand.network, || stand.run(None, &command));
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(
        net(&done),
        ["10.77.20.1:8080", "dns:www.example.org", "resolver:53"]
    );
}

#[test]
fn a_server_of_the_job_is_its_own_at_the_addresses_of_its_own_network_namespace() {
    const SERVER: &str = "
import socket
with socket.create_server(('0.0.0.0', 8100)) as server:
    socket.create_connection(('10.76.0.1', 8100)).close()
    try:
        socket.create_connection(('10.77.0.1', 8100)).close()
    except ConnectionRefusedError:
        pass
";
    let stand = Stand::new(CONFIGURATION);
    let done = stand.run(None, &[PYTHON, "-c", SERVER]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(net(&done), ["10.77.0.1:8100"]);
    let own: Vec<&str> = done
        .evidence()
        .own
        .iter()
        .map(|item| item.entry.as_str())
        .collect();
    assert_eq!(own, ["10.76.0.1:8100"]);
}
