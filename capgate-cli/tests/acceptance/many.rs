//! Many jobs at once: each has its own ring, and its own ledger.

use std::collections::BTreeSet;

use capgate_common::evidence::Column;

use crate::{
    job::Place,
    programs::Programs,
    service::{ALICE, BOB, Service},
};

#[test]
fn twenty_jobs_at_once_have_twenty_exact_ledgers() {
    const JOBS: u32 = 20;
    const WRITES: usize = 2_000;
    const EXECS: u64 = 200;
    let programs = Programs::new();
    let work = programs.build("work");
    let service = Service::start();
    let places: Vec<Place> = (0..JOBS)
        .map(|number| Place::of(if number % 2 == 0 { ALICE } else { BOB }))
        .collect();
    let mut jobs: Vec<_> = places
        .iter()
        .map(|place| {
            let command = [
                &work,
                &*WRITES.to_string(),
                &EXECS.to_string(),
                "/usr/bin/true",
            ];
            place.job(&service, &command).start()
        })
        .collect();
    // All of them are there before any of them works.
    jobs.iter_mut().for_each(|job| job.until_it_says("ready"));
    jobs.iter_mut().for_each(|job| job.tell("go"));
    let expect: BTreeSet<String> = (0..WRITES).map(|number| format!("f{number}")).collect();
    for job in jobs {
        let done = job.wait();
        let recording = &done.complete().recording;
        assert_eq!(recording.write_paths, expect);
        let execs: Vec<&String> = recording.execs.iter().collect();
        assert_eq!(execs, [&work, "/usr/bin/true"]);
        assert_eq!(done.entry(Column::Execs, "/usr/bin/true").count, EXECS);
        assert_eq!(done.entry(Column::Execs, &work).count, 1);
        let evidence = done.evidence();
        let writes = evidence
            .entries
            .iter()
            .filter(|it| it.column == Column::Writes);
        assert!(writes.clone().all(|entry| entry.count == 1));
        assert_eq!(writes.count(), WRITES);
        assert!(recording.net.is_empty() && recording.escapes.is_empty());
    }
}

#[test]
fn a_job_that_floods_its_ring_hurts_no_other() {
    let programs = Programs::new();
    let flood = programs.build("flood");
    let service = Service::with("ring_bytes = 65536\n");
    let (flooding, quiet) = (Place::of(ALICE), Place::of(BOB));
    let mut flooder = flooding.job(&service, &[&flood]).start();
    flooder.until_it_says("flooding");
    for round in 0..5 {
        let script = format!("i=0; while [ $i -lt 100 ]; do : > r{round}-$i; i=$((i + 1)); done");
        let done = quiet.script(&service, &script);
        let expect: BTreeSet<String> = (0..100).map(|i| format!("r{round}-{i}")).collect();
        assert_eq!(done.complete().recording.write_paths, expect);
    }
    let done = flooder.wait();
    let recording = &done.incomplete().recording;
    assert!(recording.lost["file"] > 0, "{:?}", recording.lost);
}
