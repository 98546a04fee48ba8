//! Bytes to events. Pure: what a record says is checked here, and nowhere else trusted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use capgate_common::event as wire;

use crate::event::{
    Dns, Event, Exec, Fact, File, FileId, FileSystem, Flow, Inet, InetOp, KernelPath, Membership,
    Name, NameOp, Named, Socket, SocketOp, Task, Top, Unix,
};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IPPROTO_TCP: u16 = 6;
const IPPROTO_UDP: u16 = 17;

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the record says it has.
    #[error("a record shorter than its length fields say")]
    Short,
    /// More bytes than the record accounts for.
    #[error("a record longer than its length fields say")]
    Long,
    /// A kind that this build does not know.
    #[error("a record of unknown kind {0}")]
    Kind(u16),
    /// A value that this build does not know.
    #[error("an unknown {0} value in a record")]
    Value(&'static str),
    /// A walked path whose components do not fit its length.
    #[error("a path whose components do not fit its length")]
    Path,
}

/// One record.
///
/// # Errors
/// When the bytes are not exactly one record of a known kind.
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    let mut reader = Reader(bytes);
    let kind = reader.u16()?;
    let flags = reader.u16()?;
    let data_len = reader.u32()? as usize;
    let time_ns = reader.u64()?;
    let start_ns = reader.u64()?;
    let task = Task {
        tgid: reader.u32()?,
        tid: reader.u32()?,
        start_ns,
    };
    let mnt_ns = reader.u32()?;
    reader.u32()?;
    let mut damaged = flags & (wire::REC_TRUNCATED | wire::REC_FAULT) != 0;
    let fact = match kind {
        wire::KIND_FILE => file(&mut reader, &mut damaged)?,
        wire::KIND_NAME => name(&mut reader, &mut damaged)?,
        wire::KIND_INET => inet(&mut reader, flags & wire::REC_DENIED != 0)?,
        wire::KIND_DNS => dns(&mut reader, data_len)?,
        wire::KIND_UNIX => unix(&mut reader, data_len, &mut damaged)?,
        wire::KIND_SOCKET => socket(&mut reader, data_len)?,
        wire::KIND_EXEC => exec(&mut reader, &mut damaged)?,
        wire::KIND_FORK => {
            let start_ns = reader.u64()?;
            let tgid = reader.u32()?;
            Fact::Fork {
                child: Task {
                    tgid,
                    tid: tgid,
                    start_ns,
                },
                outside: reader.u32()? != 0,
            }
        }
        wire::KIND_EXIT => {
            let code = reader.u32()?;
            reader.u32()?;
            Fact::Exit { code }
        }
        wire::KIND_MOVE => {
            let cgroup = reader.u64()?;
            Fact::Move {
                tgid: reader.u32()?,
                left: reader.u32()? != 0,
                cgroup,
            }
        }
        wire::KIND_UNSEEN => {
            let arg = reader.u64()?;
            let what = reader.u32()?;
            reader.u32()?;
            if what == 0 || what >= wire::UNSEEN_END {
                return Err(DecodeError::Value("blind spot"));
            }
            Fact::Unseen { what, arg }
        }
        wire::KIND_PTRACE => ptrace(&mut reader)?,
        wire::KIND_DONE => {
            let op = name_op(reader.u16()?)?;
            reader.take::<6>()?;
            Fact::Done(op)
        }
        other => return Err(DecodeError::Kind(other)),
    };
    if !reader.0.is_empty() {
        return Err(DecodeError::Long);
    }
    Ok(Event {
        time_ns,
        task,
        mnt_ns,
        damaged,
        fact,
    })
}

fn file(reader: &mut Reader<'_>, damaged: &mut bool) -> Result<Fact, DecodeError> {
    let ino = reader.u64()?;
    let dev = reader.u32()?;
    let generation = reader.u32()?;
    let mode = reader.u32()?;
    let nlink = reader.u32()?;
    let walked = reader.walked()?;
    let op = reader.u16()?;
    let how = reader.u16()?;
    let rdev = reader.u32()?;
    reader.u32()?;
    let received = match op {
        wire::FILE_OPEN => false,
        wire::FILE_RECEIVED => true,
        _ => return Err(DecodeError::Value("file operation")),
    };
    Ok(Fact::File(File {
        path: reader.path(walked, damaged)?,
        id: FileId {
            dev,
            ino,
            generation,
        },
        mode,
        nlink,
        rdev,
        write: how & wire::HOW_WRITE != 0,
        created: how & wire::HOW_CREATED != 0,
        truncate: how & wire::HOW_TRUNCATE != 0,
        received,
    }))
}

fn name(reader: &mut Reader<'_>, damaged: &mut bool) -> Result<Fact, DecodeError> {
    let op = name_op(reader.u16()?)?;
    let how = reader.u16()?;
    let arg = reader.u32()?;
    let first = reader.named()?;
    let second = reader.named()?;
    Ok(Fact::Name(Name {
        op,
        attempt: how & wire::NAME_ATTEMPT != 0,
        refused: how & wire::NAME_REFUSED != 0,
        arg,
        first: reader.name(first, damaged)?,
        second: reader.name(second, damaged)?,
    }))
}

fn name_op(value: u16) -> Result<NameOp, DecodeError> {
    Ok(match value {
        wire::NAME_RENAME => NameOp::Rename,
        wire::NAME_UNLINK => NameOp::Unlink,
        wire::NAME_RMDIR => NameOp::Rmdir,
        wire::NAME_LINK => NameOp::Link,
        wire::NAME_SYMLINK => NameOp::Symlink,
        wire::NAME_MKNOD => NameOp::Mknod,
        wire::NAME_MKDIR => NameOp::Mkdir,
        wire::NAME_TRUNCATE => NameOp::Truncate,
        wire::NAME_BIND => NameOp::Bind,
        wire::NAME_CHMOD => NameOp::Chmod,
        wire::NAME_CHOWN => NameOp::Chown,
        wire::NAME_XATTR => NameOp::Xattr,
        wire::NAME_OPEN => NameOp::Open,
        wire::NAME_EXEC => NameOp::Exec,
        _ => return Err(DecodeError::Value("name operation")),
    })
}

fn inet(reader: &mut Reader<'_>, denied: bool) -> Result<Fact, DecodeError> {
    let netns = reader.u64()?;
    let addr: [u8; 16] = reader.take()?;
    let local: [u8; 16] = reader.take()?;
    let scope_id = reader.u32()?;
    let port = reader.u16()?;
    let local_port = reader.u16()?;
    let family = reader.u16()?;
    let sock_type = reader.u16()?;
    let protocol = reader.u16()?;
    let op = match reader.u16()? {
        wire::INET_CONNECT => InetOp::Connect,
        wire::INET_SENDMSG => InetOp::Send,
        wire::INET_EGRESS => InetOp::Egress,
        wire::INET_LISTEN => InetOp::Listen,
        wire::INET_BIND => InetOp::Bind,
        _ => return Err(DecodeError::Value("inet operation")),
    };
    Ok(Fact::Inet(Inet {
        op,
        netns,
        addr: ip(family, addr)?,
        port,
        scope_id,
        local: ip(family, local)?,
        local_port,
        sock_type,
        protocol,
        denied,
    }))
}

/// An address of a family; IPv4 in the first four bytes.
fn ip(family: u16, bytes: [u8; 16]) -> Result<IpAddr, DecodeError> {
    match family {
        AF_INET => {
            let [a, b, c, d, ..] = bytes;
            Ok(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
        }
        AF_INET6 => Ok(IpAddr::V6(Ipv6Addr::from(bytes))),
        _ => Err(DecodeError::Value("inet family")),
    }
}

fn dns(reader: &mut Reader<'_>, data_len: usize) -> Result<Fact, DecodeError> {
    let netns = reader.u64()?;
    let socket = reader.u64()?;
    let remote: [u8; 16] = reader.take()?;
    let local: [u8; 16] = reader.take()?;
    let seq = reader.u32()?;
    let at = reader.u32()?;
    let total = reader.u32()?;
    let local_port = reader.u16()?;
    let family = reader.u16()?;
    let tcp = match reader.u16()? {
        IPPROTO_TCP => true,
        IPPROTO_UDP => false,
        _ => return Err(DecodeError::Value("transport")),
    };
    let tcp_flags = reader.u16()?;
    let answer = match reader.u16()? {
        wire::DNS_QUERY => false,
        wire::DNS_ANSWER => true,
        _ => return Err(DecodeError::Value("direction")),
    };
    reader.u16()?;
    Ok(Fact::Dns(Dns {
        flow: Flow {
            netns,
            socket,
            resolver: ip(family, remote)?.to_canonical(),
            local: ip(family, local)?.to_canonical(),
            local_port,
            tcp,
        },
        answer,
        seq,
        syn: tcp_flags & wire::TCP_SYN != 0,
        at,
        total,
        piece: reader.bytes(data_len)?.to_vec(),
    }))
}

fn unix(reader: &mut Reader<'_>, data_len: usize, damaged: &mut bool) -> Result<Fact, DecodeError> {
    let ret = reader.i32()?;
    let peer_pid = reader.u32()?;
    let peer = reader.walked()?;
    let named = reader.named()?;
    let connect = match reader.u16()? {
        wire::UNIX_CONNECT => true,
        wire::UNIX_SEND => false,
        _ => return Err(DecodeError::Value("unix operation")),
    };
    let sock_type = reader.u16()?;
    if reader.0.len() != data_len {
        return Err(if reader.0.len() < data_len {
            DecodeError::Short
        } else {
            DecodeError::Long
        });
    }
    let peer = (peer.len > 0 || peer.flags != 0)
        .then(|| reader.path(peer, damaged))
        .transpose()?;
    let mut name = reader.name(named, damaged)?;
    // sun_path ends at its NUL, but for an abstract name, which begins with one.
    if let Some(end) = name.string.iter().position(|b| *b == 0)
        && end > 0
    {
        name.string.truncate(end);
    }
    Ok(Fact::Unix(Unix {
        connect,
        ret,
        peer_pid,
        peer,
        name,
        sock_type,
    }))
}

fn socket(reader: &mut Reader<'_>, data_len: usize) -> Result<Fact, DecodeError> {
    let netns = reader.u64()?;
    let ret = reader.i32()?;
    let family = reader.u16()?;
    let sock_type = reader.u16()?;
    let protocol = reader.u16()?;
    let op = match reader.u16()? {
        wire::SOCKET_CREATE => SocketOp::Create,
        wire::SOCKET_BIND => SocketOp::Bind,
        wire::SOCKET_CONNECT => SocketOp::Connect,
        wire::SOCKET_SEND => SocketOp::Send,
        _ => return Err(DecodeError::Value("socket operation")),
    };
    reader.u32()?;
    let addr = reader.bytes(data_len)?.to_vec();
    Ok(Fact::Socket(Socket {
        op,
        netns,
        ret,
        family,
        sock_type,
        protocol,
        addr,
    }))
}

fn exec(reader: &mut Reader<'_>, damaged: &mut bool) -> Result<Fact, DecodeError> {
    let ino = reader.u64()?;
    let size = reader.u64()?;
    let dev = reader.u32()?;
    let how = reader.u16()?;
    let argv_len = usize::from(reader.u16()?);
    let exe = reader.walked()?;
    let named = reader.named()?;
    let was = reader.u32()?;
    let cwd = reader.walked()?;
    reader.u32()?;
    let exe = reader.path(exe, damaged)?;
    let name = reader.name(named, damaged)?;
    let cwd = (cwd.len > 0 || cwd.flags != 0)
        .then(|| reader.path(cwd, damaged))
        .transpose()?;
    let argv = reader.bytes(argv_len)?;
    let argv = argv.strip_suffix(&[0]).unwrap_or(argv);
    Ok(Fact::Exec(Exec {
        exe,
        id: FileId {
            dev,
            ino,
            generation: 0,
        },
        size,
        name,
        cwd,
        script: how & wire::EXEC_SCRIPT != 0,
        attempt: how & wire::EXEC_ATTEMPT != 0,
        first: how & wire::EXEC_FIRST != 0,
        was,
        argv: if argv_len == 0 {
            Vec::new()
        } else {
            argv.split(|b| *b == 0).map(<[u8]>::to_vec).collect()
        },
        argv_cut: how & wire::EXEC_ARGV_CUT != 0,
    }))
}

fn ptrace(reader: &mut Reader<'_>) -> Result<Fact, DecodeError> {
    let op = reader.u32()?;
    let target = reader.u32()?;
    let target_is = match reader.u32()? {
        0 => Membership::Unknown,
        wire::PTRACE_INSIDE => Membership::Inside,
        wire::PTRACE_OUTSIDE => Membership::Outside,
        _ => return Err(DecodeError::Value("membership")),
    };
    reader.u32()?;
    if !(wire::PTRACE_ATTACH..=wire::PTRACE_GETFD).contains(&op) {
        return Err(DecodeError::Value("ptrace operation"));
    }
    Ok(Fact::Ptrace {
        op,
        target,
        target_is,
    })
}

/// What is left of a record's bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_ne_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_ne_bytes(self.take()?))
    }

    fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_ne_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_ne_bytes(self.take()?))
    }

    fn walked(&mut self) -> Result<wire::Walked, DecodeError> {
        Ok(wire::Walked {
            len: self.u16()?,
            flags: self.u16()?,
        })
    }

    fn named(&mut self) -> Result<wire::Named, DecodeError> {
        Ok(wire::Named {
            base: self.walked()?,
            len: self.u16()?,
            flags: self.u16()?,
        })
    }

    /// Components, leaf first, to a path.
    fn path(
        &mut self,
        walked: wire::Walked,
        damaged: &mut bool,
    ) -> Result<KernelPath, DecodeError> {
        let mut encoded = self.bytes(usize::from(walked.len))?;
        let mut top = Top::Nowhere;
        for (flag, found) in [
            (wire::PATH_ABSOLUTE, Top::Namespace),
            (wire::PATH_ROOTED, Top::Root),
            (wire::PATH_INTERNAL, Top::Internal),
        ] {
            if walked.flags & flag != 0 {
                top = found;
            }
        }
        if walked.flags & wire::PATH_DEVICE != 0 {
            let (components, last) = encoded.split_last_chunk::<9>().ok_or(DecodeError::Path)?;
            let &[8, a, b, c, d, e, f, g, h] = last else {
                return Err(DecodeError::Path);
            };
            encoded = components;
            top = Top::Device(FileSystem {
                device: u32::from_ne_bytes([a, b, c, d]),
                magic: u32::from_ne_bytes([e, f, g, h]),
                newer: walked.flags & wire::PATH_NEWER != 0,
            });
        }
        let broken = walked.flags & (wire::PATH_TRUNCATED | wire::PATH_FAULT) != 0;
        *damaged |= broken;
        // Each component takes one byte more than its name in both forms, so the lengths are equal.
        let mut bytes = vec![0; encoded.len()];
        let mut end = bytes.len();
        let mut rest = encoded;
        while let Some((len, tail)) = rest.split_first() {
            let len = usize::from(*len);
            let (component, tail) = tail.split_at_checked(len).ok_or(DecodeError::Path)?;
            let start = end - len;
            bytes[start..end].copy_from_slice(component);
            end = start - 1;
            bytes[end] = b'/';
            rest = tail;
        }
        if bytes.is_empty() {
            bytes.push(b'/');
        }
        Ok(KernelPath {
            bytes,
            top,
            unhashed: walked.flags & wire::PATH_UNHASHED != 0,
            broken,
        })
    }

    fn name(&mut self, named: wire::Named, damaged: &mut bool) -> Result<Named, DecodeError> {
        let base = self.path(named.base, damaged)?;
        let string = self.bytes(usize::from(named.len))?.to_vec();
        let broken = named.flags & (wire::PATH_TRUNCATED | wire::PATH_FAULT) != 0;
        *damaged |= broken;
        Ok(Named {
            base,
            string,
            broken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of `kind` with this fixed part behind the header, and data.
    fn record(kind: u16, fixed: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(0u16.to_ne_bytes());
        bytes.extend(u32::try_from(data.len()).unwrap().to_ne_bytes());
        bytes.extend(5u64.to_ne_bytes());
        bytes.extend(4u64.to_ne_bytes());
        for word in [10u32, 11, 12, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(fixed);
        bytes.extend(data);
        bytes
    }

    fn file_fixed(len: u16, flags: u16, how: u16) -> Vec<u8> {
        let mut fixed = Vec::new();
        fixed.extend(7u64.to_ne_bytes());
        for word in [8u32, 9, 0o100_644, 1] {
            fixed.extend(word.to_ne_bytes());
        }
        for half in [len, flags, wire::FILE_OPEN, how] {
            fixed.extend(half.to_ne_bytes());
        }
        fixed.extend([0; 8]);
        fixed
    }

    fn path_of(data: &[u8], flags: u16) -> Result<KernelPath, DecodeError> {
        let len = u16::try_from(data.len()).unwrap();
        match decode(&record(wire::KIND_FILE, &file_fixed(len, flags, 3), data))?.fact {
            Fact::File(file) => Ok(file.path),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn components_come_leaf_first_and_leave_as_a_path() {
        let path = path_of(b"\x01f\x03dir\x03tmp", wire::PATH_ABSOLUTE).unwrap();
        assert_eq!(path.bytes, b"/tmp/dir/f");
        assert!(path.top == Top::Namespace && !path.broken);
    }

    #[test]
    fn a_path_says_where_it_begins() {
        let top = |data, flags| path_of(data, flags).map(|path| (path.top, path.bytes));
        let f = b"/f".to_vec();
        assert_eq!(top(b"\x01f", wire::PATH_ROOTED), Ok((Top::Root, f.clone())));
        assert_eq!(
            top(b"\x01f", wire::PATH_INTERNAL),
            Ok((Top::Internal, f.clone()))
        );
        assert_eq!(top(b"\x01f", 0), Ok((Top::Nowhere, f.clone())));
        let mut data = b"\x01f\x08".to_vec();
        data.extend((8u32 << 20 | 1).to_ne_bytes());
        data.extend(0xef53u32.to_ne_bytes());
        let disk = |newer| {
            Top::Device(FileSystem {
                device: 8 << 20 | 1,
                magic: 0xef53,
                newer,
            })
        };
        assert_eq!(top(&data, wire::PATH_DEVICE), Ok((disk(false), f.clone())));
        let newer = wire::PATH_DEVICE | wire::PATH_NEWER;
        assert_eq!(top(&data, newer), Ok((disk(true), f)));
        assert_eq!(top(b"\x01f", wire::PATH_DEVICE), Err(DecodeError::Path));
        assert_eq!(
            top(b"\x09abcdefghi", wire::PATH_DEVICE),
            Err(DecodeError::Path)
        );
    }

    #[test]
    fn no_component_is_the_root() {
        assert_eq!(path_of(b"", wire::PATH_ABSOLUTE).unwrap().bytes, b"/");
    }

    #[test]
    fn a_name_may_hold_any_byte() {
        assert_eq!(
            path_of(b"\x04a\n\x1b\xff", wire::PATH_ABSOLUTE)
                .unwrap()
                .bytes,
            b"/a\n\x1b\xff"
        );
    }

    #[test]
    fn a_component_longer_than_its_path_is_refused() {
        assert_eq!(path_of(b"\x05ab", 0), Err(DecodeError::Path));
    }

    #[test]
    fn a_cut_path_damages_the_event() {
        let bytes = record(
            wire::KIND_FILE,
            &file_fixed(2, wire::PATH_TRUNCATED, 1),
            b"\x01f",
        );
        let event = decode(&bytes).unwrap();
        assert!(event.damaged);
    }

    #[test]
    fn every_cut_of_a_record_is_refused_and_so_is_a_byte_too_many() {
        let whole = record(
            wire::KIND_FILE,
            &file_fixed(2, wire::PATH_ABSOLUTE, 1),
            b"\x01f",
        );
        assert!(decode(&whole).is_ok());
        for len in 0..whole.len() {
            assert!(decode(&whole[..len]).is_err(), "{len} of {}", whole.len());
        }
        let mut longer = whole;
        longer.push(0);
        assert_eq!(decode(&longer), Err(DecodeError::Long));
    }

    #[test]
    fn a_packet_of_a_resolver_is_read_with_its_ends() {
        let fixed = |protocol: u16, op: u16| {
            let mut fixed = Vec::new();
            for word in [5u64, 6] {
                fixed.extend(word.to_ne_bytes());
            }
            for addr in [[192, 0, 2, 53], [192, 0, 2, 7]] {
                fixed.extend(addr);
                fixed.extend([0; 12]);
            }
            for word in [7u32, 0, 3] {
                fixed.extend(word.to_ne_bytes());
            }
            for half in [4000, AF_INET, protocol, wire::TCP_SYN, op, 0] {
                fixed.extend(half.to_ne_bytes());
            }
            fixed
        };
        let read = |protocol, op| decode(&record(wire::KIND_DNS, &fixed(protocol, op), b"abc"));
        let Fact::Dns(dns) = read(IPPROTO_TCP, wire::DNS_ANSWER).unwrap().fact else {
            panic!("another fact");
        };
        let flow = Flow {
            netns: 5,
            socket: 6,
            resolver: "192.0.2.53".parse().unwrap(),
            local: "192.0.2.7".parse().unwrap(),
            local_port: 4000,
            tcp: true,
        };
        assert_eq!(dns.flow, flow);
        assert!(dns.answer && dns.syn);
        assert_eq!((dns.seq, dns.at, dns.total), (7, 0, 3));
        assert_eq!(dns.piece, b"abc");
        assert_eq!(
            read(1, wire::DNS_QUERY),
            Err(DecodeError::Value("transport"))
        );
        assert_eq!(read(IPPROTO_UDP, 3), Err(DecodeError::Value("direction")));
    }

    #[test]
    fn an_unknown_kind_is_an_error() {
        assert_eq!(decode(&record(99, &[], &[])), Err(DecodeError::Kind(99)));
    }

    #[test]
    fn an_unknown_operation_is_an_error() {
        assert_eq!(
            decode(&record(wire::KIND_NAME, &[77, 0, 0, 0, 0, 0, 0, 0], &[])),
            Err(DecodeError::Value("name operation"))
        );
    }

    #[test]
    fn random_bytes_never_panic() {
        // A fixed linear congruential sequence: the same bytes in every run.
        let mut state = 1u64;
        for kind in 0..20u16 {
            for len in 0..200 {
                let mut bytes = record(kind, &[], &[]);
                for _ in 0..len {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    bytes.push(state.to_le_bytes()[7]);
                }
                let _: Result<Event, DecodeError> = decode(&bytes);
            }
        }
    }
}
