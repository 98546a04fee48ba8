use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use super::{Forwarder, Gate, PORT, prepare};
use crate::dns::craft::{answer, query};

/// Long enough for anything on the loopback, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
const A: u16 = 1;

/// A gate that knows its asker by port and notes what it lets through.
#[derive(Default)]
struct Noted {
    asker: Mutex<Option<u16>>,
    answers: Mutex<Vec<Vec<u8>>>,
    is_shut: bool,
}

impl Gate for Noted {
    fn is_asker(&self, _to: SocketAddr, from: u16, _is_tcp: bool) -> bool {
        self.asker.lock().unwrap().is_none_or(|asker| asker == from)
    }

    fn let_through(&self, answer: &[u8]) -> bool {
        self.answers.lock().unwrap().push(answer.to_vec());
        !self.is_shut
    }
}

/// A resolver that answers everything, on a loopback address of the test's own, and a forwarder before it.
fn stand(last: u8, gate: &Arc<Noted>) -> (Forwarder, SocketAddr) {
    let at = IpAddr::V4(Ipv4Addr::new(127, 53, 0, last));
    let reply = |query: &[u8]| {
        let id = u16::from_be_bytes([query[0], query[1]]);
        answer(id, 0, "www.example.org", A, "www.example.org A 192.0.2.1")
    };
    let datagrams = UdpSocket::bind((at, PORT)).unwrap();
    thread::spawn(move || {
        let mut room = [0; 512];
        while let Ok((len, from)) = datagrams.recv_from(&mut room) {
            // Another message comes first: it answers nothing.
            let mut other = reply(&room[..len]);
            other[1] ^= 1;
            datagrams.send_to(&other, from).unwrap();
            datagrams.send_to(&reply(&room[..len]), from).unwrap();
        }
    });
    let streams = TcpListener::bind((at, PORT)).unwrap();
    thread::spawn(move || {
        while let Ok((mut client, _)) = streams.accept() {
            while let Ok(query) = super::streams::message(&mut client) {
                let reply = reply(&query[2..]);
                // In pieces, as the network may have it.
                for piece in [&[0][..], &[u8::try_from(reply.len()).unwrap()], &reply] {
                    client.write_all(piece).unwrap();
                }
            }
        }
    });
    let pid = i32::try_from(std::process::id()).unwrap();
    let ready = prepare(pid, &[at]).unwrap();
    let stand_in = ready.stand_ins()[0];
    assert_eq!(stand_in.resolver, at);
    let gate: Arc<dyn Gate> = Arc::clone(gate) as Arc<dyn Gate>;
    let forwarder = ready.serve(gate);
    (forwarder, (Ipv4Addr::LOCALHOST, stand_in.port).into())
}

/// A socket with a query under way to the forwarder.
fn ask(at: SocketAddr, id: u16) -> UdpSocket {
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.connect(at).unwrap();
    client.send(&query(id, "www.example.org", A)).unwrap();
    client
}

fn received(client: &UdpSocket) -> Vec<u8> {
    let mut room = [0; 512];
    let len = client.recv(&mut room).unwrap();
    room[..len].to_vec()
}

#[test]
fn an_answer_passes_unchanged_once_it_is_let_through() {
    let gate = Arc::new(Noted::default());
    let (_forwarder, at) = stand(1, &gate);
    let answered = received(&ask(at, 0x0706));
    assert_eq!(
        answered,
        answer(
            0x0706,
            0,
            "www.example.org",
            A,
            "www.example.org A 192.0.2.1"
        )
    );
    assert_eq!(*gate.answers.lock().unwrap(), [answered]);
}

#[test]
fn an_answer_that_cannot_be_let_through_is_a_failure_of_the_resolver() {
    let gate = Arc::new(Noted {
        is_shut: true,
        ..Noted::default()
    });
    let (_forwarder, at) = stand(2, &gate);
    let refused = received(&ask(at, 7));
    let asked = query(7, "www.example.org", A);
    assert_eq!((refused[3] & 0xf, &refused[4..]), (2, &asked[4..]));
}

#[test]
fn a_resolver_that_is_not_there_is_a_failure_too() {
    let pid = i32::try_from(std::process::id()).unwrap();
    let ready = prepare(pid, &[IpAddr::V4(Ipv4Addr::new(127, 53, 0, 9))]).unwrap();
    let at = (Ipv4Addr::LOCALHOST, ready.stand_ins()[0].port).into();
    let _forwarder = ready.serve(Arc::new(Noted::default()));
    assert_eq!(received(&ask(at, 7))[3] & 0xf, 2);
}

#[test]
fn nobody_but_the_job_is_answered() {
    let gate = Arc::new(Noted::default());
    let (_forwarder, at) = stand(3, &gate);
    let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    *gate.asker.lock().unwrap() = Some(own.local_addr().unwrap().port());
    let stranger = ask(at, 1);
    own.set_read_timeout(Some(PATIENCE)).unwrap();
    own.connect(at).unwrap();
    own.send(&query(2, "www.example.org", A)).unwrap();
    // Queries are taken in order: the stranger's was taken before.
    assert_eq!(received(&own)[1], 2);
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut [0; 1]).is_err());
    assert_eq!(gate.answers.lock().unwrap().len(), 1);
    // A connection is closed.
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
}

#[test]
fn a_stream_carries_message_after_message() {
    let gate = Arc::new(Noted::default());
    let (_forwarder, at) = stand(4, &gate);
    let mut client = TcpStream::connect(at).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for id in 1..=3 {
        let query = query(id, "www.example.org", A);
        let length = u16::try_from(query.len()).unwrap().to_be_bytes();
        client.write_all(&[&length[..], &query].concat()).unwrap();
        let answer = super::streams::message(&mut client).unwrap();
        assert_eq!(answer[2..4], id.to_be_bytes());
    }
    assert_eq!(gate.answers.lock().unwrap().len(), 3);
}

#[test]
fn it_ends_with_its_job() {
    let gate = Arc::new(Noted::default());
    let (forwarder, at) = stand(5, &gate);
    drop(forwarder);
    assert!(TcpStream::connect(at).is_err());
}
