//! What the probes cannot record is said, and a human may accept it. More of it is in `tests/scenarios`.

use crate::{
    absent,
    job::{Done, Place},
    programs::Programs,
    service::{ALICE, ROOT, Service},
};

/// The job's ledger is incomplete for this reason and no other.
#[track_caller]
fn check_blind(done: &Done, to: &[&str]) {
    let recording = &done.incomplete().recording;
    assert_eq!(recording.coverage.unseen.iter().collect::<Vec<_>>(), to);
    assert!(recording.lost.is_empty(), "{:?}", recording.lost);
}

#[test]
fn system_calls_of_32_bit_programs_are_a_blind_spot() {
    let test = "system_calls_of_32_bit_programs_are_a_blind_spot";
    if absent::skip(test, "ia32").unwrap() {
        return;
    }
    let programs = Programs::new();
    let service = Service::start();
    // Debian's 32-bit compiler does not look into the multiarch directory, where the kernel's headers for both are.
    let ia32 = "-m32 -static -idirafter /usr/include/x86_64-linux-gnu".split(' ');
    for flags in [ia32.collect(), vec!["-m64"]] {
        let program = programs.build_with("compat", &flags);
        let place = Place::of(ALICE);
        let done = place.record(&service, &[&program]);
        check_blind(&done, &["compat"]);
        assert!(place.root().join("compat").exists());
        // A human can accept it by its name.
        let contract = place.contract(
            r#"{"allow_net": ["127.0.0.1:9"], "cpu_budget": 9, "allow_unseen": ["compat"],
                "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}"#,
        );
        let done = place.job(&service, &[&program]).gated(&contract);
        let done = done.start().wait();
        assert_eq!(done.code, 0, "{}", done.stderr);
        assert!(done.stderr.contains("BLIND to compat"), "{}", done.stderr);
    }
}

#[test]
fn what_is_written_below_a_mount_of_the_jobs_own_has_the_name_outside_or_none() {
    let service = Service::start();
    let place = Place::of(ROOT);
    let script = "mkdir -p m && mount -t tmpfs none m && echo > m/hidden";
    let done = place.record(&service, &["unshare", "--mount", "sh", "-c", script]);
    let recording = &done.complete().recording;
    assert!(
        recording.write_paths.is_empty(),
        "gone with the job, and no such name is in the repository: {:?}",
        recording.write_paths
    );

    let place = Place::of(ALICE);
    let script = "mkdir m && mount --bind . m && echo > m/seen";
    let wrapper = ["unshare", "--map-root-user", "--mount", "sh", "-c", script];
    let done = place.record(&service, &wrapper);
    let recording = &done.complete().recording;
    assert!(recording.write_paths.contains("seen"));
    assert!(!recording.write_paths.contains("m/seen"));
    assert!(place.root().join("seen").exists());
}
