//! The table of verdicts as the design has it, against every combination of observations.

use std::collections::BTreeSet;

use serde_json::json;

use super::{OUTCOMES, case, nothing, rules};
use crate::{
    compare::{Case, Outcome, judge},
    ledger::Recording,
};

/// What can be observed of a job, one flag each.
#[derive(Clone, Copy, Debug)]
struct Seen {
    outcome: Outcome,
    gated: bool,
    lost: bool,
    unseen: bool,
    racy: bool,
    net: bool,
    cpu: bool,
    writes: bool,
    execs: bool,
    escapes: bool,
    reaches: bool,
}

impl Seen {
    /// The table of the design, row by row: does it apply, its word, its exit code.
    fn table(self) -> Vec<(bool, &'static str, i32)> {
        let never_ran = matches!(self.outcome, Outcome::NotExecutable | Outcome::NotFound);
        let compared = self.gated && !never_ran;
        let (failed, own_code) = match self.outcome {
            Outcome::Exited(3) => (true, 3),
            Outcome::Signaled(11) => (true, 139),
            Outcome::Interrupted(15) => (true, 143),
            Outcome::Abandoned => (true, 137),
            Outcome::Failed => (true, 1),
            _ => (false, 0),
        };
        let ended_early = matches!(self.outcome, Outcome::Interrupted(_) | Outcome::Abandoned);
        let killed = self.outcome == Outcome::CpuKilled;
        let incomplete = self.lost || self.unseen || self.racy || ended_early;
        let cpu = self.cpu && !killed;
        let broken = self.reaches || self.net || cpu || self.writes || self.execs || self.escapes;
        vec![
            (self.gated && self.reaches, "reach", 120),
            (killed, "cpu-kill", 124),
            (failed, "job-failed", own_code),
            (incomplete, "incomplete", 121),
            (compared && self.net, "net", 120),
            (compared && cpu, "cpu", 120),
            (compared && self.writes, "writes", 120),
            (compared && self.execs, "execs", 120),
            (compared && self.escapes, "escapes", 120),
            (self.outcome == Outcome::NotExecutable, "", 126),
            (self.outcome == Outcome::NotFound, "", 127),
            (
                compared && !(killed || failed || incomplete || broken),
                "match",
                0,
            ),
            (!self.gated && !never_ran, "recorded", 0),
        ]
    }

    fn recording(self) -> Recording {
        let mut recording = nothing();
        let members = |present: bool, member: &str| {
            let members = present.then(|| member.to_owned());
            members.into_iter().collect::<BTreeSet<String>>()
        };
        recording.lose("ring", u64::from(self.lost));
        recording.coverage.unseen = members(self.unseen, "io_uring");
        recording.coverage.race_free = !self.racy;
        recording.net = members(self.net, "192.0.2.1:443");
        recording.cpu_sec = if self.cpu { 31 } else { 30 };
        recording.write_paths = members(self.writes, "a");
        recording.execs = members(self.execs, "/bin/sh");
        recording.escapes = members(self.escapes, "delegate:docker");
        recording.reaches = Some(members(self.reaches, "exec:/usr/bin/az"));
        recording
    }
}

#[test]
fn every_combination_of_observations_gets_the_first_row_that_applies() {
    let rules = rules(&json!({ "allow_exec": [], "refuse": ["exec:az"] }));
    let mut cases = 0;
    for outcome in OUTCOMES {
        for bits in 0_u32..1 << 10 {
            let bit = |index: u32| bits >> index & 1 == 1;
            let seen = Seen {
                outcome,
                gated: bit(0),
                lost: bit(1),
                unseen: bit(2),
                racy: bit(3),
                net: bit(4),
                cpu: bit(5),
                writes: bit(6),
                execs: bit(7),
                escapes: bit(8),
                reaches: bit(9),
            };
            let recording = seen.recording();
            let judgement = judge(&Case {
                require_race_free: true,
                ..case(&recording, seen.gated.then_some(&rules), outcome)
            });
            let rows: Vec<_> = seen.table().into_iter().filter(|row| row.0).collect();
            let words: Vec<&str> = rows
                .iter()
                .map(|row| row.1)
                .filter(|word| !word.is_empty())
                .collect();
            assert_eq!(
                judgement
                    .verdict
                    .iter()
                    .map(|verdict| verdict.word())
                    .collect::<Vec<_>>(),
                words,
                "{seen:?}"
            );
            assert_eq!(judgement.exit_code, rows[0].2, "{seen:?}");
            assert_eq!(
                judgement.complete,
                !words.contains(&"incomplete"),
                "{seen:?}"
            );
            assert_eq!(
                judgement.exit_code == 0,
                matches!(words[..], ["match" | "recorded"]),
                "{seen:?}"
            );
            cases += 1;
        }
    }
    assert_eq!(cases, 9 * 1024);
}
