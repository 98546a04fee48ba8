//! Ways out of the recorder's sight that are recorded as such: the members of the column `escapes`.

/// The job moved a process out of its cgroup.
pub const CGROUP_LEAVE: &str = "cgroup-leave";
/// The job traced, or wrote into the memory of, a process outside.
pub const PTRACE_OUTSIDE: &str = "ptrace-outside";
/// The job wrote the contract that it is judged by.
pub const CONTRACT_WRITTEN: &str = "contract-written";
/// How an entry begins that names a service which starts processes for others.
pub const DELEGATE_PREFIX: &str = "delegate:";
/// The services that `delegate:` entries name.
pub const DELEGATES: [&str; 7] = [
    "docker",
    "containerd",
    "podman",
    "systemd",
    "dbus",
    "cron",
    "at",
];

/// The entry for a successful connection to a delegate: `delegate:docker`.
pub fn delegate(name: &str) -> String {
    format!("{DELEGATE_PREFIX}{name}")
}

/// The name by which `allow_unseen` accepts an escape; `None` for one that nobody can accept.
pub fn acceptable_as(entry: &str) -> Option<&str> {
    entry.strip_prefix(DELEGATE_PREFIX)
}

/// Whether `allow_unseen` must not hold a name, since what it means is never acceptable.
pub fn is_never_acceptable(name: &str) -> bool {
    matches!(name, CGROUP_LEAVE | PTRACE_OUTSIDE | CONTRACT_WRITTEN)
}

/// What an escape means, as a sentence without a full stop.
pub fn sentence(entry: &str) -> String {
    match entry {
        CGROUP_LEAVE => "a process of the job was moved out of the job's cgroup, and what it did after that was not recorded".to_owned(),
        PTRACE_OUTSIDE => "the job traced a process outside, or touched its memory, and could have made it act".to_owned(),
        CONTRACT_WRITTEN => "the job wrote the contract that it is judged by".to_owned(),
        _ => match acceptable_as(entry) {
            Some("docker") => service("docker", "start containers"),
            Some("containerd") => service("containerd", "start containers"),
            Some("podman") => service("podman", "start containers"),
            Some("systemd") => service("systemd", "start units"),
            Some("dbus") => service("a D-Bus daemon", "activate services"),
            Some("cron") => service("cron", "run commands later"),
            Some("at") => service("at", "run commands later"),
            Some(other) => service(other, "start processes"),
            None => format!("`{entry}`, which this version does not know, left the recorder's sight"),
        },
    }
}

fn service(name: &str, power: &str) -> String {
    format!(
        "the job talked to {name}, which can {power} outside the job, where nothing is recorded"
    )
}

#[cfg(test)]
mod tests {
    use super::{
        CONTRACT_WRITTEN, DELEGATES, acceptable_as, delegate, is_never_acceptable, sentence,
    };

    #[test]
    fn delegates_are_accepted_by_their_name_and_nothing_else_is() {
        for name in DELEGATES {
            assert_eq!(acceptable_as(&delegate(name)), Some(name));
            assert!(!is_never_acceptable(name));
        }
        for entry in ["cgroup-leave", "ptrace-outside", "contract-written"] {
            assert_eq!(acceptable_as(entry), None);
            assert!(is_never_acceptable(entry));
        }
    }

    #[test]
    fn each_escape_has_its_own_sentence() {
        let mut sentences: Vec<String> = DELEGATES.map(|name| sentence(&delegate(name))).to_vec();
        sentences.extend(["cgroup-leave", "ptrace-outside", CONTRACT_WRITTEN, "new"].map(sentence));
        let count = sentences.len();
        sentences.sort();
        sentences.dedup();
        assert_eq!(sentences.len(), count);
        assert!(sentences.iter().all(|sentence| !sentence.ends_with('.')));
    }
}
