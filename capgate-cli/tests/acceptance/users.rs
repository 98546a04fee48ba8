//! Two users at the same time, and what a job can reach from inside, by the client that they really use.

use std::fs;

use crate::{
    job::Place,
    service::{ALICE, BOB, ROOT, Service},
};

/// A script that waits inside the job.
const WAIT: &str = "echo ready; read line; echo > done";

#[test]
fn users_at_the_same_time_neither_see_nor_touch_each_others_jobs() {
    let service = Service::start();
    let places = [Place::of(ALICE), Place::of(BOB)];
    let mut jobs = places
        .each_ref()
        .map(|place| place.job(&service, &["sh", "-c", WAIT]).start());
    jobs.iter_mut().for_each(|job| job.until_it_says("ready"));
    let ids = [service.job(ALICE), service.job(BOB)];
    let refused = |uid, other: &str, state: &str| {
        for arguments in [
            &["show", other][..],
            &["show", other, "--ledger"],
            &["show", other, "--evidence"],
            &["stop", other],
            &["tail", other, "--json"],
        ] {
            let (code, stdout, said) = service.ask(uid, arguments);
            assert_eq!(code, 125, "{arguments:?} of a {state} job: {stdout}{said}");
            assert!(said.contains(&format!("there is no job {other}")), "{said}");
            assert_eq!(stdout, "", "{arguments:?}");
        }
    };
    for (uid, other) in [(ALICE, &ids[1]), (BOB, &ids[0])] {
        refused(uid, other, "running");
    }
    assert_eq!(service.jobs(ROOT).len(), 2);

    for job in &mut jobs {
        job.tell("go on");
    }
    for job in jobs {
        let done = job.wait();
        let names = &done.complete().recording.write_paths;
        assert_eq!(names.iter().collect::<Vec<_>>(), ["done"]);
    }
    for (uid, own, other) in [(ALICE, &ids[0], &ids[1]), (BOB, &ids[1], &ids[0])] {
        refused(uid, other, "finished");
        let (code, ledger, said) = service.ask(uid, &["show", own, "--ledger"]);
        assert_eq!(code, 0, "{said}");
        assert!(ledger.contains("\"done\""), "{ledger}");
        // Nor by the files that the daemon keeps.
        let mut look = service.command(uid, "find");
        let found = look.arg(service.store()).output().unwrap();
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        assert!(!found.contains(other.as_str()), "{found}");
        let kept = service.store().join("jobs").join(own).join("ledger.json");
        assert!(kept.exists());
        let mut read = service.command(uid, "cat");
        assert!(!read.arg(kept).output().unwrap().status.success());
    }
}

#[test]
fn a_job_reaches_neither_records_nor_leases_nor_the_daemon() {
    let service = Service::start();
    let finished = Place::of(ALICE);
    finished.script(&service, "true").complete();
    let over = service.job(ALICE);
    let outside = Place::of(ALICE);
    let mut other = outside.job(&service, &["sh", "-c", WAIT]).start();
    other.until_it_says("ready");
    let running = service
        .jobs(ALICE)
        .iter()
        .map(|job| job["job"].as_str().unwrap().to_owned())
        .find(|job| *job != over)
        .unwrap();

    let capgate = service.client().display().to_string();
    let socket = service.socket().display().to_string();
    // In a cgroup of the job's, found by its own name; `$PPID` is the client, which holds the lease.
    let script = format!(
        r#"
own=$(sed -n 's/^0::.*capgate-//p' /proc/self/cgroup)
test -n "$own" || echo "no cgroup of its own"
for arguments in ps status "show $own" "show {over}" "show {running}" "stop $own" "stop {running}" "tail $own" "tail {running}" \
    "run --record --root . -- touch ran"; do
    words=${{arguments#* -- }}
    case $arguments in
    *" -- "*) set -- ${{arguments%% -- *}} --socket {socket} -- $words;;
    *) set -- $arguments --socket {socket};;
    esac
    said=$({capgate} "$@" 2>&1)
    code=$?
    test $code = 125 || echo "$arguments: $code"
    case $said in
    *"inside a job"*) ;;
    *) echo "$arguments: $said";;
    esac
done
"#
    );
    let client_of_its_own_user = r#"
readlink /proc/$PPID/exe | grep -q capgate && echo "the client's program shows"
ls /proc/$PPID/fd 2>/dev/null && echo "the client's descriptors show"
(exec 3</proc/$PPID/mem) 2>/dev/null && echo "the client's memory opens"
(exec 3</proc/$PPID/environ) 2>/dev/null && echo "the client's environment opens"
true
"#;
    for uid in [ALICE, ROOT] {
        let place = Place::of(uid);
        let more = if uid == ROOT {
            ""
        } else {
            client_of_its_own_user
        };
        let done = place.script(&service, &format!("{script}{more}"));
        assert_eq!(done.stdout, "", "uid {uid}: {}", done.stderr);
        done.complete();
        assert!(!place.root().join("ran").exists());
    }
    other.tell("go on");
    other.wait().complete();
    assert!(fs::exists(outside.root().join("done")).unwrap());
}
