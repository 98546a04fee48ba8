//! Pieces of packets -> whole messages. Pure.
//!
//! A datagram is a message. A TCP stream is messages with their length in front (RFC 1035, 4.2.2), which come in any cut, in any
//! order and more than once.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use crate::event::{Dns, Flow};

/// Most streams and unfinished datagrams that are followed at a time; the one that was quiet for longest is given up for a new one.
const MOST: usize = 256;
/// Most bytes that one stream keeps: more than a TCP window that has lost its first segment in practice.
const MOST_BYTES: usize = 1 << 20;

/// One direction of a flow, or one datagram of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    flow: Flow,
    answer: bool,
    /// The time of a datagram, which its pieces share; 0 for a stream.
    packet: u64,
}

/// What is there of a stream.
#[derive(Debug, Default)]
struct Stream {
    /// Sequence number of the byte behind `ready`.
    next: u32,
    /// Bytes in order, of messages that are not whole.
    ready: Vec<u8>,
    /// Bytes behind a gap, by how far they are behind `next` when they came, in the order of the stream.
    ahead: BTreeMap<u64, Vec<u8>>,
    /// Bytes of the stream before `next`.
    passed: u64,
}

/// Everything that is not whole yet.
#[derive(Debug, Default)]
pub struct Streams {
    open: HashMap<Key, Stream>,
    /// From the one that was quiet for longest.
    order: VecDeque<Key>,
}

/// What a piece completes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// The messages, in order.
    pub messages: Vec<Vec<u8>>,
    /// Something could not be put together and was given up.
    pub lost: bool,
}

impl Streams {
    /// Takes in a piece of a packet of this time.
    pub fn take(&mut self, dns: Dns, time_ns: u64) -> Whole {
        if dns.flow.tcp {
            return self.segment(dns);
        }
        if dns.at == 0 && dns.piece.len() as u64 == u64::from(dns.total) {
            return Whole {
                messages: vec![dns.piece],
                lost: false,
            };
        }
        self.part(dns, time_ns)
    }

    /// A part of a datagram. They come in order.
    fn part(&mut self, dns: Dns, time_ns: u64) -> Whole {
        let key = Key {
            flow: dns.flow,
            answer: dns.answer,
            packet: time_ns,
        };
        let mut lost = false;
        if dns.at == 0 {
            lost = self.open(key, Stream::default());
        }
        let Some(datagram) = self.open.get_mut(&key) else {
            return Whole {
                messages: Vec::new(),
                lost: true,
            };
        };
        if datagram.ready.len() as u64 != u64::from(dns.at) {
            self.close(&key);
            return Whole {
                messages: Vec::new(),
                lost: true,
            };
        }
        datagram.ready.extend(dns.piece);
        let whole = datagram.ready.len() as u64 >= u64::from(dns.total);
        let messages = whole.then(|| self.close(&key)).flatten();
        Whole {
            messages: messages.into_iter().collect(),
            lost,
        }
    }

    fn segment(&mut self, dns: Dns) -> Whole {
        let key = Key {
            flow: dns.flow,
            answer: dns.answer,
            packet: 0,
        };
        // The flag that begins a stream counts as one byte of it.
        let seq = dns
            .seq
            .wrapping_add(dns.at)
            .wrapping_add(u32::from(dns.syn));
        let mut lost = false;
        if dns.syn && dns.at == 0 || !self.open.contains_key(&key) {
            // A repeated beginning says nothing new.
            let known = self
                .open
                .get(&key)
                .is_some_and(|stream| dns.syn && stream.passed == 0 && stream.next == seq);
            if !known {
                let stream = Stream {
                    next: seq,
                    ..Stream::default()
                };
                lost = self.open(key, stream);
            }
        }
        let Some(stream) = self.open.get_mut(&key) else {
            return Whole {
                messages: Vec::new(),
                lost: true,
            };
        };
        let kept = stream.put(seq, dns.piece);
        let messages = stream.messages();
        if !kept {
            self.close(&key);
            lost = true;
        }
        Whole { messages, lost }
    }

    /// Begins one, and says whether another one was given up for it.
    fn open(&mut self, key: Key, stream: Stream) -> bool {
        let mut lost = false;
        if self.open.insert(key, stream).is_some() {
            self.order.retain(|known| *known != key);
        } else if self.open.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            lost = self
                .open
                .remove(&oldest)
                .is_some_and(|stream| !stream.is_idle());
        }
        self.order.push_back(key);
        lost
    }

    fn close(&mut self, key: &Key) -> Option<Vec<u8>> {
        self.order.retain(|known| known != key);
        self.open.remove(key).map(|stream| stream.ready)
    }
}

impl Stream {
    fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.ahead.is_empty()
    }

    /// Puts bytes where they belong; `false` when there is no room for them.
    fn put(&mut self, seq: u32, bytes: Vec<u8>) -> bool {
        // Half of the numbers are ahead, half behind (RFC 9293, 3.4).
        let distance = i64::from(seq.wrapping_sub(self.next).cast_signed());
        let Ok(gap) = u64::try_from(distance) else {
            let known = usize::try_from(-distance).unwrap_or(usize::MAX);
            if let Some(rest) = bytes.get(known..) {
                self.append(rest);
            }
            self.close_gaps();
            return true;
        };
        if gap > 0 {
            let at = self.passed + gap;
            let longer = self
                .ahead
                .get(&at)
                .is_none_or(|old| old.len() < bytes.len());
            if longer && !bytes.is_empty() {
                self.ahead.insert(at, bytes);
            }
            let kept: usize = self.ahead.values().map(Vec::len).sum();
            return kept + self.ready.len() <= MOST_BYTES;
        }
        self.append(&bytes);
        self.close_gaps();
        true
    }

    fn append(&mut self, bytes: &[u8]) {
        self.ready.extend(bytes);
        self.passed += bytes.len() as u64;
        // Sequence numbers wrap around.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a packet is shorter than 4 GiB"
        )]
        let len = bytes.len() as u32;
        self.next = self.next.wrapping_add(len);
    }

    fn close_gaps(&mut self) {
        while let Some(first) = self.ahead.first_entry() {
            if *first.key() > self.passed {
                return;
            }
            let (at, bytes) = first.remove_entry();
            let known = usize::try_from(self.passed - at).unwrap_or(usize::MAX);
            if let Some(rest) = bytes.get(known..) {
                self.append(rest);
            }
        }
    }

    /// Takes out the messages that are whole.
    fn messages(&mut self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        let mut taken = 0;
        while let Some((len, rest)) = self.ready[taken..].split_first_chunk() {
            let len = usize::from(u16::from_be_bytes(*len));
            let Some(message) = rest.get(..len) else {
                break;
            };
            messages.push(message.to_vec());
            taken += 2 + len;
        }
        self.ready.drain(..taken);
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, MOST_BYTES, Streams, Whole};
    use crate::event::{Dns, Flow};

    fn piece(socket: u64, tcp: bool, seq: u32, bytes: &[u8]) -> Dns {
        Dns {
            flow: Flow {
                netns: 1,
                socket,
                resolver: "192.0.2.53".parse().unwrap(),
                local: "192.0.2.7".parse().unwrap(),
                local_port: 4000,
                tcp,
            },
            answer: true,
            seq,
            syn: false,
            at: 0,
            total: u32::try_from(bytes.len()).unwrap(),
            piece: bytes.to_vec(),
        }
    }

    fn syn(socket: u64, seq: u32) -> Dns {
        Dns {
            syn: true,
            ..piece(socket, true, seq, b"")
        }
    }

    fn whole(messages: &[&[u8]]) -> Whole {
        Whole {
            messages: messages.iter().map(|message| message.to_vec()).collect(),
            lost: false,
        }
    }

    #[test]
    fn a_datagram_is_a_message() {
        let mut streams = Streams::default();
        assert_eq!(
            streams.take(piece(1, false, 0, b"abc"), 5),
            whole(&[b"abc"])
        );
        // In pieces, with another one in between.
        let part = |at, bytes: &[u8]| Dns {
            at,
            total: 4,
            ..piece(1, false, 0, bytes)
        };
        assert_eq!(streams.take(part(0, b"ab"), 6), whole(&[]));
        assert_eq!(streams.take(part(0, b"AB"), 7), whole(&[]));
        assert_eq!(streams.take(part(2, b"cd"), 6), whole(&[b"abcd"]));
        assert_eq!(streams.take(part(2, b"CD"), 7), whole(&[b"ABCD"]));
        assert!(
            streams.take(part(2, b"cd"), 8).lost,
            "the first piece is missing"
        );
    }

    #[test]
    fn a_stream_is_put_in_order_whatever_the_cut() {
        let stream = b"\0\x03abc\0\0\0\x02de";
        // Every way to cut it into three, each order of these, some of it sent twice, around the end of the numbers.
        for start in [1u32, u32::MAX - 3] {
            for (one, two) in
                (1..stream.len()).flat_map(|one| (one..stream.len()).map(move |two| (one, two)))
            {
                for order in [
                    [0, 1, 2],
                    [0, 2, 1],
                    [1, 0, 2],
                    [1, 2, 0],
                    [2, 0, 1],
                    [2, 1, 0],
                ] {
                    let mut streams = Streams::default();
                    let mut messages = streams.take(syn(1, start.wrapping_sub(1)), 0).messages;
                    let cuts = [(0, one), (one.saturating_sub(1), two), (two, stream.len())];
                    for part in order.into_iter().chain([1, 0]) {
                        let (from, to) = cuts[part];
                        let seq = start.wrapping_add(u32::try_from(from).unwrap());
                        let taken = streams.take(piece(1, true, seq, &stream[from..to]), 0);
                        assert!(!taken.lost);
                        messages.extend(taken.messages);
                    }
                    assert_eq!(messages, [&b"abc"[..], b"", b"de"], "{one} {two} {order:?}");
                }
            }
        }
    }

    #[test]
    fn a_packet_that_comes_in_pieces_continues_where_it_was() {
        let mut streams = Streams::default();
        streams.take(syn(1, 9), 0);
        let part = |at, bytes: &[u8]| Dns {
            at,
            total: 5,
            ..piece(1, true, 10, bytes)
        };
        assert_eq!(streams.take(part(0, b"\0\x03a"), 1), whole(&[]));
        assert_eq!(streams.take(part(3, b"bc"), 1), whole(&[b"abc"]));
    }

    #[test]
    fn a_repeated_beginning_takes_nothing_back() {
        let mut streams = Streams::default();
        streams.take(syn(1, 9), 0);
        // The second segment came first.
        assert_eq!(streams.take(piece(1, true, 12, b"ab"), 0), whole(&[]));
        assert_eq!(streams.take(syn(1, 9), 0), whole(&[]));
        assert_eq!(
            streams.take(piece(1, true, 10, b"\0\x02"), 0),
            whole(&[b"ab"])
        );
    }

    #[test]
    fn memory_is_bounded_and_what_is_given_up_is_lost() {
        let mut streams = Streams::default();
        let half = vec![0xffu8; 30_000];
        for socket in 0..u64::try_from(MOST).unwrap() {
            assert!(!streams.take(piece(socket, true, 1, &half), 0).lost);
        }
        assert!(streams.take(piece(1 << 40, true, 1, &half), 0).lost);
        let mut streams = Streams::default();
        streams.take(syn(1, 0), 0);
        let behind = |n: u32| piece(1, true, 2 + n * 30_000, &half);
        let most = u32::try_from(MOST_BYTES / half.len()).unwrap();
        assert!((0..most).all(|n| !streams.take(behind(n), 0).lost));
        assert!(streams.take(behind(most), 0).lost);
    }
}
