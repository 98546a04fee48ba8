//! Facts about sockets.

use super::{Scene, Session, UNSEEN_SOCKET_FAMILY};
use crate::{
    event::{Dns, Inet, Socket, SocketOp, Top, Unix},
    loss,
    normalise::{self, Subject},
    resolve::Unresolved,
    seen::Op,
    sockets::{Destination, Known},
    told::What,
};

/// `ENOENT` (include/uapi/asm-generic/errno-base.h), as system calls return it.
const NO_ENTRY: i32 = -2;

impl Session {
    /// An inet address was used.
    pub(super) fn inet(&mut self, scene: Scene<'_>, inet: &Inet) -> (Op, What) {
        let known = Known {
            resolver: self.lookups.is_resolver(
                inet.netns,
                normalise::destination(inet.addr),
                inet.port,
            ),
            named: self
                .lookups
                .name(inet.netns, normalise::destination(inet.addr), scene.task)
                .cloned(),
        };
        let result = self
            .sockets
            .inet(&*self.look, inet, scene.task, &scene.moment, known);
        let destination = self.fit(result).flatten();
        let op = if inet.denied {
            Op::Denied
        } else {
            inet.op.into()
        };
        (op, destination.map_or(What::Nothing, What::Destination))
    }

    /// A packet between the job and a resolver. `None` when it asks for nothing.
    pub(super) fn dns(&mut self, scene: Scene<'_>, dns: Dns) -> Option<What> {
        let result = self.lookups.packet(dns, scene.task, &scene.moment);
        let taken = self.fit(result)?;
        if taken.lost {
            self.lose(loss::QUERIES);
        }
        taken.asked.map(What::Lookup)
    }

    /// A unix socket was connected or sent to.
    pub(super) fn unix(&mut self, scene: Scene<'_>, mut unix: Unix) -> (Op, What) {
        let op = if unix.connect { Op::Connect } else { Op::Send };
        if let Some(name) = unix.name.string.strip_prefix(b"\0") {
            let result = self
                .sockets
                .unix_abstract(name, op, unix.ret, &scene.moment);
            return (
                op,
                self.fit(result).map_or(What::Nothing, What::Destination),
            );
        }
        let missing = unix.ret == NO_ENTRY;
        if missing && scene.elsewhere {
            return (op, What::Nothing);
        }
        let end = unix.name.string.iter().position(|&byte| byte == 0);
        unix.name
            .string
            .truncate(end.unwrap_or(unix.name.string.len()));
        let peer = unix
            .peer
            .filter(|peer| !peer.broken && peer.top != Top::Internal);
        let name = match &peer {
            Some(peer) => self.kernel_path(scene, peer),
            None if scene.elsewhere => self.resolve(scene, &unix.name, true),
            // Where nothing is, there is no link to follow.
            None => match self.try_resolve(scene, &unix.name, !missing) {
                Err(Unresolved::Look) => self.try_resolve(scene, &unix.name, false),
                result => result,
            }
            .map_err(|why| {
                if !missing {
                    self.unresolved(scene, why);
                }
            })
            .ok(),
        };
        let Some(name) = name else {
            return (op, What::Nothing);
        };
        let Self {
            ground,
            look,
            sockets,
            ..
        } = self;
        let result = sockets.unix_path(&ground.names, &**look, name, op, unix.ret, &scene.moment);
        let destination = self.fit(result);
        if let Some(id) = destination
            && unix.peer_pid != 0
            && !self.processes.is_member(unix.peer_pid)
            && let Some(server) = self.servers.answered(&*self.look, unix.peer_pid)
        {
            let entry = self.sockets.entry(id, &|name| self.form(name));
            self.servers.reached(&server, &entry);
        }
        (op, destination.map_or(What::Nothing, What::Destination))
    }

    /// A socket of another family, or a raw one, was made or used.
    pub(super) fn socket(&mut self, scene: Scene<'_>, socket: &Socket) -> (Op, What) {
        let op = socket.op.into();
        let destination = match normalise::subject(socket) {
            Subject::Unknown => {
                self.unsee(UNSEEN_SOCKET_FAMILY, &scene.moment);
                return (op, What::Word(UNSEEN_SOCKET_FAMILY));
            }
            Subject::Raw { protocol, .. } if socket.op == SocketOp::Create => Destination::Raw {
                addr: None,
                protocol,
            },
            Subject::Raw {
                to: Some(addr),
                protocol,
            } if socket.op != SocketOp::Bind => Destination::Raw {
                addr: Some(addr),
                protocol,
            },
            Subject::Packet { index } => Destination::Packet(index.map(|index| {
                let name = self.look.interface(socket.netns, index);
                name.unwrap_or_else(|| index.to_string().into_bytes())
                    .into()
            })),
            Subject::Vsock {
                peer: Some((cid, port)),
            } if socket.op != SocketOp::Bind => Destination::Vsock { cid, port },
            Subject::Nothing | Subject::Raw { .. } | Subject::Vsock { .. } => {
                return (op, What::Nothing);
            }
        };
        let result = self.sockets.other(destination, op, &scene.moment);
        (
            op,
            self.fit(result).map_or(What::Nothing, What::Destination),
        )
    }
}
