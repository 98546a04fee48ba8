//! What a job reached for that its contract refuses.

use serde_json::json;

use super::{case, judged, nothing, rules, set, summary};
use crate::{
    compare::{Case, Finding, Note, Outcome, Reason, judge, seal},
    verdict::Verdict,
};

#[test]
fn no_end_of_a_job_hides_a_reach() {
    let rules = rules(&json!({ "refuse": ["exec:az"], "allow_unseen": ["io_uring"] }));
    let mut recording = nothing();
    recording.reaches = Some(set(&["exec:/usr/bin/az"]));
    for (outcome, headline) in [
        (Outcome::Exited(0), "reach"),
        (Outcome::Exited(3), "reach, also: job-failed"),
        (Outcome::Signaled(9), "reach, also: job-failed"),
        (Outcome::CpuKilled, "reach, also: cpu-kill"),
        (
            Outcome::Interrupted(15),
            "reach, also: job-failed, incomplete",
        ),
        (
            Outcome::NotExecutable,
            "command not executable, also: reach",
        ),
    ] {
        let judgement = judge(&case(&recording, Some(&rules), outcome));
        assert_eq!(summary(&judgement), (headline, 120));
        let entry = "exec:/usr/bin/az".to_owned();
        assert_eq!(judgement.findings[0], Finding::Reach { entry });
    }
}

#[test]
fn a_sealed_reach_is_one_under_any_contract() {
    let mut recording = nothing();
    recording.reaches = Some(set(&["net:192.0.2.1:80"]));
    let refusing = rules(&json!({ "refuse": ["net:192.0.2.1:*"] }));
    let sealed = case(&recording, Some(&refusing), Outcome::Exited(1));
    let ledger = seal(&sealed, &judge(&sealed));
    assert_eq!(ledger.verdict, [Verdict::Reach, Verdict::JobFailed]);
    let widened = rules(&json!({ "allow_net": ["192.0.2.1:80"] }));
    let again = judge(&Case::of_ledger(&ledger, Some(&widened)));
    assert_eq!(again.exit_code, 120);
}

#[test]
fn a_reach_of_a_job_that_is_recorded_only_is_a_remark() {
    let mut recording = nothing();
    recording.reaches = Some(set(&["exec:/usr/bin/az"]));
    let judgement = judge(&case(&recording, None, Outcome::Exited(0)));
    assert_eq!(summary(&judgement), ("recorded", 0));
    let entry = "exec:/usr/bin/az".to_owned();
    assert_eq!(judgement.notes, [Note::Reached { entry }]);
}

#[test]
fn a_ledger_that_nobody_watched_for_is_not_complete() {
    let refusing = json!({ "refuse": ["exec:az"] });
    let mut recording = nothing();
    let judgement = judged(&recording, &refusing);
    assert_eq!(summary(&judgement), ("incomplete", 121));
    let reason = Reason::NotWatched;
    assert_eq!(judgement.findings, [Finding::Incomplete { reason }]);
    recording.reaches = Some(set(&[]));
    assert_eq!(summary(&judged(&recording, &refusing)), ("match", 0));
}
