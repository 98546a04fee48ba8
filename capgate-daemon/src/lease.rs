//! The right to end a job, and its way from there into the store: wait, kill, close the recording, judge, store.

use std::{sync::Arc, time::Duration};

use capgate_common::{
    compare::{self, Case, Judgement, Note},
    protocol::{Outcome, Sealed},
    verdict::Verdict,
};

use crate::{
    cgroup::{JobCgroup, KILL_PATIENCE, Member},
    id::JobId,
    job::{Job, Phase, shown},
    jobs::{Jobs, Slot},
    leftover,
    recorder::Closing,
    refusal::JobError,
};

/// How long processes that outlive the command may go on before they are killed.
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(5);

/// The time without a CPU that is worth a word: one part in so many of the job's time.
const SMALLEST_SHARE: u32 = 20;

/// Loss: processes of the job could not be killed, and what they do is not recorded.
const LOST_UNKILLABLE: &str = "unkillable";
/// Loss: the CPU time of the job could not be read.
const LOST_CPU: &str = "cpu";

/// How a job comes to its end.
#[derive(Debug)]
pub enum Ending {
    /// The client says that the command has ended.
    Finished(Outcome),
    /// The lease is gone: why, as the end of a sentence that begins with "the job was killed because".
    Abandoned(String),
}

/// The right to end a job. When it goes without that, the job is killed and sealed as lost.
pub struct Lease {
    jobs: Arc<Jobs>,
    job: Arc<Job>,
    _slot: Slot,
    ended: bool,
}

impl Lease {
    /// A lease on a job that has begun.
    pub(crate) fn new(jobs: Arc<Jobs>, job: Arc<Job>, slot: Slot) -> Self {
        Self {
            jobs,
            job,
            _slot: slot,
            ended: false,
        }
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Brings the job to its end, and gives its ledger.
    ///
    /// # Errors
    /// When it could not be sealed: then it is lost.
    pub fn end(mut self, ending: &Ending) -> Result<Sealed, JobError> {
        self.conclude(ending)
    }

    /// Brings a job to its end: waits, kills, closes the recording, judges, stores.
    fn seal(&self, ending: &Ending) -> Result<Sealed, JobError> {
        let job = &*self.job;
        if !job.begin_sealing() {
            return Err(JobError::GivenUp(job.id.clone()));
        }
        let mut notes = Vec::new();
        let mut lost = Vec::new();
        let leftovers = self.empty(ending, &mut lost)?;
        notes.extend(leftover::note(&leftovers));
        let stalled_usec = job.cgroup.stalled_usec();
        let user_usec = job.cgroup.user_usec().unwrap_or_else(|error| {
            tracing::error!(job = %job.id, %error, "the job's CPU time is lost");
            lost.push((LOST_CPU, 1));
            0
        });
        // Nothing of the job runs any more; what it did is in its ring.
        remove(&job.id, &job.cgroup);
        let Some((recording, entered)) = job.take_recording() else {
            return Err(JobError::GivenUp(job.id.clone()));
        };
        let ran = matches!(
            ending,
            Ending::Finished(Outcome::Exited(_) | Outcome::Signaled(_))
        );
        if ran && entered.is_none() {
            return Err(JobError::NeverEntered(job.id.clone()));
        }
        let (declaration, skips) = job.skipped();
        lost.push(skips.lost());
        let mut recorded = recording.close(Closing {
            user_usec,
            entered,
            leftovers,
            lost,
        })?;
        skips.seal(declaration, &mut recorded.recording.suite);
        recorded.evidence.skips = skips.evidence();
        notes.append(&mut recorded.notes);
        let outcome = outcome(job, ending, &mut notes);
        let addresses = recorded.evidence.addresses();
        let case = Case {
            recording: &recorded.recording,
            rules: recorded.rules.as_deref(),
            outcome,
            require_race_free: self.jobs.config().require_race_free,
            ignored: Some(&recorded.ignored),
            addresses: Some(&addresses),
        };
        let judgement = compare::judge(&case);
        let wall = job.began.elapsed();
        if is_about_cpu(&judgement) {
            notes.extend(stalled_usec.and_then(|stalled| contention(stalled, wall)));
        }
        let sealed = Sealed {
            job: job.id.to_string(),
            ledger: compare::seal(&case, &judgement),
            evidence: recorded.evidence,
            contract: job.start.contract.clone(),
            contract_source: job.start.contract_source.clone(),
            exit_code: judgement.exit_code,
            judgement,
            outcome: match ending {
                Ending::Finished(outcome) => Some(*outcome),
                Ending::Abandoned(_) => None,
            },
            notes,
            argv: shown(&job.start.argv),
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        };
        let mut record = job.record(Some(user_usec));
        let phase = match ending {
            Ending::Finished(_) => Phase::Done,
            Ending::Abandoned(_) => Phase::Lost,
        };
        phase.word().clone_into(&mut record.info.state);
        record.info.verdict = sealed
            .ledger
            .verdict
            .iter()
            .map(ToString::to_string)
            .collect();
        record.info.events = sealed.evidence.counts.received;
        self.jobs.store().seal(&job.id, &record, &sealed)?;
        if job.end(phase, record.info.verdict) {
            Ok(sealed)
        } else {
            Err(JobError::GivenUp(job.id.clone()))
        }
    }

    /// Waits until nothing of the job runs, and kills what does not end by itself.
    fn empty(
        &self,
        ending: &Ending,
        lost: &mut Vec<(&'static str, u64)>,
    ) -> Result<Vec<Member>, JobError> {
        let job = &*self.job;
        let by_itself = matches!(ending, Ending::Finished(outcome) if !matches!(outcome, Outcome::Interrupted(_)));
        let mut leftovers = Vec::new();
        if by_itself && !job.cgroup.wait_empty(LEFTOVER_PATIENCE)? {
            leftovers = job.cgroup.members()?;
            let used = job.user_usec().unwrap_or(0) / 1_000_000;
            if !leftovers.is_empty() && job.cpu_budget.is_some_and(|budget| used > budget) {
                job.end_over_budget();
            }
        }
        job.cgroup.kill()?;
        if !job.cgroup.wait_empty(KILL_PATIENCE)? {
            let stuck = job.cgroup.pids()?.len();
            tracing::error!(job = %job.id, stuck, "processes of the job cannot be killed");
            lost.push((LOST_UNKILLABLE, stuck.max(1) as u64));
        }
        Ok(leftovers)
    }

    fn conclude(&mut self, ending: &Ending) -> Result<Sealed, JobError> {
        self.ended = true;
        let result = self.seal(ending);
        self.jobs.conclude(&self.job, &result);
        result
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.ended {
            let why = Ending::Abandoned("its client went away".to_owned());
            // It is in the log, and nobody else is left to be told.
            let _logged = self.conclude(&why);
        }
    }
}

/// Whether a reader of a judgement thinks about the CPU budget.
fn is_about_cpu(judgement: &Judgement) -> bool {
    let over = [Verdict::Cpu, Verdict::CpuKill];
    let close = |note: &Note| matches!(note, Note::LittleHeadRoom { .. });
    judgement.verdict.iter().any(|it| over.contains(it)) || judgement.notes.iter().any(close)
}

/// A note about a host on which the job got no CPU for a part of its time that is worth a word.
fn contention(stalled_usec: u64, wall: Duration) -> Option<String> {
    let stalled = Duration::from_micros(stalled_usec);
    (stalled * SMALLEST_SHARE > wall).then(|| {
        format!(
            "the job wanted to run and got no CPU for {:.1} s of {:.1} s (cpu.pressure): the host was busy with something else, which makes \
             CPU time longer too",
            stalled.as_secs_f64(),
            wall.as_secs_f64()
        )
    })
}

/// How the command ended in the end, with notes for what the client does not know.
fn outcome(job: &Job, ending: &Ending, notes: &mut Vec<String>) -> compare::Outcome {
    if job.was_over_budget() {
        notes.push("the job was stopped because it used up its CPU budget".to_owned());
        return compare::Outcome::CpuKilled;
    }
    match ending {
        Ending::Abandoned(why) => {
            notes.push(format!("the job was killed because {why}"));
            compare::Outcome::Abandoned
        }
        Ending::Finished(outcome) => {
            let by = job.stopped_by();
            if let Some(who) = &by {
                notes.push(format!("the job was stopped by {who}"));
            }
            match (by, outcome) {
                (Some(_), Outcome::Exited(_) | Outcome::Signaled(_)) => {
                    compare::Outcome::Interrupted(libc::SIGKILL)
                }
                (_, outcome) => (*outcome).into(),
            }
        }
    }
}

/// Removes a job's cgroup; what remains is in the log.
pub(crate) fn remove(id: &JobId, cgroup: &JobCgroup) {
    if let Err(error) = cgroup.remove() {
        tracing::error!(job = %id, %error, "the job's cgroup stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_host_is_worth_a_word_when_the_job_felt_it() {
        let wall = Duration::from_secs(10);
        assert_eq!(contention(500_000, wall), None);
        let note = contention(3_240_000, wall).unwrap_or_default();
        assert!(note.starts_with("the job wanted to run and got no CPU for 3.2 s of 10.0 s"));
    }
}
