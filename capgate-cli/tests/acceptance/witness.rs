//! A second look at the same run: strace, inside the job, says what a real project's suite did.

mod story;
mod strace;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use capgate_common::evidence::{Column, Evidence};

use self::story::Story;
use crate::{
    absent,
    job::Place,
    project,
    service::{ALICE, Service},
};

/// The system calls that can make, write, rename or remove a name, start a program or connect, and those that are needed to follow
/// them.
const CALLS: &str = "open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,\
    symlink,symlinkat,mknod,mknodat,truncate,bind,connect,execve,execveat,chdir,fchdir,clone,clone3,fork,vfork";

/// A test that fails with the packages of `project`, with and without a recorder.
const BROKEN: &str = "--deselect=tests/test_converters.py::TestPipe::test_wrapped_annotation";

/// A name as an entry. Names that would have to be escaped do not come up here.
fn entry(root: &Path, name: &Path) -> String {
    let name = name.strip_prefix(root).unwrap_or(name).to_str().unwrap();
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    assert!(is_plain && !name.starts_with('~'), "{name}");
    name.to_owned()
}

/// Members of a set that another one lacks.
fn beyond<'a>(some: &'a BTreeSet<String>, others: &'a BTreeSet<String>) -> Vec<&'a String> {
    some.difference(others).collect()
}

/// Where an entry of the write set is.
fn place_of(root: &Path, entry: &str) -> PathBuf {
    root.join(entry)
}

#[test]
fn strace_inside_the_job_sees_what_the_ledger_of_a_real_suite_says() {
    let test = "strace_inside_the_job_sees_what_the_ledger_of_a_real_suite_says";
    if absent::skip(test, "pypi").unwrap() {
        return;
    }
    let service = Service::start();
    let place = Place::of(ALICE);
    project::check_out(&place);
    let site = project::site_of(&place);
    let temporary = place.directory("tmp");
    let log = place.directory("log").join("strace");
    let command = [
        "strace",
        "--follow-forks",
        "--seccomp-bpf",
        "--decode-fds=path",
        "--string-limit=4096",
        "--output",
        log.to_str().unwrap(),
        "--trace",
        CALLS,
        project::PYTHON,
        "-m",
        "pytest",
        "-q",
        BROKEN,
        "tests",
    ];
    let job = place
        .job(&service, &command)
        .env("PYTHONPATH", &site)
        .env("TMPDIR", &temporary)
        .env("HOME", place.beside("home"));
    let done = job.start().wait();
    let recording = &done.complete().recording;
    assert!(done.stdout.contains(" passed"), "{}", done.stdout);
    let evidence = done.evidence();
    let root = place.root();
    let calls = strace::calls(&fs::read_to_string(&log).unwrap());
    let story = Story::of(&calls, &root);

    let seen: BTreeSet<String> = story.files.keys().map(|name| entry(&root, name)).collect();
    assert!(seen.len() > 100, "a real suite writes: {seen:?}");
    check_files(recording.write_paths.clone(), evidence, &seen, &log, &root);
    check_directories(&recording.write_paths, &story, &root);
    check_authors(evidence, &story, &root);

    // strace itself is a program of the job, and nobody traces it.
    let mut programs: BTreeSet<String> = story
        .programs
        .iter()
        .map(|program| entry(&root, program))
        .collect();
    programs.insert("/usr/bin/strace".to_owned());
    assert_eq!(recording.execs, programs);
    assert!(story.connected.is_empty(), "{:?}", story.connected);
    assert!(recording.net.is_empty(), "{:?}", recording.net);
    assert!(recording.escapes.is_empty(), "{:?}", recording.escapes);
}

/// Names of files: those that strace saw, and no others.
fn check_files(
    write_paths: BTreeSet<String>,
    evidence: &Evidence,
    seen: &BTreeSet<String>,
    log: &Path,
    root: &Path,
) {
    let mut written = write_paths;
    written.retain(|entry| !entry.ends_with('/'));
    // strace's own file, which nobody traced.
    assert!(written.remove(&entry(root, log)));
    let transient: BTreeSet<String> = evidence
        .transient
        .iter()
        .map(|item| item.entry.clone())
        .collect();
    let told: BTreeSet<String> = written.union(&transient).cloned().collect();
    assert_eq!(
        (beyond(seen, &told), beyond(&told, seen)),
        (vec![], vec![]),
        "only strace saw the first, only capgate the second"
    );
    for entry in &transient {
        let path = place_of(root, entry);
        assert!(path.symlink_metadata().is_err(), "{entry} is there");
    }
}

/// Directories count when they were there before the job: then strace saw them too.
fn check_directories(write_paths: &BTreeSet<String>, story: &Story, root: &Path) {
    for entry in write_paths {
        if let Some(name) = entry.strip_suffix('/') {
            assert!(
                story.directories.contains(&place_of(root, name)),
                "strace did not see {entry}"
            );
        }
    }
}

/// The evidence names the process that wrote each name first.
fn check_authors(evidence: &Evidence, story: &Story, root: &Path) {
    let entries = evidence.entries.iter();
    let written = entries.filter(|found| found.column == Column::Writes);
    let written = written.map(|found| (&found.entry, &found.by));
    let transient = evidence
        .transient
        .iter()
        .map(|item| (&item.entry, &item.by));
    let mut checked = 0;
    for (entry, by) in written.chain(transient) {
        if let Some(&process) = story.files.get(&place_of(root, entry)) {
            assert_eq!(by[0].pid, process, "{entry}");
            checked += 1;
        }
    }
    assert_eq!(checked, story.files.len(), "each name has an author");
}
