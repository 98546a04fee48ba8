//! What goes wrong around the daemon, and in it.

use std::{fs, path::PathBuf, process::Command};

use capgate_common::protocol::Response;
use serde_json::json;

use crate::harness::{
    ALICE, Daemon, Place, contract, eventually, exited, job_cgroup, runs, show, start,
};

#[test]
fn a_daemon_that_crashed_is_cleaned_up_after() {
    let mut daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let mut command = daemon.client(ALICE).enter_and_run(&job, "sleep 600");
    assert!(job_cgroup(&job.job).is_some());
    daemon.crash_and_restart();
    daemon.root().connected("c").status("c");
    assert!(job_cgroup(&job.job).is_none());
    assert!(!command.wait().success());
    assert_eq!(client.tell("receive lease"), "closed");
    let mut client = client.connected("again");
    let jobs = client.jobs("again");
    assert_eq!((jobs.len(), jobs[0].state.as_str()), (1, "lost"));
    assert!(
        client
            .refused("again", &show(&job.job))
            .contains("was lost")
    );

    let next = client.start_job("again", Some(&contract(30)));
    daemon.client(ALICE).enter_and_run(&next, "true").wait();
    assert_eq!(client.finish("again", &exited(0)).exit_code, 0);
}

#[test]
fn a_second_daemon_is_refused_and_the_first_serves_on() {
    let daemon = Daemon::start("");
    let said = daemon.second();
    assert!(said.contains("another capgated serves"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    daemon.client(ALICE).connected("c");
}

#[test]
fn jobs_of_another_daemon_that_runs_are_left_alone() {
    let first = Daemon::start("");
    let mut client = first.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let _second = Daemon::start("");
    assert!(job_cgroup(&job.job).is_some());
    first.client(ALICE).enter_and_run(&job, "true").wait();
    assert_eq!(client.finish("lease", &exited(0)).exit_code, 0);
}

#[test]
fn a_daemon_that_is_told_to_end_kills_its_jobs_and_tells_their_clients() {
    let mut daemon = Daemon::start("");
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let command = daemon.client(ALICE).enter_and_run(&job, "sleep 600");
    let pid = command.pid();
    let mut idle = daemon.client(ALICE).connected("c");
    assert!(daemon.stop().success());
    assert!(!runs(pid));
    assert!(job_cgroup(&job.job).is_none());
    let said = client.tell("receive lease");
    assert!(said.contains("capgated was stopped"), "{said}");
    assert_eq!(client.tell("receive lease"), "closed");
    assert_eq!(idle.tell("receive c"), "closed");
    assert!(!daemon.socket().exists());
    let record = daemon
        .place
        .path(&format!("store/jobs/{}/job.json", job.job));
    let record = fs::read_to_string(record).unwrap();
    assert!(record.contains("\"lost\""), "{record}");
}

/// A store with hardly any room, unmounted at the end, however the test ends.
struct SmallStore(PathBuf);

impl SmallStore {
    fn mount(place: &Place) -> Self {
        let store = place.path("store");
        fs::create_dir(&store).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs"])
            .arg(&store)
            .status();
        assert!(mounted.unwrap().success());
        Self(store)
    }
}

impl Drop for SmallStore {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn a_full_disk_is_an_error_and_never_a_ledger() {
    let place = Place::new();
    let small = SmallStore::mount(&place);
    let store = small.0.clone();
    let daemon = Daemon::start_in(place, "");
    // Declared after the daemon, so that it is unmounted before the daemon's directory is removed.
    let _small = small;
    let mut client = daemon.client(ALICE).connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    daemon.client(ALICE).enter_and_run(&job, "true").wait();
    let filled = fs::write(store.join("filler"), vec![0; 1 << 20]);
    assert!(filled.is_err());
    let refusal = client.refused("lease", &json!({"request": "finish", "outcome": exited(0)}));
    assert!(refusal.contains("No space left on device"), "{refusal}");
    assert!(job_cgroup(&job.job).is_none());
    let refusal = client.refused("lease", &show(&job.job));
    assert!(refusal.contains("was lost"), "{refusal}");
    assert_eq!(client.jobs("lease")[0].state, "lost");

    match client.try_start("lease", &start(None)) {
        Response::Error { message } => {
            assert!(message.contains("No space left on device"), "{message}");
        }
        other => panic!("{other:?}"),
    }

    fs::remove_file(store.join("filler")).unwrap();
    let job = client.start_job("lease", Some(&contract(30)));
    daemon.client(ALICE).enter_and_run(&job, "true").wait();
    assert_eq!(client.finish("lease", &exited(0)).exit_code, 0);
}

#[test]
fn a_wrong_configuration_is_one_sentence() {
    let place = Place::new();
    fs::write(place.path("config.toml"), "max_job = 3\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_capgated"))
        .arg("--config")
        .arg(place.path("config.toml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("line 1: unknown field `max_job`"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn twenty_jobs_at_once_are_all_exact() {
    let daemon = Daemon::start("");
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..20)
            .map(|number| {
                let daemon = &daemon;
                scope.spawn(move || {
                    let mut client = daemon.client(ALICE).connected("lease");
                    let job = client.start_job("lease", None);
                    let script = format!(
                        "mkdir j{number}; cd j{number}; for i in $(seq 50); do echo > f$i; done; /bin/true"
                    );
                    let mut command = daemon.client(ALICE).enter_and_run(&job, &script);
                    assert!(command.wait().success());
                    let sealed = client.finish("lease", &exited(0));
                    let recording = &sealed.ledger.recording;
                    assert!(sealed.ledger.complete, "{:?}", recording.lost);
                    assert_eq!(recording.write_paths.len(), 50);
                    let own = format!("j{number}/");
                    assert!(recording.write_paths.iter().all(|path| path.starts_with(&own)));
                    job.job
                })
            })
            .collect();
        for job in jobs {
            let job = job.join().unwrap();
            assert!(job_cgroup(&job).is_none());
        }
    });
    let mut root = daemon.root().connected("c");
    eventually("the probes are detached", || {
        root.status("c").attached.is_empty()
    });
}
