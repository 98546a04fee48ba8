//! What threads have set out to do and the kernel has not said the outcome of yet.
//!
//! A thread attempts one thing at a time: the next attempt says that the one before has failed.

use hashbrown::HashMap;

use crate::{
    event::{Name, NameOp, Task},
    process::Ran,
};

/// More threads than this in the middle of a call at the same time are not followed.
const MOST: usize = 65_536;

/// One thread's attempts.
#[derive(Debug, Default)]
struct Attempt {
    tgid: u32,
    /// And whether its record was damaged.
    name: Option<(Name, bool)>,
    /// Scripts on the way to an interpreter.
    scripts: Vec<Ran>,
}

/// Every thread's attempts, by thread id.
#[derive(Debug, Default)]
pub(super) struct Attempts(HashMap<u32, Attempt>);

impl Attempts {
    /// A thread is about to change names; false when there is no room to remember that.
    #[must_use]
    pub(super) fn names(&mut self, task: &Task, name: Name, damaged: bool) -> bool {
        match self.of(task) {
            Some(attempt) => {
                attempt.name = Some((name, damaged));
                true
            }
            None => false,
        }
    }

    /// What a thread has attempted, when that was this operation, has succeeded; and whether its record was damaged.
    pub(super) fn done(&mut self, task: &Task, op: NameOp) -> Option<(Name, bool)> {
        let attempt = self.0.get_mut(&task.tid)?;
        let name = attempt.name.take();
        if attempt.scripts.is_empty() {
            self.0.remove(&task.tid);
        }
        name.filter(|(name, _)| name.op == op)
    }

    /// The kernel looks for what runs a script; `first` when that is the file that the call named. Without room the script is
    /// left to be found by its name.
    pub(super) fn script(&mut self, task: &Task, script: Ran, first: bool) {
        if let Some(attempt) = self.of(task) {
            if first {
                attempt.scripts.clear();
            }
            attempt.scripts.push(script);
        }
    }

    /// An interpreter runs, for a thread that had this id: the scripts on the way to it.
    pub(super) fn executed(&mut self, tid: u32) -> Vec<Ran> {
        let attempt = self.0.remove(&tid);
        attempt.map(|attempt| attempt.scripts).unwrap_or_default()
    }

    /// A process has ended: what its threads attempted has failed.
    pub(super) fn exited(&mut self, task: &Task) {
        if !self.0.is_empty() {
            self.0.retain(|_, attempt| attempt.tgid != task.tgid);
        }
    }

    fn of(&mut self, task: &Task) -> Option<&mut Attempt> {
        if self.0.len() >= MOST && !self.0.contains_key(&task.tid) {
            return None;
        }
        let attempt = self.0.entry(task.tid).or_default();
        attempt.tgid = task.tgid;
        Some(attempt)
    }
}
