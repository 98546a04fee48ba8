//! Queries over TCP: a thread for each connection, one message at a time in each direction.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::{Gate, Seat};

/// Most connections at the same time; more are closed.
const MOST: usize = 64;
/// How long either side may be silent.
const PATIENCE: Duration = Duration::from_secs(15);

/// The connections of one forwarder.
#[derive(Default)]
pub(super) struct Streams(Arc<AtomicUsize>);

/// One of them. Counts while it lives.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Streams {
    /// Takes the connections that wait at a seat.
    pub(super) fn accept(&self, seat: &Seat, gate: &Arc<dyn Gate>) {
        while let Ok((client, from)) = seat.streams.accept() {
            if !gate.is_asker(seat.at, from.port(), true) {
                continue;
            }
            let place = Place(Arc::clone(&self.0));
            if self.0.fetch_add(1, Ordering::Relaxed) >= MOST {
                continue;
            }
            let (resolver, gate) = (seat.resolver, Arc::clone(gate));
            let serve = move || {
                let _place = place;
                // Whoever breaks a connection off ends it for both.
                let _ended = pass(client, resolver, &*gate);
            };
            let thread = thread::Builder::new().name("forwarder".to_owned());
            if let Err(error) = thread.spawn(serve) {
                tracing::warn!(%error, "a connection to a resolver cannot be forwarded");
            }
        }
    }
}

fn pass(mut client: TcpStream, resolver: SocketAddr, gate: &dyn Gate) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let mut server = TcpStream::connect_timeout(&resolver, PATIENCE)?;
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
    }
    loop {
        let query = message(&mut client)?;
        server.write_all(&query)?;
        let answer = message(&mut server)?;
        if !gate.let_through(&answer[2..]) {
            return Ok(());
        }
        client.write_all(&answer)?;
    }
}

/// A message with the length in front of it (RFC 1035, 4.2.2).
pub(super) fn message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut whole = vec![0; 2 + usize::from(u16::from_be_bytes(length))];
    whole[..2].copy_from_slice(&length);
    stream.read_exact(&mut whole[2..])?;
    Ok(whole)
}
