//! What a session tells of each event, for the live stream: small when nobody listens, text only for those who do.

use std::collections::VecDeque;

use crate::{
    dns::lookups::LookupId,
    names::NameId,
    process::ImageId,
    seen::{Moment, Op},
    sockets::DestinationId,
};

/// Events kept for a reader who comes later.
const KEPT: usize = 1000;

/// Upon what something was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Nothing that has a name.
    Nothing,
    /// A file.
    Name(NameId),
    /// A destination.
    Destination(DestinationId),
    /// A name that a resolver is asked for.
    Lookup(LookupId),
    /// The program of the process itself.
    Program,
    /// Another process.
    Process(u32),
    /// A word.
    Word(&'static str),
}

/// One event as a session tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Counts from 1.
    pub seq: u64,
    /// A `KIND_` value of the wire format.
    pub kind: u16,
    /// Process id.
    pub pid: u32,
    /// When and by whom.
    pub moment: Moment,
    /// What was done.
    pub op: Op,
    /// Upon what.
    pub what: What,
}

/// The last events, oldest first.
#[derive(Debug, Default)]
pub struct Backlog(VecDeque<Told>);

impl Backlog {
    /// Keeps one more and forgets the oldest.
    pub fn push(&mut self, told: Told) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(told);
    }

    /// All that are kept.
    pub fn iter(&self) -> impl Iterator<Item = &Told> {
        self.0.iter()
    }

    /// Images that the text will need.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.0.iter().map(|told| told.moment.by)
    }
}
