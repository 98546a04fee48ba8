//! What is lost is said: a short set never passes for a whole one.

use std::collections::BTreeSet;

use capgate_common::{evidence::Column, ledger::Ledger};
use nix::sys::signal::Signal;

use crate::{
    job::Place,
    kernel,
    programs::Programs,
    service::{ALICE, Service, until},
};

/// The smallest ring that an operator can set.
const SMALL_RING: &str = "ring_bytes = 65536\n";

/// `n0`, `n1`, …
fn names(count: usize) -> BTreeSet<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

/// Everything that a ledger counts as lost.
fn lost(ledger: &Ledger) -> u64 {
    ledger.recording.lost.values().sum()
}

#[test]
fn a_flood_of_creations_is_the_exact_set_or_incomplete() {
    const NAMES: usize = 5_000;
    let programs = Programs::new();
    let create = programs.build("create");
    // 200,000 creations and the removals between them.
    let command = [create.as_str(), "5000", "40"];
    let service = Service::with(SMALL_RING);
    let place = Place::of(ALICE);
    let done = place.record(&service, &command);
    let ledger = done.sealed();
    let expect = names(NAMES);
    let found = &ledger.recording.write_paths;
    if ledger.complete {
        done.complete();
        assert_eq!(*found, expect);
    } else {
        done.incomplete();
        assert!(found.is_subset(&expect));
        assert!(lost(ledger) > 0);
    }
    let counts = done.evidence().counts;
    // All of them were counted, whatever became of them.
    assert!(counts.attempted >= 200_000 + 195_000, "{counts:?}");
}

#[test]
fn while_the_reader_stands_still_each_missing_name_is_counted() {
    const NAMES: usize = 5_000;
    let programs = Programs::new();
    let create = programs.build("create");
    let service = Service::with(SMALL_RING);
    let place = Place::of(ALICE);
    let mut running = place.job(&service, &[&create, "5000", "1"]).start();
    running.until_it_says("ready");
    service.signal(Signal::SIGSTOP);
    running.tell("go");
    running.until_it_says("done");
    service.signal(Signal::SIGCONT);
    let done = running.wait();
    let ledger = done.incomplete();
    let recording = &ledger.recording;
    let expect = names(NAMES);
    assert!(recording.write_paths.is_subset(&expect));
    let missing = (expect.len() - recording.write_paths.len()) as u64;
    assert!(missing > 0, "64 KiB cannot hold {NAMES} names");
    assert_eq!(recording.lost.get("file"), Some(&missing));
    let counts = done.evidence().counts;
    assert_eq!(counts.lost, lost(ledger), "{:?}", recording.lost);
    assert_eq!(counts.attempted, counts.emitted + counts.lost);
    assert!(done.stderr.contains("incomplete"), "{}", done.stderr);
    // And the next job is none the worse for it.
    place.script(&service, "echo > after").complete();
}

#[test]
fn thousands_of_short_threads_leave_nothing_pending() {
    const THREADS: usize = 5_000;
    let programs = Programs::new();
    let threads = programs.build("threads");
    let service = Service::start();
    let mut resident = Vec::new();
    for _ in 0..4 {
        let place = Place::of(ALICE);
        let done = place.record(&service, &[&threads, "5000"]);
        let recording = &done.complete().recording;
        let expect: BTreeSet<String> = (0..THREADS).map(|number| format!("t{number}")).collect();
        assert_eq!(recording.write_paths, expect);
        assert_eq!(
            recording.net.iter().collect::<Vec<_>>(),
            ["127.0.0.1:9"],
            "refused, and tried all the same"
        );
        let entry = done.entry(Column::Net, "127.0.0.1:9");
        assert_eq!(entry.count, THREADS as u64);
        assert!(
            kernel::is_empty(service.pid(), "MEMBERS"),
            "every process of the job is forgotten"
        );
        resident.push(service.rss());
    }
    // What the allocator keeps for the next job it has after the first one or two.
    let grown = resident[3].saturating_sub(resident[1]);
    assert!(grown < 8 << 10, "KiB after each job: {resident:?}");
}

#[test]
fn more_names_than_memory_allows_are_cut_and_said() {
    // The least that one job can be given with a ring of this size: names for some tens of thousands.
    const MEMORY_MIB: u64 = 24;
    let programs = Programs::new();
    let create = programs.build("create");
    let service = Service::with(&format!(
        "ring_bytes = {}\n[per_uid]\njobs = 1\nmemory_mib = {MEMORY_MIB}\n",
        8 << 20
    ));
    Place::of(ALICE).script(&service, "true").complete();
    let before = service.rss();
    let peaks = [50_000, 150_000].map(|count| {
        let place = Place::of(ALICE);
        service.forget_peak();
        let done = place.record(&service, &[&create, &count.to_string(), "1"]);
        let recording = &done.incomplete().recording;
        assert!(recording.write_paths.is_subset(&names(count)));
        let kept = recording.write_paths.len() as u64;
        assert!(kept > 30_000, "what there is room for is told: {kept}");
        let file = recording.lost.get("file").copied().unwrap_or_default();
        let cut = recording.lost["memory"] + file;
        assert_eq!(kept + cut, count as u64, "told or counted as lost");
        let peak = service.peak();
        // At the end of the next job at the latest: at the end of its own the ledger may still be on its way.
        Place::of(ALICE).script(&service, "true").complete();
        until("an idle daemon gives the memory back", || {
            service.rss() < before + (8 << 10)
        });
        peak
    });
    // Beside its share: the ring is mapped twice over, and what is sealed is there as text too.
    let most = before + ((MEMORY_MIB + 64) << 10);
    assert!(peaks[0] < most, "{peaks:?} KiB and {most} at most");
    // A daemon that kept what it cut would take some 50 MiB more.
    assert!(peaks[1] < peaks[0] + (24 << 10), "KiB: {peaks:?}");
}

#[test]
fn the_first_system_call_of_a_job_is_always_recorded() {
    const ROUNDS: usize = 60;
    const AT_ONCE: usize = 4;
    let service = Service::start();
    std::thread::scope(|scope| {
        for client in 0..AT_ONCE {
            let service = &service;
            scope.spawn(move || {
                let place = Place::of(ALICE);
                for round in 0..ROUNDS {
                    let name = format!("f{client}-{round}");
                    let done = place.record(service, &["touch", &name]);
                    let recording = &done.complete().recording;
                    assert_eq!(recording.write_paths.iter().collect::<Vec<_>>(), [&name]);
                    assert_eq!(recording.execs.len(), 1, "{:?}", recording.execs);
                }
            });
        }
    });
    until("nothing is attached", || {
        kernel::count(&kernel::objects(service.pid()), kernel::Kind::Link) == 0
    });
}
