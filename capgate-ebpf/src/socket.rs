//! Sockets by system call: unix peers, what listens, and families that have no hook of their own.

use aya_ebpf::helpers::generated::bpf_loop;
use capgate_common::event::{
    INET_BIND, INET_LISTEN, InetRecord, KIND_INET, KIND_NAME, KIND_SOCKET, KIND_UNIX, NAME_BIND,
    NameRecord, Named, PATH_FAULT, SOCKET_BIND, SOCKET_CONNECT, SOCKET_CREATE, SOCKET_SEND,
    SocketRecord, UNIX_CONNECT, UNIX_SEND, UNSEEN_MESSAGES, UnixRecord, Walked,
};

use crate::{
    arch::class,
    emit,
    file::MessageHeader,
    kernel::{self, Address, Sock, offset},
    name::cwd_or_root,
    record::{Draft, Syscall},
    syscall::Regs,
};

/// `AF_` values (include/linux/socket.h).
const AF_UNSPEC: u16 = 0;
const AF_UNIX: u16 = 1;
pub(crate) const AF_INET: u16 = 2;
pub(crate) const AF_INET6: u16 = 10;
const AF_NETLINK: u16 = 16;
const AF_ALG: u16 = 38;
/// `SOCK_` types (include/linux/net.h).
const SOCK_DGRAM: u16 = 2;
const SOCK_RAW: u16 = 3;
const SOCK_TYPE_MASK: u64 = 0xf;
/// Bytes of a unix address that are read: more than `sizeof(struct sockaddr_un)`, a power of two less one.
const ADDRESS: u64 = 127;
/// Most messages of one sendmmsg (include/uapi/linux/uio.h).
const UIO_MAXIOV: u32 = 1024;
/// `struct mmsghdr`: a message header, a count and padding.
const MESSAGE_STRIDE: u64 = 64;

/// socket() succeeded.
#[inline(always)]
pub(crate) fn created(slot: u32, regs: Regs, ret: i64) {
    let family = regs.arg::<0>() as u16;
    let sock_type = (regs.arg::<1>() & SOCK_TYPE_MASK) as u16;
    let ordinary = match family {
        AF_UNIX | AF_NETLINK | AF_ALG => true,
        AF_INET | AF_INET6 => sock_type != SOCK_RAW,
        _ => false,
    };
    if ordinary {
        return;
    }
    let record = SocketRecord {
        header: emit::header(KIND_SOCKET),
        ret: ret as i32,
        family,
        sock_type,
        protocol: regs.arg::<2>() as u16,
        op: SOCKET_CREATE,
        pad: 0,
    };
    emit::send_fixed::<_, KIND_SOCKET>(slot, &record);
}

/// bind or listen succeeded.
#[inline(always)]
pub(crate) fn bound(class: u8, slot: u32, regs: Regs) {
    let Some(sock) = kernel::sock_of(regs.arg::<0>() as u32) else {
        emit::attempted::<KIND_SOCKET>(slot);
        emit::lost::<KIND_SOCKET>(slot);
        return;
    };
    match sock.family() {
        Some(family @ (AF_INET | AF_INET6)) => {
            let listens = class == class::LISTEN;
            if listens || sock.sock_type() == SOCK_DGRAM {
                inet_bound(
                    slot,
                    sock,
                    family,
                    if listens { INET_LISTEN } else { INET_BIND },
                );
            }
        }
        Some(AF_UNIX) if class == class::BIND => {
            emit::attempted::<KIND_NAME>(slot);
            if unix_bound(slot, sock).is_none() {
                emit::lost::<KIND_NAME>(slot);
            }
        }
        Some(AF_UNIX | AF_NETLINK | AF_ALG) => {}
        Some(_) if class == class::LISTEN => {}
        Some(family) => {
            other(
                slot,
                sock,
                family,
                SOCKET_BIND,
                0,
                regs.arg::<1>(),
                regs.arg::<2>(),
            );
        }
        None => {
            emit::attempted::<KIND_SOCKET>(slot);
            emit::lost::<KIND_SOCKET>(slot);
        }
    }
}

#[inline(always)]
fn inet_bound(slot: u32, sock: Sock, family: u16, op: u16) {
    let mut addr = [0u8; 16];
    if family == AF_INET {
        let v4: [u8; 4] = sock
            .0
            .read(offset!(sock_common_skc_rcv_saddr))
            .unwrap_or_default();
        addr[0] = v4[0];
        addr[1] = v4[1];
        addr[2] = v4[2];
        addr[3] = v4[3];
    } else {
        addr = sock
            .0
            .read(offset!(sock_common_skc_v6_rcv_saddr))
            .unwrap_or_default();
    }
    let record = InetRecord {
        header: emit::header(KIND_INET),
        netns: sock.netns(),
        addr,
        local: [0; 16],
        scope_id: 0,
        port: sock.0.read(offset!(sock_common_skc_num)).unwrap_or(0),
        local_port: 0,
        family,
        sock_type: sock.sock_type(),
        protocol: sock.protocol(),
        op,
    };
    emit::send_fixed::<_, KIND_INET>(slot, &record);
}

/// A unix socket got a name: the kernel's own path of it, or its abstract name.
#[inline(always)]
fn unix_bound(slot: u32, sock: Sock) -> Option<()> {
    let mut draft = Draft::<Syscall, NameRecord>::new()?;
    let path = sock.0.at(offset!(unix_sock_path));
    let first = if path.follow(offset!(path_dentry)).is_some() {
        Named {
            base: draft.walk(path),
            len: 0,
            flags: 0,
        }
    } else {
        Named {
            base: Walked::default(),
            len: unix_address(&mut draft, sock.0)?,
            flags: 0,
        }
    };
    let record = NameRecord {
        header: emit::header(KIND_NAME),
        op: NAME_BIND,
        pad: 0,
        arg: 0,
        first,
        second: Named::default(),
    };
    // SAFETY: scratch memory is larger than any record and aligned for it.
    unsafe { draft.fixed().write(record) };
    draft.send::<KIND_NAME>(slot);
    Some(())
}

/// Appends the name that a unix socket is bound to, without its family (`struct unix_address`).
#[inline(always)]
fn unix_address<T>(draft: &mut Draft<Syscall, T>, sock: Address) -> Option<u16> {
    let address = sock.follow(offset!(unix_sock_addr))?;
    let len = address.read::<u32>(offset!(unix_address_len))?;
    if !(2..=112).contains(&len) {
        return None;
    }
    draft.kernel_bytes::<ADDRESS>(
        address.at(offset!(unix_address_name) + 2).0,
        u64::from(len) - 2,
    )
}

/// Whether a descriptor is an inet socket.
#[inline(always)]
pub(crate) fn is_inet(fd: u32) -> bool {
    let family = kernel::sock_of(fd)
        .and_then(Sock::family)
        .unwrap_or(AF_UNSPEC);
    family == AF_INET || family == AF_INET6
}

/// connect, sendto, sendmsg: anything that names a peer.
#[inline(always)]
pub(crate) fn addressed(class: u8, slot: u32, regs: Regs, ret: i64) {
    let fd = regs.arg::<0>() as u32;
    match class {
        class::CONNECT => peer(slot, fd, ret, regs.arg::<1>(), regs.arg::<2>(), true),
        class::SENDTO => {
            if regs.arg::<4>() != 0 {
                peer(slot, fd, ret, regs.arg::<4>(), regs.arg::<5>(), false);
            }
        }
        _ => {
            message(slot, fd, ret, regs.arg::<1>());
        }
    }
}

/// The messages of one sendmmsg.
#[repr(C)]
struct Messages {
    list: u64,
    ret: i64,
    slot: u32,
    fd: u32,
}

extern "C" fn send_one(index: u64, messages: *mut Messages) -> i64 {
    // SAFETY: bpf_loop passes the pointer that `sent_many` gave it, to a value that outlives the loop.
    let messages = unsafe { &*messages };
    if index as i64 >= messages.ret {
        return 1;
    }
    message(
        messages.slot,
        messages.fd,
        messages.ret,
        messages.list + index * MESSAGE_STRIDE,
    );
    0
}

/// sendmmsg, `ret` messages sent.
#[inline(always)]
pub(crate) fn sent_many(slot: u32, regs: Regs, ret: i64) {
    let fd = regs.arg::<0>() as u32;
    if is_inet(fd) {
        return;
    }
    if ret > i64::from(UIO_MAXIOV) {
        emit::unseen(slot, UNSEEN_MESSAGES, ret as u64);
    }
    let mut messages = Messages {
        list: regs.arg::<1>(),
        ret,
        slot,
        fd,
    };
    // SAFETY: `send_one` matches the callback that bpf_loop expects, `messages` outlives the call.
    unsafe {
        bpf_loop(
            UIO_MAXIOV,
            send_one as *mut _,
            (&raw mut messages).cast(),
            0,
        );
    }
}

#[inline(always)]
fn message(slot: u32, fd: u32, ret: i64, header: u64) {
    match kernel::user::<MessageHeader>(header) {
        Some(header) if header.name != 0 => {
            peer(
                slot,
                fd,
                ret,
                header.name,
                u64::from(header.name_len),
                false,
            );
        }
        Some(_) => {}
        None if ret >= 0 => emit::unseen(slot, UNSEEN_MESSAGES, 1),
        None => {}
    }
}

#[inline(always)]
fn peer(slot: u32, fd: u32, ret: i64, address: u64, len: u64, connect: bool) {
    let Some(sock) = kernel::sock_of(fd) else {
        return;
    };
    match sock.family() {
        Some(AF_INET | AF_INET6 | AF_NETLINK | AF_ALG) => {}
        Some(AF_UNIX) => {
            // AF_UNSPEC dissolves a connection.
            if len < 3 || kernel::user::<u16>(address) == Some(AF_UNSPEC) {
                return;
            }
            emit::attempted::<KIND_UNIX>(slot);
            if unix_peer(slot, sock, ret, address, len, connect).is_none() {
                emit::lost::<KIND_UNIX>(slot);
            }
        }
        Some(family) => {
            let op = if connect { SOCKET_CONNECT } else { SOCKET_SEND };
            other(slot, sock, family, op, ret, address, len);
        }
        None => {}
    }
}

#[inline(always)]
fn unix_peer(slot: u32, sock: Sock, ret: i64, address: u64, len: u64, connect: bool) -> Option<()> {
    let mut draft = Draft::<Syscall, UnixRecord>::new()?;
    // After a connection the kernel knows the peer: its bound path and name are beyond the caller's reach.
    let found = if connect && ret == 0 {
        sock.0.follow(offset!(unix_sock_peer))
    } else {
        None
    };
    let mut resolved = Walked::default();
    let mut peer_pid = 0;
    if let Some(peer) = found {
        let path = peer.at(offset!(unix_sock_path));
        if path.follow(offset!(path_dentry)).is_some() {
            resolved = draft.walk(path);
        }
        peer_pid = peer
            .follow(offset!(sock_sk_peer_pid))
            .and_then(|pid| pid.read(offset!(pid_numbers) + offset!(upid_nr)))
            .unwrap_or(0);
    }
    let start = kernel::user::<u8>(address + 2).unwrap_or(0);
    let base = if start == 0 {
        Walked::default()
    } else {
        match cwd_or_root(start) {
            Some(path) => draft.walk(path),
            None => Walked {
                len: 0,
                flags: PATH_FAULT,
            },
        }
    };
    let name_len = len - 2;
    let (name_len, flags) = match draft.user_bytes::<ADDRESS>(address + 2, name_len & ADDRESS) {
        Some(len) => (len, 0),
        None => (0, PATH_FAULT),
    };
    let record = UnixRecord {
        header: emit::header(KIND_UNIX),
        ret: ret as i32,
        peer_pid,
        peer: resolved,
        name: Named {
            base,
            len: name_len,
            flags,
        },
        op: if connect { UNIX_CONNECT } else { UNIX_SEND },
        sock_type: sock.sock_type(),
    };
    // SAFETY: scratch memory is larger than any record and aligned for it.
    unsafe { draft.fixed().write(record) };
    draft.send::<KIND_UNIX>(slot);
    Some(())
}

/// A socket of another family, with the address as the caller gave it.
#[inline(always)]
fn other(slot: u32, sock: Sock, family: u16, op: u16, ret: i64, address: u64, len: u64) {
    emit::attempted::<KIND_SOCKET>(slot);
    let Some(mut draft) = Draft::<Syscall, SocketRecord>::new() else {
        emit::lost::<KIND_SOCKET>(slot);
        return;
    };
    if draft.user_bytes::<ADDRESS>(address, len).is_none() {
        emit::lost::<KIND_SOCKET>(slot);
        return;
    }
    let record = SocketRecord {
        header: emit::header(KIND_SOCKET),
        ret: ret as i32,
        family,
        sock_type: sock.sock_type(),
        protocol: sock.protocol(),
        op,
        pad: 0,
    };
    // SAFETY: scratch memory is larger than any record and aligned for it.
    unsafe { draft.fixed().write(record) };
    draft.send::<KIND_SOCKET>(slot);
}
