//! A resolver on the far side of a [`Network`] that does what makes names hard: answers that are never the same twice, addresses of
//! several names, aliases, answers that are cut, and others who answer in its place.
//!
//! What it does stands in the first letter of a name: see [`Resolver::answer`].

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use crate::network::Network;

/// Its address, and what a job's `/etc/resolv.conf` has. Names without a dot are first looked for where nobody is.
pub(crate) const CONFIGURATION: &str = "nameserver 10.77.0.53\nsearch nowhere.example b.example\n";
const ADDRESS: &str = "10.77.0.53:53";
/// Who answers in its place, and what.
const OTHER: &str = "10.77.0.54:53";
pub(crate) const POISON: Ipv4Addr = Ipv4Addr::new(10, 77, 66, 66);
/// How many addresses names share.
const SHARED: usize = 20;
/// Addresses in an answer that does not fit into a datagram, nor into one record of the probes.
const MANY: usize = 300;

const A: u16 = 1;
const AAAA: u16 = 28;
const CNAME: u16 = 5;

/// The resolver's sockets.
pub(crate) struct Resolver {
    datagrams: UdpSocket,
    other: UdpSocket,
    streams: TcpListener,
    turn: AtomicUsize,
    done: AtomicBool,
}

/// A question, as a message has it.
struct Asked<'a> {
    id: [u8; 2],
    /// The question's bytes.
    question: &'a [u8],
    /// Its name's labels.
    labels: Vec<String>,
    kind: u16,
}

impl<'a> Asked<'a> {
    fn read(query: &'a [u8]) -> Self {
        let mut labels = Vec::new();
        let mut at = 12;
        while query[at] != 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8(query[at + 1..end].to_vec()).unwrap());
            at = end;
        }
        Self {
            id: [query[0], query[1]],
            question: &query[12..at + 5],
            labels,
            kind: u16::from_be_bytes([query[at + 1], query[at + 2]]),
        }
    }

    /// A message with records of TTL 0, as they follow each other.
    fn message(&self, flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
        let count = u16::try_from(records.len()).unwrap();
        let mut message = self.id.to_vec();
        for word in [flags, 1, count, 0, 0] {
            message.extend(word.to_be_bytes());
        }
        message.extend(self.question);
        message.extend(records.iter().flatten());
        message
    }
}

/// Without an error; cut; no such name.
const FINE: u16 = 0x8180;
const CUT: u16 = 0x8380;
const NO_NAME: u16 = 0x8183;

/// A record of TTL 0; an empty name is the one asked for.
fn record(name: &str, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = if name.is_empty() {
        vec![0xc0, 12]
    } else {
        wire(name)
    };
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 0, 0]);
    bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

fn wire(name: &str) -> Vec<u8> {
    let labels = name.split('.');
    let labels = labels.flat_map(|label| {
        let length = u8::try_from(label.len()).unwrap();
        [&[length], label.as_bytes()].concat()
    });
    labels.chain([0]).collect()
}

fn address(name: &str, addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => record(name, A, &addr.octets()),
        IpAddr::V6(addr) => record(name, AAAA, &addr.octets()),
    }
}

impl Resolver {
    /// Listens, and does not answer yet.
    pub(crate) fn new(network: &Network) -> Self {
        network.far(|| Self {
            datagrams: UdpSocket::bind(ADDRESS).unwrap(),
            other: UdpSocket::bind(OTHER).unwrap(),
            streams: TcpListener::bind(ADDRESS).unwrap(),
            turn: AtomicUsize::new(0),
            done: AtomicBool::new(false),
        })
    }

    /// Answers while something is done.
    pub(crate) fn during<T>(&self, network: &Network, work: impl FnOnce() -> T) -> T {
        /// Ends what serves, also when the work panics.
        struct End<'a>(&'a Resolver, &'a Network);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.done.store(true, Ordering::SeqCst);
                self.1.far(|| {
                    let waker = UdpSocket::bind("10.77.0.1:0").unwrap();
                    waker.send_to(&[], ADDRESS).unwrap();
                    drop(TcpStream::connect(ADDRESS).unwrap());
                });
            }
        }
        thread::scope(|scope| {
            scope.spawn(|| self.serve_datagrams());
            scope.spawn(|| self.serve_streams());
            let _end = End(self, network);
            work()
        })
    }

    fn serve_datagrams(&self) {
        let mut room = [0; 512];
        loop {
            let (len, from) = self.datagrams.recv_from(&mut room).unwrap();
            if self.done.load(Ordering::SeqCst) {
                return;
            }
            let asked = Asked::read(&room[..len]);
            if asked.labels[0].starts_with('p') {
                self.poison(&asked, from);
            }
            let answer = self.answer(&asked, false);
            self.datagrams.send_to(&answer, from).unwrap();
        }
    }

    /// Everything that is not the answer: by somebody else, with another number, to another question.
    fn poison(&self, asked: &Asked<'_>, to: SocketAddr) {
        let records = [address("", POISON.into())];
        let right = asked.message(FINE, &records);
        self.other.send_to(&right, to).unwrap();
        let mut number = right.clone();
        number[1] ^= 1;
        self.datagrams.send_to(&number, to).unwrap();
        let mut question = right;
        question[13] ^= 1;
        self.datagrams.send_to(&question, to).unwrap();
    }

    fn serve_streams(&self) {
        loop {
            let (mut client, _) = self.streams.accept().unwrap();
            if self.done.load(Ordering::SeqCst) {
                return;
            }
            while let Some(query) = message(&mut client) {
                let answer = self.answer(&Asked::read(&query), true);
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                // In two segments: the cut is within the length.
                client.set_nodelay(true).unwrap();
                client.write_all(&length[..1]).unwrap();
                client.write_all(&[&length[1..], &answer].concat()).unwrap();
            }
        }
    }

    /// `r…`: two of the shared addresses, others each time; `c…`: the same by way of three aliases; `t…`: so many that they come over
    /// TCP; `p…`: others answer too; `s…`: below `b.example` alone. Anything else is not there.
    fn answer(&self, asked: &Asked<'_>, is_tcp: bool) -> Vec<u8> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let below = asked.labels[1..].join(".");
        let shared = |n: usize| -> IpAddr {
            let n = u8::try_from((turn + n * 7) % SHARED + 1).unwrap();
            match asked.kind {
                AAAA => Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, u16::from(n)).into(),
                _ => Ipv4Addr::new(10, 77, 20, n).into(),
            }
        };
        let is_known = matches!(asked.kind, A | AAAA);
        let two = |name: &str| vec![address(name, shared(0)), address(name, shared(1))];
        match (asked.labels[0].as_bytes()[0], below.as_str()) {
            _ if !is_known => asked.message(FINE, &[]),
            (b'r', "example.org") | (b's', "b.example") => asked.message(FINE, &two("")),
            (b'p', "example.org") if asked.kind == A => asked.message(FINE, &two("")),
            (b'c', "example.org") => {
                // Not in their order.
                let mut records = two("z.cdn.example.net");
                records.push(record(
                    "y.cdn.example.net",
                    CNAME,
                    &wire("z.cdn.example.net"),
                ));
                records.push(record(
                    "x.cdn.example.net",
                    CNAME,
                    &wire("y.cdn.example.net"),
                ));
                records.insert(0, record("", CNAME, &wire("x.cdn.example.net")));
                records.swap(1, 4);
                records.swap(2, 3);
                asked.message(FINE, &records)
            }
            (b't', "example.org") if asked.kind == A && !is_tcp => asked.message(CUT, &[]),
            (b't', "example.org") if asked.kind == A => {
                let at = |n: usize| {
                    let n = turn + n;
                    let [high, low] = u16::try_from(n % 2000).unwrap().to_be_bytes();
                    address("", Ipv4Addr::new(10, 77, 32 + high, low).into())
                };
                asked.message(FINE, &(0..MANY).map(at).collect::<Vec<_>>())
            }
            (b'p' | b't', "example.org") => asked.message(FINE, &[]),
            _ => asked.message(NO_NAME, &[]),
        }
    }
}

/// A message of a stream; `None` at its end.
pub(crate) fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return None,
        read => read.unwrap(),
    }
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).unwrap();
    Some(message)
}
