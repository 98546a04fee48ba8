//! Facts as the kernel has them -> what the columns are made of. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::event::{File, Inet, InetOp, Socket};

/// `S_IFMT`, `S_IFCHR` (include/uapi/linux/stat.h).
const TYPE: u32 = 0o170_000;
const CHARACTER: u32 = 0o020_000;

/// `IPPROTO_` values (include/uapi/linux/in.h).
const TCP: u16 = 6;
const UDP: u16 = 17;
const UDPLITE: u16 = 136;
const MPTCP: u16 = 262;
/// `SOCK_` types (include/linux/net.h).
const SOCK_STREAM: u16 = 1;
const SOCK_DGRAM: u16 = 2;
const SOCK_RAW: u16 = 3;
/// `AF_` values (include/linux/socket.h).
const AF_UNSPEC: u16 = 0;
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const AF_NETLINK: u16 = 16;
const AF_PACKET: u16 = 17;
const AF_ALG: u16 = 38;
const AF_VSOCK: u16 = 40;

/// Whether a file is a device that holds nothing, by its number: null, zero, full, tty, ptmx and pseudo terminals.
#[must_use]
pub fn holds_nothing(file: &File) -> bool {
    if file.mode & TYPE != CHARACTER {
        return false;
    }
    // `dev_t` of the kernel: include/linux/kdev_t.h. The numbers: Documentation/admin-guide/devices.txt.
    let (major, minor) = (file.rdev >> 20, file.rdev & 0xf_ffff);
    matches!((major, minor), (1, 3 | 5 | 7) | (5, 0 | 2) | (136..=143, _))
}

/// Whether a file was made without a name (`O_TMPFILE`): the kernel then calls it `#INODE` and keeps it in no directory.
#[must_use]
pub fn is_nameless(file: &File) -> bool {
    let leaf = file
        .path
        .bytes
        .rsplit(|&byte| byte == b'/')
        .next()
        .unwrap_or_default();
    file.path.unhashed
        && leaf
            .strip_prefix(b"#")
            .is_some_and(|ino| ino == file.id.ino.to_string().as_bytes())
}

/// What carries a connection; a listener only serves its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP, MPTCP included.
    Tcp,
    /// UDP, UDP-Lite included.
    Udp,
    /// Another one, by its `IPPROTO_` number.
    Other(u16),
}

/// How an inet record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A connection or datagram between ports.
    Port(Transport),
    /// A packet of a protocol without ports, or from a raw socket.
    Raw(u16),
}

/// How an inet record counts.
#[must_use]
pub fn channel(inet: &Inet) -> Channel {
    // Of a packet only the ports of UDP are known, and TCP is recorded when it connects.
    let portless = inet.op == InetOp::Egress && !matches!(inet.protocol, UDP | UDPLITE);
    if inet.sock_type == SOCK_RAW || portless {
        return Channel::Raw(inet.protocol);
    }
    match (inet.protocol, inet.sock_type) {
        (TCP | MPTCP, _) | (0, SOCK_STREAM) => Channel::Port(Transport::Tcp),
        (UDP | UDPLITE, _) | (0, SOCK_DGRAM) => Channel::Port(Transport::Udp),
        // SCTP, DCCP and the like: streams with ports.
        (other, _) if inet.sock_type != SOCK_DGRAM && inet.sock_type != 0 => {
            Channel::Port(Transport::Other(other))
        }
        (other, _) => Channel::Raw(other),
    }
}

/// A destination as the kernel acts on it: IPv4-mapped is IPv4, and the unspecified address is the loopback.
#[must_use]
pub fn destination(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        addr => addr,
    }
}

/// What a record of a socket without a hook of its own is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Nothing that counts: netlink, crypto, a connection dissolved.
    Nothing,
    /// A raw IP socket of a protocol.
    Raw {
        /// Destination, if the call had one.
        to: Option<IpAddr>,
        /// Protocol of the socket.
        protocol: u16,
    },
    /// A packet socket.
    Packet {
        /// Interface, if the call had one.
        index: Option<u32>,
    },
    /// A virtual socket.
    Vsock {
        /// Peer, if the call had one: context id and port.
        peer: Option<(u32, u32)>,
    },
    /// A family that this version does not understand.
    Unknown,
}

/// What a socket record is about.
#[must_use]
pub fn subject(socket: &Socket) -> Subject {
    let addr = Address(&socket.addr);
    match socket.family {
        // Unix sockets have records of their own.
        AF_UNSPEC | AF_UNIX | AF_NETLINK | AF_ALG => Subject::Nothing,
        AF_INET | AF_INET6 => Subject::Raw {
            to: addr.ip().map(destination),
            protocol: socket.protocol,
        },
        // struct sockaddr_ll: family, protocol, interface.
        AF_PACKET => Subject::Packet {
            index: addr.word(4).filter(|&index| index != 0),
        },
        // struct sockaddr_vm: family, reserved, port, cid.
        AF_VSOCK => Subject::Vsock {
            peer: addr.word(8).zip(addr.word(4)),
        },
        _ => Subject::Unknown,
    }
}

/// A `struct sockaddr` of some family.
struct Address<'a>(&'a [u8]);

impl Address<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn word(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }

    /// struct sockaddr_in: family, port, address; struct sockaddr_in6: family, port, flow, address.
    fn ip(&self) -> Option<IpAddr> {
        match self.array(0).map(u16::from_ne_bytes)? {
            AF_INET => Some(IpAddr::V4(Ipv4Addr::from(self.array::<4>(4)?))),
            AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(self.array::<16>(8)?))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
