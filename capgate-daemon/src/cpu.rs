//! The CPU budget of running jobs: one thread looks at all of them, no more often than the budget can matter.
//!
//! A job that is [`GRACE_SEC`] seconds over its budget gets SIGXCPU, and is killed [`MERCY`] later.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use crate::job::Job;

/// User CPU seconds over the budget before the job is told.
const GRACE_SEC: u64 = 5;
/// Wall time between the signal and the kill.
const MERCY: Duration = Duration::from_secs(1);
/// The longest time between two looks: the number of CPUs may change.
const LONGEST: Duration = Duration::from_millis(500);
/// The shortest.
const SHORTEST: Duration = Duration::from_millis(50);

/// What is to be done about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Look again after this time.
    Wait(Duration),
    /// Send SIGXCPU.
    Signal,
    /// Kill.
    Kill,
}

/// How far it has come with one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Within,
    /// SIGXCPU was sent at this time.
    Signalled(Instant),
}

/// The decision, from facts alone.
fn decide(stage: Stage, budget_sec: u64, user_usec: u64, now: Instant, cpus: u32) -> Step {
    match stage {
        Stage::Signalled(at) => match MERCY.checked_sub(now.saturating_duration_since(at)) {
            Some(left) if !left.is_zero() => Step::Wait(left),
            _ => Step::Kill,
        },
        Stage::Within => {
            let limit = budget_sec
                .saturating_add(GRACE_SEC)
                .saturating_mul(1_000_000);
            match limit.checked_sub(user_usec) {
                // All CPUs together cannot use up what is left in less time than this.
                Some(left) if left > 0 => Step::Wait(
                    Duration::from_micros(left / u64::from(cpus.max(1))).clamp(SHORTEST, LONGEST),
                ),
                _ => Step::Signal,
            }
        }
    }
}

struct Watched {
    job: Weak<Job>,
    budget_sec: u64,
    stage: Stage,
    next: Instant,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    watched: Vec<Watched>,
    ended: bool,
}

/// The watch. Ends with its thread when dropped.
pub struct CpuWatch {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl CpuWatch {
    /// Starts the watch.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("cpu-watch".to_owned())
            .spawn(move || run(&own))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Watches a job until it is over.
    pub fn watch(&self, job: &Arc<Job>, budget_sec: u64) {
        let mut inner = self
            .shared
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        inner.watched.push(Watched {
            job: Arc::downgrade(job),
            budget_sec,
            stage: Stage::Within,
            next: Instant::now(),
        });
        self.shared.changed.notify_one();
    }
}

impl Drop for CpuWatch {
    fn drop(&mut self) {
        self.shared
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It panicked, and has said so.
            let _panicked = thread.join();
        }
    }
}

/// The machine's CPUs: the job may use all of them, whatever the daemon itself is confined to.
fn online_cpus() -> u32 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN)
        .ok()
        .flatten()
        .and_then(|count| u32::try_from(count).ok())
        .unwrap_or(1)
}

fn run(shared: &Shared) {
    let cpus = online_cpus();
    let mut inner = shared.jobs.lock().unwrap_or_else(PoisonError::into_inner);
    while !inner.ended {
        let now = Instant::now();
        inner
            .watched
            .retain_mut(|watched| now < watched.next || look(watched, now, cpus));
        let next = inner.watched.iter().map(|watched| watched.next).min();
        inner = match next {
            None => shared
                .changed
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner),
            Some(next) => {
                let wait = next.saturating_duration_since(Instant::now());
                shared
                    .changed
                    .wait_timeout(inner, wait)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
    }
}

/// Looks at one job; false when it need not be watched any more.
fn look(watched: &mut Watched, now: Instant, cpus: u32) -> bool {
    let Some(job) = watched.job.upgrade().filter(|job| !job.is_over()) else {
        return false;
    };
    let Some(user_usec) = job.user_usec() else {
        return false;
    };
    match decide(watched.stage, watched.budget_sec, user_usec, now, cpus) {
        Step::Wait(time) => watched.next = now + time,
        Step::Signal => {
            job.over_budget();
            watched.stage = Stage::Signalled(now);
            watched.next = now + MERCY;
        }
        Step::Kill => {
            job.kill_over_budget();
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stage: Stage, user_ms: u64, expect: Step) {
        let step = decide(stage, 3, user_ms * 1000, Instant::now(), 4);
        assert_eq!(step, expect, "{stage:?} at {user_ms} ms");
    }

    #[test]
    fn a_job_is_told_five_seconds_over_its_budget_and_not_before() {
        check(Stage::Within, 0, Step::Wait(LONGEST));
        check(Stage::Within, 7_600, Step::Wait(Duration::from_millis(100)));
        check(Stage::Within, 7_999, Step::Wait(SHORTEST));
        check(Stage::Within, 8_000, Step::Signal);
        check(Stage::Within, 99_000, Step::Signal);
    }

    #[test]
    fn it_is_killed_a_second_later() {
        let now = Instant::now();
        let ago = |ms| Stage::Signalled(now - Duration::from_millis(ms));
        let step = |stage| decide(stage, 3, 9_000_000, now, 4);
        assert_eq!(step(ago(0)), Step::Wait(MERCY));
        assert_eq!(step(ago(900)), Step::Wait(Duration::from_millis(100)));
        assert_eq!(step(ago(1_000)), Step::Kill);
    }

    #[test]
    fn a_budget_without_end_does_not_overflow() {
        let step = decide(Stage::Within, u64::MAX, u64::MAX - 1, Instant::now(), 1);
        assert_eq!(step, Step::Wait(SHORTEST));
    }
}
