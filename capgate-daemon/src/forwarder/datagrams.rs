//! Queries over UDP, one socket to the resolver for each; and the loop that everything of a forwarder waits in.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Gate, Seat, streams::Streams};
use crate::dns::message::{self, Message};

/// Most queries that wait for an answer; then the oldest waits no longer.
const MOST: usize = 512;
/// How long an answer is waited for. A client asks again sooner.
const PATIENCE: Duration = Duration::from_secs(15);
/// Largest datagram.
const LARGEST: usize = 65_535;
/// Bytes of a message's header (RFC 1035, 4.1.1).
const HEADER: usize = 12;

/// A query that waits for its answer.
struct Pending {
    /// Which seat it came to.
    seat: usize,
    client: SocketAddr,
    query: Vec<u8>,
    asked: Message,
    resolver: UdpSocket,
    until: Instant,
}

/// Serves until the other end of `stop` is gone.
pub(super) fn serve(seats: &[Seat], stop: &UnixStream, gate: &Arc<dyn Gate>) {
    let mut pending: Vec<Pending> = Vec::new();
    let streams = Streams::default();
    let mut room = vec![0; LARGEST];
    loop {
        let Ok(ready) = wait(seats, stop, &pending) else {
            return;
        };
        if ready.stop {
            return;
        }
        // From the end, so that the places of those before stay.
        for place in ready.pending.into_iter().rev() {
            if pending[place].answer(seats, &mut room, gate) {
                pending.swap_remove(place);
            }
        }
        for seat in ready.datagrams {
            while let Some(query) = take(seats, seat, &mut room, gate) {
                if pending.len() >= MOST {
                    pending.remove(0);
                }
                pending.push(query);
            }
        }
        for seat in ready.streams {
            streams.accept(&seats[seat], gate);
        }
        let now = Instant::now();
        pending.retain(|query| query.until > now);
    }
}

/// What there is to do.
struct Ready {
    stop: bool,
    datagrams: Vec<usize>,
    streams: Vec<usize>,
    pending: Vec<usize>,
}

fn wait(seats: &[Seat], stop: &UnixStream, pending: &[Pending]) -> io::Result<Ready> {
    let mut descriptors = vec![PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
    let readable = |socket| PollFd::new(socket, PollFlags::POLLIN);
    descriptors.extend(seats.iter().map(|seat| readable(seat.datagrams.as_fd())));
    descriptors.extend(seats.iter().map(|seat| readable(seat.streams.as_fd())));
    descriptors.extend(pending.iter().map(|query| readable(query.resolver.as_fd())));
    let now = Instant::now();
    let first = pending.iter().map(|query| query.until).min();
    let timeout = first.map_or(PollTimeout::NONE, |first| {
        // Rounded up, so that it does not wake before.
        let wait = first.saturating_duration_since(now) + Duration::from_millis(1);
        PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut descriptors, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_ready: Vec<bool> = descriptors
        .iter()
        .map(|descriptor| descriptor.any().unwrap_or(true))
        .collect();
    let places = |from: usize, count: usize| {
        let range = is_ready.iter().skip(from).take(count).enumerate();
        range
            .filter(|(_, ready)| **ready)
            .map(|(place, _)| place)
            .collect()
    };
    Ok(Ready {
        stop: is_ready[0],
        datagrams: places(1, seats.len()),
        streams: places(1 + seats.len(), seats.len()),
        pending: places(1 + 2 * seats.len(), pending.len()),
    })
}

/// Takes a query from a seat and passes it on; `None` when there is none that is passed on.
fn take(seats: &[Seat], place: usize, room: &mut [u8], gate: &Arc<dyn Gate>) -> Option<Pending> {
    let seat = &seats[place];
    loop {
        let (len, client) = seat.datagrams.recv_from(room).ok()?;
        let query = &room[..len];
        if !gate.is_asker(seat.at, client.port(), false) {
            continue;
        }
        let Ok(asked) = message::parse(query) else {
            continue;
        };
        match ask(seat.resolver, query) {
            Ok(resolver) => {
                return Some(Pending {
                    seat: place,
                    client,
                    query: query.to_vec(),
                    asked,
                    resolver,
                    until: Instant::now() + PATIENCE,
                });
            }
            Err(_) => refuse(seat, client, query),
        }
    }
}

/// Asks a resolver from a socket of its own, so that nothing but an answer of that resolver comes there.
fn ask(resolver: SocketAddr, query: &[u8]) -> io::Result<UdpSocket> {
    let socket = match resolver {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
    };
    socket.connect(resolver)?;
    socket.set_nonblocking(true)?;
    socket.send(query)?;
    Ok(socket)
}

/// Tells a client that its resolver cannot be asked (SERVFAIL), which makes it go on to the next one.
fn refuse(seat: &Seat, client: SocketAddr, query: &[u8]) {
    if query.len() < HEADER {
        return;
    }
    let mut answer = query.to_vec();
    answer[2] |= 0x80;
    answer[3] = 0x82;
    // A client that is gone needs none.
    let _gone = seat.datagrams.send_to(&answer, client);
}

impl Pending {
    /// Passes the answer on, when there is one; true when nothing more is waited for.
    fn answer(&self, seats: &[Seat], room: &mut [u8], gate: &Arc<dyn Gate>) -> bool {
        let seat = &seats[self.seat];
        let len = match self.resolver.recv(room) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => {
                refuse(seat, self.client, &self.query);
                return true;
            }
        };
        let answer = &room[..len];
        if answer.get(..2) != self.query.get(..2) {
            return false;
        }
        if let Ok(message) = message::parse(answer)
            && (!message.response || message.question != self.asked.question)
        {
            return false;
        }
        if gate.let_through(answer) {
            let _gone = seat.datagrams.send_to(answer, self.client);
        } else {
            refuse(seat, self.client, &self.query);
        }
        true
    }
}
