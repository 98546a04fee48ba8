//! What is left in the kernel, and of a job, when a daemon ends.

use std::fs;

use nix::sys::signal::Signal;

use crate::{
    job::Place,
    kernel::{self, Kind, count, exists, objects},
    service::{ALICE, Service, until},
};

/// Whether a job still has a cgroup anywhere.
fn has_cgroup(job: &str) -> bool {
    let name = format!("capgate-{job}");
    let mut open = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() == *name {
                    return true;
                }
                open.push(entry.path());
            }
        }
    }
    false
}

#[test]
fn a_daemon_that_is_killed_leaves_nothing_in_the_kernel_and_no_ledger() {
    let mut service = Service::start();
    let place = Place::of(ALICE);
    fs::write(place.beside("ledger.json"), "of an earlier run").unwrap();
    let script = "echo > early; echo ready; exec sleep 600";
    let mut running = place.job(&service, &["sh", "-c", script]).start();
    running.until_it_says("ready");
    let job = service.job(ALICE);
    assert!(has_cgroup(&job));
    let held = objects(service.pid());
    // The job's ring is one of the maps.
    for (kind, least) in [(Kind::Program, 10), (Kind::Map, 8), (Kind::Link, 10)] {
        assert!(count(&held, kind) >= least, "{kind:?}: {held:?}");
    }
    assert!(!kernel::is_empty(service.pid(), "MEMBERS"));

    service.signal(Signal::SIGKILL);
    let done = running.wait();
    assert_eq!(done.code, 125, "{}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    assert!(done.ledger.is_none() && done.evidence.is_none());
    service.wait();
    until("everything that it held is gone", || {
        !held.iter().any(|&object| exists(object))
    });

    service.restart();
    // It listens before it has cleaned up, and answers after.
    let jobs = service.jobs(ALICE);
    assert_eq!((jobs.len(), &jobs[0]["state"]), (1, &"lost".into()));
    assert!(!has_cgroup(&job));
    let (code, _, said) = service.ask(ALICE, &["show", &job]);
    assert_eq!(code, 125);
    assert!(said.contains("was lost"), "{said}");

    let done = place.script(&service, "echo > next");
    let names = &done.complete().recording.write_paths;
    assert_eq!(names.iter().collect::<Vec<_>>(), ["next"]);
    until("nothing is attached", || {
        count(&objects(service.pid()), Kind::Link) == 0
    });
    let held = objects(service.pid());
    service.signal(Signal::SIGTERM);
    assert!(service.wait().success());
    until("everything that it held is gone", || {
        !held.iter().any(|&object| exists(object))
    });
}

#[test]
fn a_ring_goes_with_its_job() {
    let service = Service::start();
    let place = Place::of(ALICE);
    let maps = || count(&objects(service.pid()), Kind::Map);
    let mut after = Vec::new();
    for _ in 0..3 {
        place.script(&service, "echo > f").complete();
        after.push(maps());
    }
    assert_eq!(after[0], after[2], "maps after each job: {after:?}");
}
