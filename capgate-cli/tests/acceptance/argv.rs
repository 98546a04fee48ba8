//! What is kept of command lines: with whom a program ran and how it ended, and no secret of the job's environment.

use std::{fs, path::Path};

use capgate_common::evidence::Column;

use crate::{
    job::Place,
    service::{ALICE, Service},
};

const SECRET: &str = "correct-horse-battery";
/// Uses the secret as an argument of the command, of a child, and inside of an argument.
const SCRIPT: &str =
    "/bin/echo \"$DEPLOY_TOKEN\" >/dev/null; /bin/cat --as=\"x,$1\" </dev/null 2>/dev/null || true";

/// Whether a file in a directory, or below it, holds a text.
fn holds(directory: &Path, text: &str) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            return holds(&path, text);
        }
        let bytes = kind.is_file().then(|| fs::read(&path).unwrap());
        bytes.is_some_and(|bytes| {
            let mut windows = bytes.windows(text.len());
            windows.any(|window| window == text.as_bytes())
        })
    })
}

/// Runs the job under a configuration, and says what is kept of its command line and of the program behind an entry, and whether the
/// secret stands anywhere.
fn kept(config: &str) -> (Vec<String>, Vec<String>, bool) {
    let service = Service::with(config);
    let place = Place::of(ALICE);
    let job = place
        .job(&service, &["sh", "-c", SCRIPT, "sh", SECRET])
        .env("DEPLOY_TOKEN", SECRET);
    let done = job.start().wait();
    done.complete();
    let of_echo = done.entry(Column::Execs, "/usr/bin/echo").by[0]
        .argv
        .clone();
    let id = service.job(ALICE);
    let mut said = vec![done.stderr.clone(), service.log()];
    for arguments in [
        &["show", &id][..],
        &["show", &id, "--evidence"],
        &["show", &id, "--format", "json"],
        &["ps", "--json"],
        &["log"],
    ] {
        said.push(service.ask(ALICE, arguments).1);
    }
    said.push(fs::read_to_string(place.beside("evidence.json")).unwrap());
    let stands = said.iter().any(|it| it.contains(SECRET))
        || holds(&service.store(), SECRET)
        || holds(&place.root(), SECRET);
    let listed = service.jobs(ALICE)[0]["argv"].clone();
    (serde_json::from_value(listed).unwrap(), of_echo, stands)
}

#[test]
fn no_secret_of_the_environment_is_stored_or_shown() {
    let (command, echo, stands) = kept("");
    assert_eq!(command, ["sh", "-c", SCRIPT, "sh", "***"]);
    assert_eq!(echo, ["/bin/echo", "***"]);
    assert!(!stands);
}

#[test]
fn an_operator_may_have_the_names_alone() {
    let (command, echo, stands) = kept("argv = \"names\"\n");
    assert_eq!(command, ["sh", "… 4 more"]);
    assert_eq!(echo, ["/bin/echo", "… 1 more"]);
    assert!(!stands);
}

#[test]
fn an_operator_may_have_everything() {
    let (command, echo, stands) = kept("argv = \"full\"\n");
    assert_eq!(command[4], SECRET);
    assert_eq!(echo, ["/bin/echo", SECRET]);
    assert!(stands);
}

#[test]
fn a_program_run_has_arguments_parents_and_a_status() {
    let service = Service::start();
    let place = Place::of(ALICE);
    let done = place.script(
        &service,
        "/usr/bin/false x y; /usr/bin/true; /usr/bin/env /usr/bin/bash -c 'kill -9 $$'; exit 0",
    );
    done.complete();
    let chain = |entry: &str| -> Vec<(String, Option<u32>)> {
        let by = &done.entry(Column::Execs, entry).by;
        let told = by.iter().map(|it| (it.argv.join(" "), it.status));
        told.collect()
    };
    let shell = chain("/usr/bin/false")[1].clone();
    assert!(
        shell.0.starts_with("sh -c ") && shell.1 == Some(0),
        "{shell:?}"
    );
    for (entry, argv, status) in [
        ("/usr/bin/false", "/usr/bin/false x y", Some(1)),
        ("/usr/bin/true", "/usr/bin/true", Some(0)),
        ("/usr/bin/bash", "/usr/bin/bash -c kill -9 $$", Some(137)),
        // It went on as another program.
        (
            "/usr/bin/env",
            "/usr/bin/env /usr/bin/bash -c kill -9 $$",
            None,
        ),
    ] {
        assert_eq!(chain(entry), [(argv.to_owned(), status), shell.clone()]);
    }
}
