//! Stands in for the resolvers of one job: what an answer names may be reached before the job has the answer.
//!
//! It listens on loopback addresses of the job's network namespace, where the kernel redirects the job's queries to, and asks the
//! resolvers from there. Answers pass unchanged.

use std::{
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    os::unix::net::UnixStream,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use crate::netns;

mod datagrams;
mod streams;

/// Port of a resolver.
pub const PORT: u16 = 53;
/// Tries to find a port that is free for UDP and TCP alike.
const TRIES: usize = 32;

/// What the forwarder asks of those who know the job.
pub trait Gate: Send + Sync {
    /// Whether it was a socket of the job that sent something to the stand-in at `to` from port `from`.
    fn is_asker(&self, to: SocketAddr, from: u16, is_tcp: bool) -> bool;

    /// Lets the job reach what a message of a resolver names. False when that cannot be done: then the job must not have it.
    fn let_through(&self, answer: &[u8]) -> bool;
}

/// Where a resolver is stood in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// The resolver.
    pub resolver: IpAddr,
    /// The port, on the loopback address of the resolver's family.
    pub port: u16,
}

/// Sockets of one stand-in.
struct Seat {
    resolver: SocketAddr,
    at: SocketAddr,
    datagrams: UdpSocket,
    streams: TcpListener,
}

/// A forwarder whose sockets are there, and that does not serve yet.
pub struct Ready {
    stand_ins: Vec<StandIn>,
    begin: mpsc::Sender<Arc<dyn Gate>>,
    thread: JoinHandle<()>,
    stop: UnixStream,
}

/// A forwarder that serves. It ends when this is dropped.
pub struct Forwarder {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Makes the sockets, in the network namespace of a process.
///
/// # Errors
/// When the namespace or its loopback interface does not allow it.
pub fn prepare(client: i32, resolvers: &[IpAddr]) -> io::Result<Ready> {
    let there = netns::open(client)?;
    let (stop, stopped) = UnixStream::pair()?;
    let (tell, told) = mpsc::channel();
    let (begin, begun) = mpsc::channel();
    let resolvers = resolvers.to_vec();
    let thread = thread::Builder::new()
        .name("forwarder".to_owned())
        .spawn(move || {
            let seats = seats(there, &resolvers);
            let (seats, found) = match seats {
                Ok(seats) => {
                    let found = seats.iter().map(Seat::stand_in).collect();
                    (seats, Ok(found))
                }
                Err(error) => (Vec::new(), Err(error)),
            };
            // When nobody listens the job does not begin, and there is nothing to serve.
            if tell.send(found).is_ok()
                && let Ok(gate) = begun.recv()
            {
                datagrams::serve(&seats, &stopped, &gate);
            }
        })?;
    let stand_ins = told
        .recv()
        .map_err(|_| io::Error::other("the forwarder's thread ended"))??;
    Ok(Ready {
        stand_ins,
        begin,
        thread,
        stop,
    })
}

impl Ready {
    /// Where it listens.
    #[must_use]
    pub fn stand_ins(&self) -> &[StandIn] {
        &self.stand_ins
    }

    /// Serves from now on.
    #[must_use]
    pub fn serve(self, gate: Arc<dyn Gate>) -> Forwarder {
        // A thread that has ended answers nothing, and the job's lookups fail.
        let _ended = self.begin.send(gate);
        Forwarder {
            stop: Some(self.stop),
            thread: Some(self.thread),
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the forwarder of a job panicked");
        }
    }
}

fn seats(there: Option<File>, resolvers: &[IpAddr]) -> io::Result<Vec<Seat>> {
    netns::enter(there)?;
    resolvers
        .iter()
        .map(|&resolver| Seat::new(resolver))
        .collect()
}

impl Seat {
    fn new(resolver: IpAddr) -> io::Result<Self> {
        let loopback = match resolver {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        let mut taken = io::Error::other("no port is free");
        for _ in 0..TRIES {
            let streams = TcpListener::bind((loopback, 0))?;
            let at = streams.local_addr()?;
            match UdpSocket::bind(at) {
                Ok(datagrams) => {
                    // Binding works with the interface down as well; getting there does not.
                    UdpSocket::bind((loopback, 0))?.connect(at)?;
                    streams.set_nonblocking(true)?;
                    datagrams.set_nonblocking(true)?;
                    return Ok(Self {
                        resolver: SocketAddr::new(resolver, PORT),
                        at,
                        datagrams,
                        streams,
                    });
                }
                Err(error) => taken = error,
            }
        }
        Err(taken)
    }

    fn stand_in(&self) -> StandIn {
        StandIn {
            resolver: self.resolver.ip(),
            port: self.at.port(),
        }
    }
}

#[cfg(test)]
mod tests;
