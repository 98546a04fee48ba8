//! The daemon of `capgate run --local`.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::harness::{ALICE, BOB, Place, Talk, Talker, eventually, exited, job_cgroup, runs};

/// A private daemon for Alice, and its directory.
struct Private {
    place: Place,
    child: Child,
    directory: PathBuf,
}

impl Private {
    fn start() -> Self {
        let place = Place::new();
        let directory = place.path("private");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&directory, Some(ALICE), Some(ALICE)).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_capgated"))
            .args(["--private", &ALICE.to_string(), "--socket"])
            .arg(directory.join("sock"))
            .arg("--store")
            .arg(directory.join("store"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Self {
            place,
            child,
            directory,
        }
    }

    fn talk(&self, uid: u32) -> Talk {
        Talker::at(&self.place, self.directory.join("sock"))
            .user(uid)
            .start()
    }

    fn left(&self) -> usize {
        fs::read_dir(&self.directory).unwrap().count()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[test]
fn it_serves_one_job_of_one_user_and_removes_itself() {
    let mut private = Private::start();
    let mut client = private.talk(ALICE).connected("lease");
    let job = client.start_job("lease", None);
    let command = private.talk(ALICE);
    command.enter_and_run(&job, "echo > made").wait();
    let sealed = client.finish("lease", &exited(0));
    assert!(sealed.ledger.recording.write_paths.contains("made"));
    assert!(private.child.wait().unwrap().success());
    assert_eq!(private.left(), 0, "its user can remove the directory");
}

#[test]
fn it_ends_with_its_client() {
    let mut private = Private::start();
    let mut client = private.talk(ALICE).connected("lease");
    let job = client.start_job("lease", None);
    let command = private.talk(ALICE);
    let command = command.enter_and_run(&job, "sleep 600");
    // Its stdin ends, as when the client is killed.
    drop(private.child.stdin.take());
    assert!(private.child.wait().unwrap().success());
    assert!(job_cgroup(&job.job).is_none());
    eventually("the command is gone", || !runs(command.pid()));
    assert_eq!(private.left(), 0);
}

#[test]
fn nobody_else_is_served() {
    let private = Private::start();
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&private.directory, open).unwrap();
    let said = private.talk(BOB).connect("c");
    assert!(said.contains("may not use this capgated"), "{said}");
}
