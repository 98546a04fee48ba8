//! DNS messages made of words, for tests.

use std::net::IpAddr;

/// A query of class `IN`.
pub(crate) fn query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    message(id, 0x0100, name, kind, &[])
}

/// An answer with records separated by `;`, each `NAME A ADDRESS`, `NAME AAAA ADDRESS`, `NAME CNAME NAME` or `NAME TXT TEXT`, of
/// TTL 0.
pub(crate) fn answer(id: u16, rcode: u8, name: &str, kind: u16, records: &str) -> Vec<u8> {
    let records = records
        .split(';')
        .map(str::trim)
        .filter(|record| !record.is_empty());
    let records: Vec<Vec<u8>> = records.map(record).collect();
    message(id, 0x8180 | u16::from(rcode), name, kind, &records)
}

fn message(id: u16, flags: u16, asked: &str, kind: u16, records: &[Vec<u8>]) -> Vec<u8> {
    let count = u16::try_from(records.len()).expect("few records");
    let mut bytes = Vec::new();
    for word in [id, flags, 1, count, 0, 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(name(asked));
    bytes.extend(kind.to_be_bytes());
    bytes.extend(1u16.to_be_bytes());
    bytes.extend(records.iter().flatten());
    bytes
}

/// One record.
pub(crate) fn record(text: &str) -> Vec<u8> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [of, kind, what] = words[..] else {
        panic!("`{text}` has not three words");
    };
    let address = || what.parse::<IpAddr>().expect("an address");
    let (kind, data) = match (kind, what) {
        ("CNAME", target) => (5u16, name(target)),
        ("TXT", text) => (
            16,
            [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat(),
        ),
        ("A" | "AAAA", _) => match address() {
            IpAddr::V4(addr) => (1, addr.octets().to_vec()),
            IpAddr::V6(addr) => (28, addr.octets().to_vec()),
        },
        _ => panic!("no such record: {text}"),
    };
    let mut bytes = name(of);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 0, 0]);
    bytes.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
    bytes.extend(data);
    bytes
}

fn name(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).expect("short"));
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}
