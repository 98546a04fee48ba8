//! Ways out of the job, and what comes into it.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, IoSlice},
    os::{fd::AsRawFd as _, unix::net::UnixListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::JoinHandle,
};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::{
    programs::BIN,
    row::{Row, incomplete},
    site::Site,
};

/// A process outside the job. Its stdin is a file that is open for writing.
struct Outsider(Child);

impl Outsider {
    fn start(site: &Site) -> Self {
        let file = File::create(site.path("repo/given")).unwrap();
        let mut command = Command::new(format!("{BIN}/reach"));
        command.args(["wait", "0"]).stdin(Stdio::from(file));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        // What it has in memory is there when it says so, and not when it was started.
        let mut said = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        site.set("pid", &child.id().to_string());
        Self(child)
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// The whole hierarchy of cgroups, at the same place in every cell.
fn cgroups(site: &Site) {
    site.mount("cgroup2", Path::new("none"), "cgroup", "");
}

/// A cgroup of another hierarchy, of the first version. It goes before its mount does.
struct OtherHierarchy(PathBuf);

impl OtherHierarchy {
    fn make(site: &Site) -> Self {
        site.mount(
            "cgroup",
            Path::new("none"),
            "v1",
            "none,name=capgate-scenario",
        );
        let cgroup = site.path("v1/x");
        fs::create_dir(&cgroup).unwrap();
        Self(cgroup)
    }
}

impl Drop for OtherHierarchy {
    fn drop(&mut self) {
        let _gone = fs::remove_dir(&self.0);
    }
}

/// Hands a writable descriptor to whoever connects.
fn giver(site: &Site) -> JoinHandle<()> {
    let file = File::create(site.path("repo/given")).unwrap();
    let listener = UnixListener::bind(site.path("giver")).unwrap();
    std::thread::spawn(move || {
        let (peer, _) = listener.accept().unwrap();
        let fds = [file.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&fds)];
        let bytes = [IoSlice::new(b"x")];
        sendmsg::<()>(peer.as_raw_fd(), &bytes, &rights, MsgFlags::empty(), None).unwrap();
    })
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row::program(
            "a_child_cgroup_belongs_to_the_job",
            "cgroup below {site}/cgroup",
        )
        .outside(cgroups)
        .writes("late"),
        Row::program(
            "a_child_that_starts_outside_has_left",
            "cgroup out {site}/cgroup",
        )
        .outside(cgroups)
        .escapes("cgroup-leave"),
        Row::sh(
            "leaving_by_cgroup_procs",
            "echo $$ > {site}/cgroup/cgroup.procs",
        )
        .outside(cgroups)
        .writes("{site}/cgroup/cgroup.procs")
        .escapes("cgroup-leave"),
        Row::sh(
            "another_hierarchy_is_none_of_the_jobs",
            "echo $$ > {site}/v1/x/cgroup.procs; echo x > f",
        )
        .outside(OtherHierarchy::make)
        .writes("{site}/v1/x/cgroup.procs f"),
        Row::program("tracing_a_process_outside", "reach trace {pid}")
            .outside(Outsider::start)
            .escapes("ptrace-outside"),
        Row::program(
            "writing_to_the_memory_of_a_process_outside",
            "reach memory {pid}",
        )
        .outside(Outsider::start)
        .escapes("ptrace-outside"),
        Row::program(
            "taking_a_descriptor_from_a_process_outside",
            "reach descriptor {pid}",
        )
        .outside(Outsider::start)
        .writes("given")
        .escapes("ptrace-outside")
        // The call has no number of the process, but a descriptor.
        .tracepoint(incomplete("ptrace")),
        Row::program("tracing_a_process_of_the_job", "reach trace 0"),
        Row::program(
            "writing_to_the_memory_of_a_process_of_the_job",
            "reach memory 0",
        ),
        Row::program(
            "receiving_a_descriptor_from_outside",
            "receive {site}/giver",
        )
        .outside(giver)
        .net("unix:{site}/giver")
        .writes("given"),
    ]
}
