//! Names of destinations, on the kernels of the matrix. Their machines have no `/etc/resolv.conf`, so that a resolver is at
//! 127.0.0.1; `tests/acceptance/names.rs` has the C library and configurations, on this machine.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::LazyLock,
    thread,
};

use crate::{cells::EMULATED, row::Row};

/// Bytes that an answer for `large…` has before its address: more than two records of the probes hold, less than a datagram.
const LARGE: usize = 10_000;

/// Answers every row, as long as the suite runs.
static RESOLVER: LazyLock<()> = LazyLock::new(|| {
    let datagrams = UdpSocket::bind("127.0.0.1:53").unwrap();
    let streams = TcpListener::bind("127.0.0.1:53").unwrap();
    thread::spawn(move || {
        let mut room = [0; 512];
        loop {
            let (len, from) = datagrams.recv_from(&mut room).unwrap();
            datagrams.send_to(&answer(&room[..len]), from).unwrap();
        }
    });
    thread::spawn(move || {
        for client in streams.incoming() {
            serve(client.unwrap());
        }
    });
});

fn serve(mut client: TcpStream) {
    let mut length = [0; 2];
    client.read_exact(&mut length).unwrap();
    let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
    client.read_exact(&mut query).unwrap();
    let answer = answer(&query);
    let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
    client.write_all(&[&length[..], &answer].concat()).unwrap();
}

/// The address 127.77.0.9 for every name; for `large…` behind texts.
fn answer(query: &[u8]) -> Vec<u8> {
    let texts = if query[13..].starts_with(b"large") {
        LARGE / 268
    } else {
        0
    };
    let mut answer = query.to_vec();
    answer[2..4].copy_from_slice(&[0x81, 0x80]);
    answer[6..8].copy_from_slice(&u16::try_from(texts + 1).unwrap().to_be_bytes());
    for _ in 0..texts {
        answer.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 0, 1, 0, 255]);
        answer.extend([b'x'; 255]);
    }
    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 77, 0, 9]);
    answer
}

fn row(name: &'static str, line: &str) -> Row {
    Row::program(name, line)
        .cells(EMULATED)
        .outside(|_| LazyLock::force(&RESOLVER))
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row("an_answer_names_its_address", "resolve udp www.example.org")
            .net("resolver:53 www.example.org:9"),
        row(
            "an_answer_over_tcp_names_its_address",
            "resolve tcp www.example.org",
        )
        .net("resolver:53 www.example.org:9"),
        row(
            "a_large_datagram_is_read_to_its_end",
            "resolve udp large.example.org",
        )
        .net("large.example.org:9 resolver:53"),
        row(
            "a_large_answer_over_tcp_is_read_to_its_end",
            "resolve tcp large.example.org",
        )
        .net("large.example.org:9 resolver:53"),
        row(
            "a_name_that_is_only_asked_for_is_an_entry",
            "resolve ask www.example.org",
        )
        .net("dns:www.example.org resolver:53"),
        // In another network namespace the same address is somebody else.
        row(
            "a_resolver_in_another_network_namespace_is_none",
            "spaces resolver",
        )
        .net("127.0.0.1:53"),
    ]
}
