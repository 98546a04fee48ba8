//! A second and a third look at the same run: strace, inside the job, and the file system, before and after it, say what a real
//! project's suite did. `cargo xtask witness` does the same with more suites.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use capgate_common::{
    evidence::{Column, Evidence},
    pathform::Forms,
};
use xtask::witnesses::{
    judge::{self, Judgement, Seen, Told},
    story::Story,
    strace,
    walk::Walk,
};

use crate::{
    absent,
    job::Place,
    project,
    service::{ALICE, Service},
};

/// A test that fails with the packages of `project`, with and without a recorder.
const BROKEN: &str = "--deselect=tests/test_converters.py::TestPipe::test_wrapped_annotation";

#[test]
fn strace_inside_the_job_and_the_file_system_agree_with_the_ledger_of_a_real_suite() {
    let test = "strace_inside_the_job_and_the_file_system_agree_with_the_ledger_of_a_real_suite";
    if absent::skip(test, "pypi").unwrap() {
        return;
    }
    let service = Service::start();
    let place = Place::of(ALICE);
    project::check_out(&place);
    let site = project::site_of(&place);
    let temporary = place.directory("tmp");
    let home = place.directory("home");
    let log = place.directory("log").join("strace");
    let command: Vec<&str> = ["strace"]
        .into_iter()
        .chain(strace::OPTIONS)
        .chain([log.to_str().unwrap(), project::PYTHON, "-m", "pytest"])
        .chain(["-q", BROKEN, "tests"])
        .collect();
    let job = place
        .job(&service, &command)
        .env("PYTHONPATH", &site)
        .env("TMPDIR", &temporary)
        .env("HOME", &home);
    let root = place.root();
    let walk = || {
        let whole = [root.clone(), temporary.clone(), home.clone()];
        // Not where everybody may write: this user has other jobs at the same time.
        Walk::of(&whole, &[], ALICE).unwrap()
    };
    let before = walk();
    let done = job.start().wait();
    let after = walk();
    let recording = &done.complete().recording;
    assert!(done.stdout.contains(" passed"), "{}", done.stdout);

    let evidence = done.evidence();
    let calls = strace::calls(&fs::read_to_string(&log).unwrap()).unwrap();
    let mut story = Story::of(&calls, &before, &root).unwrap();
    assert!(story.files.len() > 100, "a real suite writes: {story:?}");
    // strace itself is a program of the job, and nobody traces it.
    story.programs.insert("/usr/bin/strace".into());
    let forms = Forms::new(root.as_os_str().as_bytes(), None, ALICE).unwrap();
    let entry = |path: &Path| {
        let form = forms.form(path.as_os_str().as_bytes(), &|_| false);
        form.unwrap().entry
    };
    let mut told = Told::of(recording, evidence);
    assert!(told.written.remove(&entry(&log)), "strace's own file");
    let seen = Seen {
        story: &story,
        before: &before,
        after: &after,
    };
    let judgement = judge::judge(&forms, seen, &told).unwrap();
    assert_eq!(judgement, Judgement::default());

    check_authors(evidence, &story.files, &entry);
    assert!(story.connected.is_empty(), "{:?}", story.connected);
    assert!(recording.net.is_empty(), "{:?}", recording.net);
    assert!(recording.escapes.is_empty(), "{:?}", recording.escapes);
}

/// The evidence names the process that wrote each name first.
fn check_authors(
    evidence: &Evidence,
    files: &BTreeMap<PathBuf, u32>,
    entry: &dyn Fn(&Path) -> String,
) {
    let entries = evidence.entries.iter();
    let written = entries.filter(|found| found.column == Column::Writes);
    let written = written.map(|found| (&found.entry, &found.by));
    let transient = evidence
        .transient
        .iter()
        .map(|item| (&item.entry, &item.by));
    let by: BTreeMap<_, _> = written.chain(transient).collect();
    for (file, process) in files {
        let entry = entry(file);
        assert_eq!(by[&entry][0].pid, *process, "{entry}");
    }
}
