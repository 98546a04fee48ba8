//! Destinations of one job, and which of them count when it has ended.
//!
//! Everything is decided at the end, since a listener may come up after the first try to reach it, and a datagram may follow
//! its connect later.

use std::{collections::BTreeSet, net::IpAddr};

use capgate_common::{
    address::{Host, NetEntry},
    netpattern::reach::is_link_local,
    pathform::Form,
};
use hashbrown::{HashMap, HashSet};

use crate::{
    ambient,
    dns::lookups::{Named, closeness},
    event::{Inet, InetOp, Task},
    look::{At, Look},
    names::{Full, NameId, Names},
    normalise::{Channel, Transport, channel, destination},
    process::ImageId,
    seen::{Moment, Op, Ops, Seen},
};

/// A destination as records tell it apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An address and port.
    Port {
        /// Cookie of the network namespace.
        netns: u64,
        /// What carries it.
        transport: Transport,
        /// Address.
        addr: IpAddr,
        /// Interface index of an address that needs one, else 0.
        scope: u32,
        /// Port.
        port: u16,
        /// Which of [`Sockets`]' names the address had for who reached it.
        named: Option<u32>,
    },
    /// A raw IP socket, or a protocol without ports.
    Raw {
        /// Address; `None`: just the socket.
        addr: Option<IpAddr>,
        /// `IPPROTO_` number.
        protocol: u16,
    },
    /// A unix socket by its path.
    UnixPath(NameId),
    /// A unix socket by its abstract name, without the leading NUL.
    UnixAbstract(Box<[u8]>),
    /// A virtual socket.
    Vsock {
        /// Context id.
        cid: u32,
        /// Port.
        port: u32,
    },
    /// A packet socket on an interface; `None`: just the socket, or on all.
    Packet(Option<Box<[u8]>>),
}

/// A destination in [`Sockets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DestinationId(u32);

/// What is known about a destination.
struct Reached {
    destination: Destination,
    /// Name of the interface behind `scope`.
    zone: Option<Vec<u8>>,
    seen: Seen,
    /// Unix: the path was there.
    exists: bool,
    /// Unix: a connection was made.
    connected: bool,
    /// Unix: on the list of plumbing, and root owns it.
    plumbing: bool,
    /// Inet: a resolver that the job is configured for.
    resolver: bool,
    /// Who connected or sent last, and the when of it: the higher the later.
    last: (Option<Task>, u64),
}

/// What lookups say of an inet destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// It is a resolver that the job is configured for.
    pub resolver: bool,
    /// The name that its address has for who reaches it.
    pub named: Option<Named>,
}

/// A socket of the job that others can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bound {
    netns: u64,
    transport: Transport,
    addr: IpAddr,
    port: u16,
}

/// All destinations of one job.
pub struct Sockets {
    reached: Vec<Reached>,
    index: HashMap<Destination, u32>,
    /// Destinations under several names, by what they are without.
    same: HashMap<Destination, Vec<u32>>,
    names: Vec<Named>,
    /// Where each of `names` stands.
    named: HashMap<Named, u32>,
    /// Connects and addressed datagrams so far.
    order: u64,
    bound: HashSet<Bound>,
    /// Unix sockets that the job bound, at every name that they had.
    unix_bound: HashSet<NameId>,
    abstract_bound: HashSet<Box<[u8]>>,
    /// Where the daemon itself listens.
    daemon: Option<OwnSocket>,
    /// Most members of `reached` and of `bound`.
    limit: usize,
}

/// The daemon's own socket, at which a job may ask what its host lacks. To do that is plumbing.
#[derive(Clone, Debug)]
pub struct OwnSocket {
    /// Where it is.
    pub path: Vec<u8>,
    /// Device and inode, as [`Look::identity`] has them: another socket in its place is another destination.
    pub identity: (u32, u64),
}

impl OwnSocket {
    fn is_at(&self, path: &[u8], look: &dyn Look) -> bool {
        self.path == path && look.identity(path) == Some(self.identity)
    }
}

/// `ENOENT` and `ENOTDIR` (include/uapi/asm-generic/errno-base.h), as system calls return them.
const NO_ENTRY: i32 = -2;
const NOT_DIRECTORY: i32 = -20;

impl Sockets {
    /// Nothing reached yet; at most `limit` destinations are kept apart.
    #[must_use]
    pub fn new(limit: usize, daemon: Option<OwnSocket>) -> Self {
        Self {
            reached: Vec::new(),
            index: HashMap::new(),
            same: HashMap::new(),
            names: Vec::new(),
            named: HashMap::new(),
            order: 0,
            bound: HashSet::new(),
            unix_bound: HashSet::new(),
            abstract_bound: HashSet::new(),
            daemon,
            limit,
        }
    }

    /// Images that evidence needs.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.reached.iter().map(|reached| reached.seen.by)
    }

    fn reach(
        &mut self,
        destination: Destination,
        op: Op,
        moment: &Moment,
    ) -> Result<DestinationId, Full> {
        if let Some(&index) = self.index.get(&destination) {
            self.reached[index as usize].seen.again(op, moment);
            return Ok(DestinationId(index));
        }
        if self.reached.len() >= self.limit {
            return Err(Full);
        }
        let index = u32::try_from(self.reached.len()).map_err(|_| Full)?;
        self.index.insert(destination.clone(), index);
        self.reached.push(Reached {
            destination,
            zone: None,
            seen: Seen::first(op, moment),
            exists: false,
            connected: false,
            plumbing: false,
            resolver: false,
            last: (None, 0),
        });
        Ok(DestinationId(index))
    }

    fn bind(&mut self, bound: Bound) -> Result<(), Full> {
        if self.bound.len() >= self.limit && !self.bound.contains(&bound) {
            return Err(Full);
        }
        self.bound.insert(bound);
        Ok(())
    }

    /// An inet record; the answer is the destination, unless the record is about the job's own socket.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn inet(
        &mut self,
        look: &dyn Look,
        inet: &Inet,
        task: &Task,
        moment: &Moment,
        known: Known,
    ) -> Result<Option<DestinationId>, Full> {
        let netns = inet.netns;
        let op = inet.op.into();
        if matches!(inet.op, InetOp::Listen | InetOp::Bind) {
            if let Channel::Port(transport) = channel(inet) {
                let addr = inet.addr.to_canonical();
                self.bind(Bound {
                    netns,
                    transport,
                    addr,
                    port: inet.port,
                })?;
            }
            return Ok(None);
        }
        let denied = if inet.denied {
            Ops::one(Op::Denied)
        } else {
            Ops::default()
        };
        let addr = destination(inet.addr);
        let transport = match channel(inet) {
            Channel::Raw(protocol) => {
                let to = Destination::Raw {
                    addr: Some(addr),
                    protocol,
                };
                let id = self.reach(to, op, moment)?;
                self.reached[id.0 as usize].seen.ops.add(denied);
                return Ok(Some(id));
            }
            Channel::Port(transport) => transport,
        };
        if inet.op == InetOp::Egress {
            // The kernel gave the socket a port when it sent: answers come there.
            let addr = inet.local.to_canonical();
            self.bind(Bound {
                netns,
                transport,
                addr,
                port: inet.local_port,
            })?;
        }
        let scope = if is_link_local(addr) {
            inet.scope_id
        } else {
            0
        };
        let nameless = Destination::Port {
            netns,
            transport,
            addr,
            scope,
            port: inet.port,
            named: None,
        };
        let before = self.same.get(&nameless).map_or(&[][..], Vec::as_slice);
        let id = match self.nearest(before, task) {
            // A packet belongs to the connect or the call that it came from, and has the name that the address had then.
            Some(id) if inet.op == InetOp::Egress => {
                self.reached[id.0 as usize].seen.again(op, moment);
                id
            }
            _ => {
                let named = known.named.map(|named| self.intern(named)).transpose()?;
                let id = self.reach(nameless.with_name(named), op, moment)?;
                let same = self.same.entry(nameless).or_default();
                if !same.contains(&id.0) {
                    same.push(id.0);
                }
                id
            }
        };
        self.order += 1;
        let reached = &mut self.reached[id.0 as usize];
        reached.seen.ops.add(denied);
        reached.resolver |= known.resolver;
        if inet.op != InetOp::Egress {
            reached.last = (Some(*task), self.order);
        }
        if scope != 0 && reached.zone.is_none() {
            // Looked up now: the interface may be gone at the end. A number stands for one that has no name here.
            let name = look.interface(netns, scope);
            reached.zone = Some(name.unwrap_or_else(|| scope.to_string().into_bytes()));
        }
        Ok(Some(id))
    }

    /// Of destinations that differ in their names, the one that the same thread reached last, else the same process, else anybody.
    fn nearest(&self, among: &[u32], task: &Task) -> Option<DestinationId> {
        let near = |index: &u32| {
            let (by, order) = self.reached[*index as usize].last;
            (closeness(by.as_ref(), task), order)
        };
        among.iter().copied().max_by_key(near).map(DestinationId)
    }

    /// The number of a name.
    fn intern(&mut self, named: Named) -> Result<u32, Full> {
        if let Some(&known) = self.named.get(&named) {
            return Ok(known);
        }
        let number = u32::try_from(self.names.len()).map_err(|_| Full)?;
        self.names.push(named.clone());
        self.named.insert(named, number);
        Ok(number)
    }

    /// A unix socket was bound to a path.
    pub fn unix_bound(&mut self, name: NameId) {
        self.unix_bound.insert(name);
    }

    /// A unix socket was bound to an abstract name, given without the leading NUL.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn abstract_bound(&mut self, name: &[u8]) -> Result<(), Full> {
        if self.abstract_bound.len() >= self.limit {
            return Err(Full);
        }
        self.abstract_bound.insert(name.into());
        Ok(())
    }

    /// A bound socket may have got another name.
    pub fn renamed(&mut self, from: NameId, to: NameId) {
        if self.unix_bound.contains(&from) {
            self.unix_bound.insert(to);
        }
    }

    /// A unix socket was connected or sent to by path. `ret` is what the call returned.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn unix_path(
        &mut self,
        names: &Names,
        look: &dyn Look,
        name: NameId,
        op: Op,
        ret: i32,
        moment: &Moment,
    ) -> Result<DestinationId, Full> {
        let id = self.reach(Destination::UnixPath(name), op, moment)?;
        let reached = &mut self.reached[id.0 as usize];
        let exists = !matches!(ret, NO_ENTRY | NOT_DIRECTORY);
        if exists && !reached.exists {
            let path = names.bytes(name);
            let own = self
                .daemon
                .as_ref()
                .is_some_and(|own| own.is_at(&path, look));
            let ambient = || ambient::is_ambient(&path) && look.at(&path) == At::Other { uid: 0 };
            reached.plumbing = own || ambient();
        }
        reached.exists |= exists;
        reached.connected |= op == Op::Connect && ret >= 0;
        Ok(id)
    }

    /// A unix socket was connected or sent to by abstract name, given without the leading NUL.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn unix_abstract(
        &mut self,
        name: &[u8],
        op: Op,
        ret: i32,
        moment: &Moment,
    ) -> Result<DestinationId, Full> {
        let id = self.reach(Destination::UnixAbstract(name.into()), op, moment)?;
        let reached = &mut self.reached[id.0 as usize];
        reached.exists = true;
        reached.connected |= op == Op::Connect && ret >= 0;
        Ok(id)
    }

    /// A destination of another family was used, or a socket of one made.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn other(
        &mut self,
        destination: Destination,
        op: Op,
        moment: &Moment,
    ) -> Result<DestinationId, Full> {
        self.reach(destination, op, moment)
    }

    /// The TCP ports of loopback addresses that the job connected to, by network namespace.
    #[must_use]
    pub fn local_ports(&self) -> HashMap<u64, BTreeSet<u16>> {
        let mut ports: HashMap<u64, BTreeSet<u16>> = HashMap::new();
        for reached in &self.reached {
            if let Destination::Port {
                netns,
                transport: Transport::Tcp,
                addr,
                port,
                ..
            } = reached.destination
                && addr.is_loopback()
            {
                ports.entry(netns).or_default().insert(port);
            }
        }
        ports
    }

    /// The text of a destination's entry. `form` writes paths.
    #[must_use]
    pub fn entry(&self, id: DestinationId, form: &dyn Fn(NameId) -> Option<Form>) -> String {
        let reached = self.reached.get(id.0 as usize);
        reached
            .and_then(|reached| {
                let by_name = self.by_name(reached);
                by_name.or_else(|| entry(reached, form))
            })
            .map_or_else(String::new, |entry| entry.to_string())
    }

    /// The entry of a destination that has a name.
    fn by_name(&self, reached: &Reached) -> Option<NetEntry> {
        let Destination::Port { port, named, .. } = reached.destination else {
            return None;
        };
        if reached.resolver {
            return Some(NetEntry::Resolver);
        }
        let named = self.names.get(named? as usize)?;
        Some(NetEntry::Name {
            name: named.name.clone(),
            port,
        })
    }
}

impl Destination {
    /// The same under another name.
    fn with_name(&self, name: Option<u32>) -> Self {
        let mut destination = self.clone();
        if let Self::Port { named, .. } = &mut destination {
            *named = name;
        }
        destination
    }
}

/// The entry of a destination by its address.
fn entry(reached: &Reached, form: &dyn Fn(NameId) -> Option<Form>) -> Option<NetEntry> {
    Some(match &reached.destination {
        Destination::Port { addr, port, .. } => {
            let host = match (addr, &reached.zone) {
                (IpAddr::V6(addr), Some(zone)) => Host::scoped(*addr, zone),
                _ => Host::new(*addr),
            };
            NetEntry::Inet { host, port: *port }
        }
        &Destination::Raw { addr, protocol } => NetEntry::Raw {
            host: addr.map(Host::new),
            protocol,
        },
        Destination::UnixPath(name) => NetEntry::unix_path(&form(*name)?),
        Destination::UnixAbstract(name) => NetEntry::unix_abstract(name),
        &Destination::Vsock { cid, port } => NetEntry::Vsock { cid, port },
        Destination::Packet(Some(interface)) => NetEntry::packet(interface),
        Destination::Packet(None) => NetEntry::Packet { interface: None },
    })
}

pub mod standing;
#[cfg(test)]
mod tests;
