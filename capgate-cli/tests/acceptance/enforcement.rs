//! Enforcement as the other side sees it.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use capgate_common::ledger::Reach;
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

use crate::{
    job::{Done, Place},
    network::Network,
    programs::Programs,
    resolver::message,
    service::Service,
};

/// Ends what waits for connections.
const SENTINEL: &str = "10.77.255.254:8080";

fn contract(allow_net: &[&str]) -> String {
    serde_json::json!({
        "allow_net": allow_net, "cpu_budget": 300, "enforce": true,
        "writes": capgate_common::ledger::EMPTY_DIGEST,
    })
    .to_string()
}

/// The addresses at which connections arrive, until one arrives at the sentinel.
fn arrivals(listener: &TcpListener) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    loop {
        let (stream, _) = listener.accept().unwrap();
        let at = stream.local_addr().unwrap().to_string();
        if at == SENTINEL {
            return seen;
        }
        seen.insert(at);
    }
}

#[test]
fn connects_to_ten_thousand_addresses_reach_only_what_is_allowed() {
    const COUNT: usize = 10_000;
    let programs = Programs::new();
    let connects = programs.build("connects");
    let service = Service::start();
    let network = Network::new();
    let place = Place::of(0);
    let allowed = place.contract(&contract(&[
        "10.77.3.0/26:8080",
        "10.77.3.0/24:8081-9000",
        "10.77.9.9:8000-8100",
        "10.77.10.0/24:81",
    ]));
    let mut expected: BTreeSet<String> = (0..64).map(|n| format!("10.77.3.{n}:8080")).collect();
    expected.insert("10.77.9.9:8080".to_owned());

    let streams = network.far(|| TcpListener::bind("0.0.0.0:8080").unwrap());
    let datagrams = network.far(|| UdpSocket::bind("0.0.0.0:8080").unwrap());
    let (done, arrived) = thread::scope(|scope| {
        let arrived = scope.spawn(|| arrivals(&streams));
        let command = [&*connects, "10.77.1.0", &COUNT.to_string()];
        let done = network.near(|| place.job(&service, &command).gated(&allowed).start().wait());
        network.far(|| drop(TcpStream::connect(SENTINEL).unwrap()));
        (done, arrived.join().unwrap())
    });
    assert_eq!(
        done.stdout,
        format!("{0} {0}\n", expected.len()),
        "{}",
        done.stderr
    );
    assert_eq!(arrived, expected);
    // All of them have arrived: the cable has no other end.
    datagrams.set_nonblocking(true).unwrap();
    let received = std::iter::from_fn(|| datagrams.recv_from(&mut [0; 8]).ok()).count();
    assert_eq!(received, expected.len());

    // Each attempt is on record, and breaks the contract unless it is allowed.
    let ledger = done.sealed();
    assert_eq!(
        (done.code, ledger.complete, ledger.recording.net.len()),
        (120, true, COUNT)
    );
    assert_eq!(denied(&done), &ledger.recording.net - &expected);
}

/// Entries of which something was refused.
fn denied(done: &Done) -> BTreeSet<String> {
    let entries = done.evidence().entries.iter();
    entries
        .filter(|entry| entry.ops.iter().any(|op| op == "denied"))
        .map(|entry| entry.entry.clone())
        .collect()
}

#[test]
fn without_network_a_job_reaches_itself_alone() {
    let programs = Programs::new();
    let (refused, own) = (programs.build("refused"), programs.build("udp"));
    let service = Service::start();
    let network = Network::new();
    let place = Place::of(0);
    let _outside = network.near(|| TcpListener::bind("127.77.0.2:5432").unwrap());
    let run = |command: &[&str]| {
        network.near(|| {
            let job = place.job(&service, command).option("--no-network");
            job.start().wait()
        })
    };
    let done = run(&[&refused, "connect"]);
    assert_eq!(
        denied(&done),
        BTreeSet::from(["127.77.0.2:5432".to_owned()])
    );
    let enforced = done.complete().recording.coverage.enforced.as_ref();
    assert_eq!(enforced.unwrap().reach, Reach::Itself);
    let done = run(&[&own, "own"]);
    assert!(done.complete().recording.net.is_empty());
    // The next job has the place of the one before, and none of its rules.
    let done = network.near(|| place.record(&service, &[&refused, "not"]));
    assert_eq!(done.complete().recording.coverage.enforced, None);
}

#[test]
fn a_job_whose_names_cannot_be_enforced_does_not_start() {
    let service = Service::start();
    let place = Place::of(0);
    let allowed = place.contract(&contract(&["*.example.org:443", "resolver:53"]));
    let done = thread::scope(|scope| {
        let job = || {
            // Its loopback interface is down.
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            place
                .job(&service, &["touch", "f"])
                .gated(&allowed)
                .start()
                .wait()
        };
        scope.spawn(job).join().unwrap()
    });
    assert_eq!(done.code, 125, "{}", done.stderr);
    assert!(done.stderr.contains("is `lo` up there?"), "{}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    assert!(done.ledger.is_none() && !place.root().join("f").exists());
}

/// The answer of a resolver that is never the same twice: `nK.example.org` has one of 20 addresses, which other names have too, and
/// another one. Every fifth name is told over TCP alone. Nothing may be kept: TTL 0.
fn answer(query: &[u8], turn: usize, is_tcp: bool) -> Vec<u8> {
    let question = query.iter().skip(12).position(|&byte| byte == 0).unwrap() + 12 + 5;
    let (name, kind) = (&query[12..question - 4], &query[question - 4..question - 2]);
    let digits = std::str::from_utf8(&name[2..=usize::from(name[0])]).unwrap();
    let number: usize = digits.parse().unwrap();
    let is_cut = !is_tcp && number.is_multiple_of(5);
    let addresses: Vec<Ipv4Addr> = if kind == [0, 1] && !is_cut {
        let at = |n: usize| Ipv4Addr::new(10, 77, 20, u8::try_from(n % 20 + 1).unwrap());
        vec![at(number + turn), at(number + turn + 7)]
    } else {
        Vec::new()
    };
    let mut answer = query[..2].to_vec();
    let flags = if is_cut { [0x83, 0x80] } else { [0x81, 0x80] };
    answer.extend(flags);
    let count = u8::try_from(addresses.len()).unwrap();
    answer.extend([0, 1, 0, count, 0, 0, 0, 0]);
    answer.extend(&query[12..question]);
    for address in addresses {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}

#[test]
fn fifty_names_with_rotating_answers_are_reached_every_time() {
    const NAMES: usize = 50;
    const RUNS: usize = 20;
    let programs = Programs::new();
    let resolves = programs.build("resolves");
    let service = Service::start();
    let network = Network::new();
    let place = Place::of(0);
    let allowed = place.contract(&contract(&["*.example.org:8080", "resolver:53"]));
    let configuration = place.beside("resolv.conf");
    fs::write(&configuration, "nameserver 10.77.0.53\n").unwrap();

    let web = network.far(|| TcpListener::bind("0.0.0.0:8080").unwrap());
    let datagrams = network.far(|| UdpSocket::bind("10.77.0.53:53").unwrap());
    let streams = network.far(|| TcpListener::bind("10.77.0.53:53").unwrap());
    let turn = AtomicUsize::new(0);
    let mut runs = Vec::new();
    let next = || turn.fetch_add(1, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| arrivals(&web));
        scope.spawn(|| {
            let mut room = [0; 512];
            loop {
                let (len, from) = datagrams.recv_from(&mut room).unwrap();
                if len == 0 {
                    return;
                }
                datagrams
                    .send_to(&answer(&room[..len], next(), false), from)
                    .unwrap();
            }
        });
        scope.spawn(|| {
            loop {
                let (mut client, _) = streams.accept().unwrap();
                let mut asked = 0;
                while let Some(query) = message(&mut client) {
                    let answer = answer(&query, next(), true);
                    let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                    client.write_all(&[&length[..], &answer].concat()).unwrap();
                    asked += 1;
                }
                if asked == 0 {
                    return;
                }
            }
        });
        for _ in 0..RUNS {
            let command = [&*resolves, &NAMES.to_string()];
            let done = network.near(|| {
                // The job's own resolv.conf, for what this thread starts.
                unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
                let none = None::<&str>;
                mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
                let at = "/etc/resolv.conf";
                mount(Some(&configuration), at, none, MsFlags::MS_BIND, none).unwrap();
                place.job(&service, &command).gated(&allowed).start().wait()
            });
            runs.push(done);
        }
        network.far(|| {
            drop(TcpStream::connect(SENTINEL).unwrap());
            drop(TcpStream::connect("10.77.0.53:53").unwrap());
            let last = UdpSocket::bind("10.77.0.1:0").unwrap();
            last.send_to(&[], "10.77.0.53:53").unwrap();
        });
    });
    // When those who serve have ended.
    let mut expected: BTreeSet<String> = (1..=NAMES)
        .map(|n| format!("n{n}.example.org:8080"))
        .collect();
    expected.insert("resolver:53".to_owned());
    for done in runs {
        assert_eq!(done.complete().recording.net, expected);
        assert!(denied(&done).is_empty());
    }
}
