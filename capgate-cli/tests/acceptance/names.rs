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

/// Runs a job on the near side whose `/etc/resolv.conf` is this file.
pub(crate) fn run(
    network: &Network,
    service: &Service,
    place: &Place,
    configuration: &Path,
    command: &[&str],
) -> Done {
    network.near(|| {
        // For what this thread starts.
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let at = "/etc/resolv.conf";
        mount(Some(configuration), at, none, MsFlags::MS_BIND, none).unwrap();
        place.record(service, command)
    })
}

/// Takes connections to port 8080 of the far side while something is done.
fn web<T>(network: &Network, work: impl FnOnce() -> T) -> T {
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

fn net(done: &Done) -> Vec<String> {
    done.sealed().recording.net.iter().cloned().collect()
}

#[test]
fn fifty_names_are_the_same_entries_in_every_run() {
    const RUNS: usize = 20;
    let programs = Programs::new();
    let names_c = programs.build("names");
    let service = Service::start();
    let network = Network::new();
    let resolver = Resolver::new(&network);
    let place = Place::of(0);
    let configuration = place.beside("resolv.conf");
    fs::write(&configuration, CONFIGURATION).unwrap();

    let several = |letter: &str, count: usize, below: &str| -> Vec<String> {
        (1..=count).map(|n| format!("{letter}{n}{below}")).collect()
    };
    let whole = [("r", 20), ("c", 8), ("t", 6), ("p", 8)]
        .map(|(letter, count)| several(letter, count, ".example.org"))
        .concat();
    let short = several("s", 8, "");
    let missing = several("m", 2, ".example.org");
    assert_eq!(whole.len() + short.len(), 50);

    let mut expected: BTreeSet<String> = whole.iter().map(|name| format!("{name}:8080")).collect();
    expected.extend(short.iter().map(|name| format!("{name}.b.example:8080")));
    expected.extend(missing.iter().map(|name| format!("dns:{name}")));
    expected.extend(["resolver:53".to_owned(), format!("{POISON}:8080")]);
    let expected: Vec<String> = expected.into_iter().collect();

    // Each name after another one that may have had its address; at the end what others answered.
    let poison = POISON.to_string();
    let words: Vec<&str> = whole
        .iter()
        .chain(&short)
        .chain(&missing)
        .map(String::as_str)
        .collect();
    let words = [&words[..], &[&poison]].concat();
    web(&network, || {
        resolver.during(&network, || {
            for turn in 0..RUNS {
                let client: &[&str] = if turn % 2 == 0 {
                    &[&names_c]
                } else {
                    &[PYTHON, "-c", CLIENT]
                };
                let done = run(
                    &network,
                    &service,
                    &place,
                    &configuration,
                    &[client, &words].concat(),
                );
                assert_eq!(done.code, 0, "run {turn}: {}", done.stderr);
                assert!(
                    done.sealed().complete,
                    "run {turn}: {:?}",
                    done.sealed().recording.lost
                );
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
fn without_a_resolver_the_name_stays_and_the_destination_is_its_address() {
    let programs = Programs::new();
    let names_c = programs.build("names");
    let service = Service::start();
    let network = Network::new();
    let place = Place::of(0);
    let configuration = place.beside("resolv.conf");
    fs::write(
        &configuration,
        "nameserver 10.77.0.53\noptions timeout:1 attempts:1\n",
    )
    .unwrap();
    let command = [&*names_c, "www.example.org", "10.77.20.1"];
    let done = web(&network, || {
        run(&network, &service, &place, &configuration, &command)
    });
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(
        net(&done),
        ["10.77.20.1:8080", "dns:www.example.org", "resolver:53"]
    );
}
