//! What the kernel says the daemon has attached: its links, each a descriptor (proc_pid_fdinfo(5)).

use std::{collections::BTreeSet, fs};

use capgate_common::ledger::ProbeSet;

/// Tracepoints that both sets have.
const SHARED: [&str; 3] = [
    "sched_process_exec",
    "sched_process_exit",
    "sched_process_fork",
];
/// Those of the `tracepoint` set; older kernels lack the last.
const TRACEPOINT: [&str; 3] = ["sys_exit", "cgroup_attach_task", "io_uring_submit_req"];

/// One link: its type, and the tracepoint when it is on one.
pub(crate) type Link = (String, Option<String>);

/// All links of a process.
pub(crate) fn of(pid: u32) -> Vec<Link> {
    let mut links = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
        // A descriptor may be closed by now.
        let Ok(info) = fs::read_to_string(entry.unwrap().path()) else {
            continue;
        };
        let value = |key: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim().to_owned())
        };
        if let Some(kind) = value("link_type:") {
            links.push((kind, value("tp_name:")));
        }
    }
    links
}

/// Compares the links while jobs may run with what the set in use needs.
pub(crate) fn judge(links: &[Link], set: ProbeSet) -> Result<(), String> {
    let on: BTreeSet<&str> = links.iter().filter_map(|(_, on)| on.as_deref()).collect();
    let mut right: BTreeSet<&str> = SHARED.into();
    if set == ProbeSet::Tracepoint {
        right.extend(TRACEPOINT);
        if !on.contains("io_uring_submit_req") {
            right.remove("io_uring_submit_req");
        }
    }
    if on != right {
        return Err(format!(
            "attached to the tracepoints {on:?}, and not to {right:?}"
        ));
    }
    let entries = links.iter().filter(|(kind, _)| kind == "tracing").count();
    if (entries > 0) != (set == ProbeSet::Fentry) {
        return Err(format!("{entries} functions are probed"));
    }
    Ok(())
}
