//! Where a job's cgroup is made.

use std::{fs, path::PathBuf};

use crate::harness::{
    ALICE, Daemon, Talker, TestCgroup, cgroup_root, contract, exited, job_cgroup,
};

/// Where the job of a client in `cgroup` runs.
fn place_of(daemon: &Daemon, cgroup: &TestCgroup) -> PathBuf {
    let mut client = Talker::new(daemon)
        .user(ALICE)
        .in_cgroup(&cgroup.0)
        .start()
        .connected("lease");
    let job = client.start_job("lease", Some(&contract(30)));
    let place = job_cgroup(&job.job).expect("the job has a cgroup");
    let mut command = Talker::new(daemon)
        .user(ALICE)
        .in_cgroup(&cgroup.0)
        .start()
        .enter_and_run(&job, "cat /proc/self/cgroup > where");
    assert!(command.wait().success());
    let said = fs::read_to_string(daemon.place.home(ALICE).join("where")).unwrap();
    let inside = place
        .strip_prefix(cgroup_root())
        .unwrap()
        .display()
        .to_string();
    assert!(said.contains(&format!("0::/{inside}\n")), "{said}");
    client.finish("lease", &exited(0));
    assert!(!place.exists());
    place.parent().unwrap().to_owned()
}

#[test]
fn below_the_clients_own_cgroup_where_root_alone_has_it() {
    let daemon = Daemon::start("");
    let cgroup = TestCgroup::new("own");
    assert_eq!(place_of(&daemon, &cgroup), cgroup.0);
}

#[test]
fn elsewhere_when_somebody_could_move_its_processes_out() {
    let daemon = Daemon::start("");
    let delegated = TestCgroup::new("delegated");
    delegated.delegate(ALICE);
    assert_eq!(
        place_of(&daemon, &delegated),
        cgroup_root().join("capgate.jobs")
    );

    let above = TestCgroup::new("above");
    let below = TestCgroup(above.0.join("below"));
    fs::create_dir(&below.0).unwrap();
    above.delegate(ALICE);
    assert_eq!(
        place_of(&daemon, &below),
        cgroup_root().join("capgate.jobs")
    );
    drop(below);
}

#[test]
fn elsewhere_when_the_kernel_would_not_let_processes_in() {
    let daemon = Daemon::start("");
    let threaded = TestCgroup::new("threaded");
    let child = TestCgroup(threaded.0.join("child"));
    fs::create_dir(&child.0).unwrap();
    fs::write(child.0.join("cgroup.type"), "threaded").unwrap();
    let kind = fs::read_to_string(threaded.0.join("cgroup.type")).unwrap();
    assert_eq!(kind, "domain threaded\n");
    assert_eq!(
        place_of(&daemon, &threaded),
        cgroup_root().join("capgate.jobs")
    );
    drop(child);
}
