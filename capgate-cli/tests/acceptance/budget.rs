//! The CPU budget holds for whatever a job starts.

use std::fs;

use capgate_common::verdict::{EXIT_CPU_KILL, Verdict};

use crate::{
    job::Place,
    programs::Programs,
    service::{ALICE, Service},
};

/// Seconds that the jobs are allowed.
const BUDGET: u64 = 1;

/// The processes that run a program, by their ids.
fn running(program: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().map(|it| it.unwrap());
    let runs = |pid: &String| {
        let exe = fs::read_link(format!("/proc/{pid}/exe"));
        exe.is_ok_and(|exe| exe.as_os_str() == program)
    };
    processes
        .filter_map(|it| it.file_name().into_string().ok())
        .filter(runs)
        .collect()
}

#[test]
fn every_way_to_burn_on_ends_at_the_budget_and_is_no_flaky_job() {
    let programs = Programs::new();
    let burn = programs.build("burn");
    let service = Service::start();
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    for way in [
        "bomb",
        "daemon-and-wait",
        "daemon-and-end",
        "stubborn",
        "fails-when-told",
    ] {
        let place = Place::of(ALICE);
        let contract = place.contract(&format!(
            r#"{{"allow_net": [], "cpu_budget": {BUDGET},
                "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}"#
        ));
        let job = place.job(&service, &[&burn, way]).gated(&contract);
        let done = job.start().wait();
        assert_eq!(done.code, EXIT_CPU_KILL, "{way}: {}", done.stderr);
        let ledger = done.sealed();
        assert_eq!(ledger.verdict, [Verdict::CpuKill], "{way}: {}", done.stderr);
        // Told 5 s over the budget, killed a second later on every core.
        let used = ledger.recording.cpu_sec;
        assert!(
            (BUDGET + 1..=BUDGET + 6 + cores).contains(&used),
            "{way}: {used} s of user CPU time"
        );
        assert_eq!(running(&burn), [""; 0], "{way}");
        assert!(
            done.stderr
                .contains("the job was stopped because it used up its CPU budget"),
            "{way}: {}",
            done.stderr
        );
    }
}
