//! What a job asked its resolvers, and which names their answers give to addresses. Pure.
//!
//! Only an answer to a query of this job counts, from the resolver that was asked, on the same socket, with the same number and
//! question. Everything else names nothing.

use std::{
    collections::{BTreeSet, VecDeque},
    net::IpAddr,
};

use capgate_common::{hostname::HostName, netpattern::reach::is_link_local};
use hashbrown::HashMap;

use super::{
    configured::Configured,
    message::{self, Kind, Message, Question},
    streams::Streams,
};
use crate::{
    event::{Dns, Flow, Task},
    names::Full,
    normalise::Transport,
    seen::{Moment, Op, Seen},
};

/// Port of a resolver.
pub const PORT: u16 = 53;
/// Most queries that wait for their answer; the oldest is then waited for no longer.
const MOST_ASKED: usize = 4096;

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// The resolver's address.
    pub resolver: IpAddr,
    /// Over TCP; else UDP.
    pub tcp: bool,
}

impl Source {
    /// What carries it.
    #[must_use]
    pub fn transport(self) -> Transport {
        if self.tcp {
            Transport::Tcp
        } else {
            Transport::Udp
        }
    }
}

/// A name that an address has for a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    /// The name that was asked for.
    pub name: HostName,
    /// Whose answer says so.
    pub source: Source,
}

/// A query that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Query {
    flow: Flow,
    id: u16,
    question: Question,
}

/// That an address is one of a name's.
#[derive(Clone, Debug)]
struct Answer {
    named: Named,
    /// Who asked; `None` when not known.
    by: Option<Task>,
    /// The higher the later.
    order: u64,
}

/// A name that was asked for.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// How it came about.
    pub seen: Seen,
    /// An answer came: for a question for addresses one that has some.
    pub answered: bool,
    /// Which resolvers were asked.
    pub sources: BTreeSet<Source>,
}

/// A name in [`Lookups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupId(u32);

/// What came of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The name asked for, of a query.
    pub asked: Option<LookupId>,
    /// Something is missing, or a query could not be understood.
    pub lost: bool,
}

/// All lookups of one job.
#[derive(Debug)]
pub struct Lookups {
    configured: Configured,
    /// Cookie of the network namespace that the job began in.
    netns: Option<u64>,
    streams: Streams,
    asked: HashMap<Query, Option<Task>>,
    asked_order: VecDeque<Query>,
    lookups: Vec<(HostName, Lookup)>,
    index: HashMap<HostName, u32>,
    answers: HashMap<IpAddr, Vec<Answer>>,
    /// Answers so far, in the order in which they came.
    order: u64,
    /// Members of `answers`, all addresses together.
    kept: usize,
    /// Most members of `lookups` and of `answers`.
    limit: usize,
}

impl Lookups {
    /// Nothing asked yet, by a job that began in the network namespace of this cookie. At most `limit` names and answers are kept.
    #[must_use]
    pub fn new(configured: Configured, netns: Option<u64>, limit: usize) -> Self {
        Self {
            configured,
            netns,
            streams: Streams::default(),
            asked: HashMap::new(),
            asked_order: VecDeque::new(),
            lookups: Vec::new(),
            index: HashMap::new(),
            answers: HashMap::new(),
            order: 0,
            kept: 0,
            limit,
        }
    }

    /// Cookie of the network namespace that the job began in, when known.
    #[must_use]
    pub fn netns(&self) -> Option<u64> {
        self.netns
    }

    /// Whether a destination is a resolver that the job is configured for.
    #[must_use]
    pub fn is_resolver(&self, netns: u64, addr: IpAddr, port: u16) -> bool {
        port == PORT && self.is_home(netns) && self.configured.resolvers.contains(&addr)
    }

    /// Addresses mean something else in another network namespace.
    fn is_home(&self, netns: u64) -> bool {
        self.netns == Some(netns)
    }

    /// Takes in a piece of a packet between the job and a resolver.
    ///
    /// # Errors
    /// When there is no room for what it says.
    pub fn packet(&mut self, dns: Dns, task: &Task, moment: &Moment) -> Result<Taken, Full> {
        let (flow, answer) = (dns.flow, dns.answer);
        if !self.is_resolver(flow.netns, flow.resolver, PORT) {
            return Ok(Taken::default());
        }
        let whole = self.streams.take(dns, moment.time_ns);
        let mut taken = Taken {
            asked: None,
            lost: whole.lost,
        };
        for bytes in whole.messages {
            match message::parse(&bytes) {
                Ok(message) if answer => self.answer(flow, message)?,
                Ok(message) if !message.response => {
                    if let Some(question) = message.question {
                        taken.asked = Some(self.query(flow, message.id, question, task, moment)?);
                    }
                }
                // Who reads an answer like this cannot be told; it names nothing.
                Err(_) if answer => {}
                Ok(_) | Err(_) => taken.lost = true,
            }
        }
        Ok(taken)
    }

    fn query(
        &mut self,
        flow: Flow,
        id: u16,
        question: Question,
        task: &Task,
        moment: &Moment,
    ) -> Result<LookupId, Full> {
        let source = source(flow);
        let index = match self.index.get(&question.name) {
            Some(&index) => {
                let (_, lookup) = &mut self.lookups[index as usize];
                lookup.seen.again(Op::Resolve, moment);
                lookup.sources.insert(source);
                index
            }
            None => {
                if self.lookups.len() >= self.limit {
                    return Err(Full);
                }
                let index = u32::try_from(self.lookups.len()).map_err(|_| Full)?;
                let lookup = Lookup {
                    seen: Seen::first(Op::Resolve, moment),
                    answered: false,
                    sources: BTreeSet::from([source]),
                };
                self.lookups.push((question.name.clone(), lookup));
                self.index.insert(question.name.clone(), index);
                index
            }
        };
        let query = Query { flow, id, question };
        let by = (task.tgid != 0).then_some(*task);
        if self.asked.insert(query.clone(), by).is_none() {
            self.asked_order.push_back(query);
        }
        while self.asked.len() > MOST_ASKED
            && let Some(oldest) = self.asked_order.pop_front()
        {
            self.asked.remove(&oldest);
        }
        Ok(LookupId(index))
    }

    fn answer(&mut self, flow: Flow, message: Message) -> Result<(), Full> {
        let (true, Some(question)) = (message.response, message.question) else {
            return Ok(());
        };
        let query = Query {
            flow,
            id: message.id,
            question,
        };
        let Some(by) = self.asked.remove(&query) else {
            return Ok(());
        };
        self.asked_order.retain(|asked| *asked != query);
        let Question { name, kind } = query.question;
        let for_addresses = matches!(kind, Kind::A | Kind::AAAA);
        if let Some(&index) = self.index.get(&name) {
            let (_, lookup) = &mut self.lookups[index as usize];
            lookup.answered |=
                message.rcode == 0 && (!for_addresses || !message.addresses.is_empty());
        }
        let named = Named {
            name,
            source: source(flow),
        };
        self.order += 1;
        for addr in message.addresses {
            let answers = self.answers.entry(addr).or_default();
            let known = answers
                .iter_mut()
                .find(|answer| answer.by == by && answer.named == named);
            match known {
                Some(answer) => answer.order = self.order,
                None if self.kept >= self.limit => return Err(Full),
                None => {
                    self.kept += 1;
                    answers.push(Answer {
                        named: named.clone(),
                        by,
                        order: self.order,
                    });
                }
            }
        }
        Ok(())
    }

    /// The name of an address for a task: of the latest answer to a query of the same thread that has it, else of the same process,
    /// else of anybody in the job.
    #[must_use]
    pub fn name(&self, netns: u64, addr: IpAddr, task: &Task) -> Option<&Named> {
        if !self.is_home(netns) || is_link_local(addr) {
            return None;
        }
        let answers = self.answers.get(&addr)?.iter();
        let best =
            answers.max_by_key(|answer| (closeness(answer.by.as_ref(), task), answer.order))?;
        Some(&best.named)
    }

    /// A name that was asked for.
    #[must_use]
    pub fn get(&self, id: LookupId) -> Option<&HostName> {
        self.lookups.get(id.0 as usize).map(|(name, _)| name)
    }

    /// All names that were asked for, in the order in which they first were.
    pub fn all(&self) -> impl Iterator<Item = (&HostName, &Lookup)> {
        self.lookups.iter().map(|(name, lookup)| (name, lookup))
    }

    /// Whether a name is just one of those that a C library tries for a shorter one, and another one of them says more: one of them
    /// got an answer and this one did not, or this one has a search domain behind it and the plain name was asked for as well.
    #[must_use]
    pub fn is_attempt(&self, name: &HostName) -> bool {
        let found = |name: &HostName| {
            let index = *self.index.get(name)?;
            self.lookups
                .get(index as usize)
                .map(|(_, lookup)| lookup.answered)
        };
        if found(name) != Some(false) {
            return false;
        }
        let search = &self.configured.search;
        let answered = |plain: &HostName| {
            let longer = search.iter().map(|domain| plain.within(domain));
            longer.into_iter().any(|name| found(&name) == Some(true))
        };
        let plain = search.iter().filter_map(|domain| name.without(domain));
        answered(name)
            || plain
                .into_iter()
                .any(|plain| found(&plain).is_some() || answered(&plain))
    }
}

/// How near a task is to another one: 2 for the same thread, 1 for the same process.
#[must_use]
pub fn closeness(by: Option<&Task>, task: &Task) -> u8 {
    match by {
        Some(by) if by == task => 2,
        Some(by) if (by.tgid, by.start_ns) == (task.tgid, task.start_ns) => 1,
        _ => 0,
    }
}

fn source(flow: Flow) -> Source {
    Source {
        resolver: flow.resolver,
        tcp: flow.tcp,
    }
}

#[cfg(test)]
mod tests;
