//! Blind spots by their names: the members of `coverage.unseen`, which `allow_unseen` accepts one by one.

/// Each name that this version gives to a blind spot, and what the job did to touch it, as it goes on after "the job".
pub const BLIND_SPOTS: [(&str, &str); 10] = [
    ("compat", "made 32-bit or x32 system calls"),
    (
        "core_dump",
        "died with a core dump, which the kernel writes by itself",
    ),
    (
        "fd_receive",
        "received descriptors by a call that is not followed",
    ),
    ("io_uring", "opened, named, connected or sent by io_uring"),
    (
        "kernel_writes",
        "made the kernel write, or hand out descriptors, by itself",
    ),
    (
        "messages",
        "sent a list of messages that cannot be followed to its end",
    ),
    ("mount", "made or took away mounts"),
    (
        "mount_namespace",
        "used files of a mount namespace or a file system of its own",
    ),
    ("ptrace", "reached into a process that may not be its own"),
    (
        "socket_family",
        "used sockets of a family that is not followed",
    ),
];

/// What a job did to touch a blind spot, as a sentence without a full stop.
pub fn sentence(name: &str) -> String {
    match BLIND_SPOTS.iter().find(|(known, _)| *known == name) {
        Some((_, did)) => format!("the job {did} ({name}), which the recorder cannot see"),
        None => format!("the job used {name}, which the recorder cannot see"),
    }
}

#[cfg(test)]
mod tests {
    use super::{BLIND_SPOTS, sentence};
    use crate::{
        compare::{Case, judge},
        contract::Contract,
        event::UNSEEN_NAMES,
        ledger::{EMPTY_DIGEST, ProbeSet, Recording},
        outcome::Outcome,
        pathform::Forms,
        rules::Rules,
    };

    #[test]
    fn each_blind_spot_is_documented_and_accepted_by_its_name_and_stays_in_the_headline() {
        let page = include_str!("../../docs/limits.md");
        for name in BLIND_SPOTS.map(|(name, _)| name) {
            assert!(page.contains(&format!(" | `{name}` | ")), "{name}");
            let mut recording = Recording::empty(ProbeSet::Tracepoint, false);
            recording.coverage.unseen.insert(name.to_owned());
            let judged = |unseen: &str| {
                let contract = format!(
                    r#"{{"allow_net": [], "cpu_budget": 1, "writes": "{EMPTY_DIGEST}", "allow_unseen": [{unseen}]}}"#
                );
                let contract = Contract::from_json(contract.as_bytes()).expect("a contract");
                let forms = Forms::new(b"/", None, 0).expect("a root");
                let environment = std::collections::BTreeMap::new();
                let rules = Rules::new(contract, &environment, &forms, None).expect("rules");
                judge(&Case {
                    recording: &recording,
                    rules: Some(&rules),
                    outcome: Outcome::Exited(0),
                    require_race_free: false,
                    ignored: None,
                    addresses: None,
                })
            };
            let accepted = judged(&format!("\"{name}\""));
            assert_eq!(accepted.headline, format!("match, BLIND to {name}"));
            assert_eq!(accepted.exit_code, 0);
            let refused = judged("");
            assert_eq!(
                (refused.headline.as_str(), refused.exit_code),
                ("incomplete", 121)
            );
            assert!(sentence(name).contains(&format!("({name}), which the recorder cannot see")));
        }
    }

    #[test]
    fn what_the_probes_cannot_see_has_a_sentence() {
        for name in &UNSEEN_NAMES[1..] {
            assert!(BLIND_SPOTS.iter().any(|(known, _)| known == name), "{name}");
        }
        assert!(BLIND_SPOTS.is_sorted());
        assert_eq!(
            sentence("new"),
            "the job used new, which the recorder cannot see"
        );
    }
}
