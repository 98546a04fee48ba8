//! Build servers that ran before the job and worked for it: what they did was not recorded, and a reader should know.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::{cgroup::Member, leftover, look::Look};

/// Most processes that are looked at for one job.
const MOST: usize = 1024;

/// What is known of them so far.
#[derive(Debug, Default)]
pub struct Servers {
    /// Processes that were looked at, by their ids.
    asked: BTreeSet<u32>,
    notes: BTreeSet<String>,
}

impl Servers {
    /// A process that is no member of the job answered on a unix socket. The answer is what it is, when it is a build server that was
    /// not asked about before. It is looked at now: at the end it may be gone.
    pub fn answered(&mut self, look: &dyn Look, pid: u32) -> Option<Member> {
        if self.asked.len() >= MOST || !self.asked.insert(pid) {
            return None;
        }
        look.process(pid).filter(leftover::is_known)
    }

    /// Keeps a remark about a build server that was reached at an entry of `net`.
    pub fn reached(&mut self, server: &Member, entry: &str) {
        self.notes
            .extend(leftover::outside(server, &format!("`{entry}`")));
    }

    /// The job has ended and connected to these TCP ports of its own host: who listens there now is none of it.
    pub fn connected(&mut self, look: &dyn Look, ports: &HashMap<u64, BTreeSet<u16>>) {
        for (&netns, ports) in ports {
            for (port, member) in look.listeners(netns, ports) {
                let place = format!("port {port}");
                self.notes.extend(leftover::outside(&member, &place));
            }
        }
    }

    /// A sentence for each.
    #[must_use]
    pub fn notes(self) -> Vec<String> {
        self.notes.into_iter().collect()
    }
}
