//! Build servers that ran before a job and work for it are named, with what turns them off.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use crate::{
    job::Place,
    programs::Programs,
    service::{ALICE, Service, succeed},
};

/// A server outside of every job, for as long as this is there.
struct Server {
    child: Child,
    /// What it said when it was ready.
    said: String,
}

impl Server {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut server = Command::new(program);
        server.args(arguments).stdout(Stdio::piped());
        let mut child = server.spawn().unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut said).unwrap();
        assert!(said.ends_with("ready\n"), "{said}");
        Self { child, said }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[test]
fn a_build_server_outside_of_the_job_is_named_with_what_turns_it_off() {
    let programs = Programs::new();
    let serve = programs.build("serve");
    // What it is called is all that it has of the real one.
    let named = |name: &str| {
        let program = format!("{serve}.d/{name}");
        succeed(Command::new("install").args(["-D", &serve, &program]));
        program
    };
    let (sccache, other) = (named("sccache"), named("other"));
    let service = Service::start();
    let place = Place::of(ALICE);
    let notes = |script: &str| -> Vec<String> {
        let done = place.script(&service, script);
        done.complete();
        let lines = done.stderr.lines().map(str::trim);
        let notes = lines.filter(|line| line.starts_with("note: the job used"));
        notes.map(str::to_owned).collect()
    };
    let path = place.beside("s.sock");
    let path = path.to_str().unwrap();
    for (program, known) in [(&sccache, true), (&other, false)] {
        let tcp = Server::start(program, &["tcp"]);
        let port = tcp.said.split(' ').next().unwrap();
        let unix = Server::start(program, &["unix", path]);
        succeed(Command::new("chmod").args(["777", path]));
        for (script, place, pid) in [
            (
                format!("exec bash -c '</dev/tcp/127.0.0.1/{port}'"),
                format!("port {port}"),
                tcp.child.id(),
            ),
            (
                format!("exec {serve} connect {path}"),
                format!("`unix:{path}`"),
                unix.child.id(),
            ),
        ] {
            let expect = format!(
                "note: the job used sccache (pid {pid}) at {place}, which ran before it, and what that did for it was not recorded: \
                 end with sccache --stop-server"
            );
            let expect = if known { vec![expect] } else { Vec::new() };
            assert_eq!(notes(&script), expect, "{script}");
        }
        std::fs::remove_file(path).unwrap();
    }
    // The job's own is no server outside.
    let script = format!(
        "{sccache} unix {path} >ready & until grep -q ready ready; do :; done; {serve} connect {path}; kill $!"
    );
    assert_eq!(notes(&script), [""; 0]);
}
