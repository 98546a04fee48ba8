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
    path::FAULT,
    record::{Draft, Owner, Syscall},
    regs::Regs,
    scope,
};

/// `AF_` values (include/linux/socket.h).
const AF_UNSPEC: u16 = 0;
const AF_UNIX: u16 = 1;
pub const AF_INET: u16 = 2;
pub const AF_INET6: u16 = 10;
const AF_NETLINK: u16 = 16;
const AF_ALG: u16 = 38;
/// `SOCK_` types (include/linux/net.h).
const SOCK_DGRAM: u16 = 2;
const SOCK_RAW: u16 = 3;
const SOCK_TYPE_MASK: u16 = 0xf;
/// Bytes of a unix address that are read: more than `sizeof(struct sockaddr_un)`, a power of two less one.
const ADDRESS: u64 = 127;
/// Most messages of one sendmmsg (include/uapi/linux/uio.h).
const UIO_MAXIOV: u32 = 1024;
/// `struct mmsghdr`: a message header, a count and padding.
const MESSAGE_STRIDE: u64 = 64;

/// A socket was made; `sock_type` may have flags in it.
#[inline(always)]
pub fn created(slot: u32, family: u16, sock_type: u32, protocol: u16, ret: i32) {
    let sock_type = sock_type as u16 & SOCK_TYPE_MASK;
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
        netns: 0,
        ret,
        family,
        sock_type,
        protocol,
        op: SOCKET_CREATE,
        pad: 0,
    };
    emit::send_fixed::<_, KIND_SOCKET>(slot, &record);
}

/// bind or listen succeeded.
#[inline(always)]
pub fn bound(class: u8, slot: u32, regs: Regs) {
    let Some(sock) = kernel::sock_of(regs.arg::<0>() as u32) else {
        emit::attempted::<KIND_SOCKET>(slot);
        emit::lost::<KIND_SOCKET>(slot);
        return;
    };
    match sock.family() {
        Some(AF_INET | AF_INET6) => {
            let listens = class == class::LISTEN;
            has_address(slot, sock, if listens { INET_LISTEN } else { INET_BIND });
        }
        Some(AF_UNIX) if class == class::BIND => {
            unix_bound::<Syscall>(slot, sock);
        }
        Some(AF_UNIX | AF_NETLINK | AF_ALG) => {}
        Some(_) if class == class::LISTEN => {}
        Some(family) => {
            let address = Given::in_user_memory(regs.arg::<1>(), regs.arg::<2>());
            other::<Syscall>(slot, sock, family, SOCKET_BIND, 0, address);
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
pub fn unix_bound<O: Owner>(slot: u32, sock: Sock) {
    emit::attempted::<KIND_NAME>(slot);
    if try_unix_bound::<O>(slot, sock).is_none() {
        emit::lost::<KIND_NAME>(slot);
    }
}

#[inline(always)]
fn try_unix_bound<O: Owner>(slot: u32, sock: Sock) -> Option<()> {
    let mut draft = Draft::<O, NameRecord>::new(slot)?;
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
        how: 0,
        arg: 0,
        first,
        second: Named::default(),
    };
    draft.send::<KIND_NAME>(record);
    Some(())
}

/// Appends the name that a unix socket is bound to, without its family (`struct unix_address`).
#[inline(always)]
fn unix_address<O: Owner, T>(draft: &mut Draft<O, T>, sock: Address) -> Option<u16> {
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
pub fn is_inet(fd: u32) -> bool {
    let family = kernel::sock_of(fd)
        .and_then(Sock::family)
        .unwrap_or(AF_UNSPEC);
    family == AF_INET || family == AF_INET6
}

/// connect, sendto, sendmsg: anything that names a peer.
#[inline(always)]
pub fn addressed(class: u8, slot: u32, regs: Regs, ret: i64) {
    let fd = regs.arg::<0>() as u32;
    match class {
        class::CONNECT => {
            let address = Given::in_user_memory(regs.arg::<1>(), regs.arg::<2>());
            peer(slot, fd, ret, address, true);
        }
        class::SENDTO => {
            if regs.arg::<4>() != 0 {
                let address = Given::in_user_memory(regs.arg::<4>(), regs.arg::<5>());
                peer(slot, fd, ret, address, false);
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
pub fn sent_many(slot: u32, regs: Regs, ret: i64) {
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
            let address = Given::in_user_memory(header.name, u64::from(header.name_len));
            peer(slot, fd, ret, address, false);
        }
        Some(_) => {}
        None if ret >= 0 => emit::unseen(slot, UNSEEN_MESSAGES, 1),
        None => {}
    }
}

/// A socket address in memory.
#[derive(Clone, Copy)]
pub struct Given {
    at: u64,
    len: u64,
    in_kernel: bool,
}

impl Given {
    /// As the caller wrote it.
    #[inline(always)]
    fn in_user_memory(at: u64, len: u64) -> Self {
        Self {
            at,
            len,
            in_kernel: false,
        }
    }

    /// The kernel's own copy.
    #[inline(always)]
    pub fn in_kernel_memory(at: Address, len: u64) -> Self {
        Self {
            at: at.0,
            len,
            in_kernel: true,
        }
    }

    #[inline(always)]
    fn read<V: Copy>(self, offset: usize) -> Option<V> {
        if self.in_kernel {
            Address(self.at).read(offset)
        } else {
            kernel::user(self.at + offset as u64)
        }
    }

    /// Appends what is behind its first `skip` bytes.
    #[inline(always)]
    fn append<O: Owner, T>(self, draft: &mut Draft<O, T>, skip: u64) -> Option<u16> {
        let (at, len) = (self.at + skip, (self.len - skip) & ADDRESS);
        if self.in_kernel {
            draft.kernel_bytes::<ADDRESS>(at, len)
        } else {
            draft.user_bytes::<ADDRESS>(at, len)
        }
    }
}

#[inline(always)]
fn peer(slot: u32, fd: u32, ret: i64, address: Given, connect: bool) {
    let Some(sock) = kernel::sock_of(fd) else {
        return;
    };
    match sock.family() {
        Some(AF_INET | AF_INET6 | AF_NETLINK | AF_ALG) => {}
        Some(AF_UNIX) => unix_peer::<Syscall>(slot, sock, ret, address, connect),
        Some(family) => {
            let op = if connect { SOCKET_CONNECT } else { SOCKET_SEND };
            other::<Syscall>(slot, sock, family, op, ret, address);
        }
        None => {}
    }
}

/// A unix socket connected or sent, or tried to.
#[inline(always)]
pub fn unix_peer<O: Owner>(slot: u32, sock: Sock, ret: i64, address: Given, connect: bool) {
    // AF_UNSPEC dissolves a connection.
    if address.len < 3 || address.read::<u16>(0) == Some(AF_UNSPEC) {
        return;
    }
    emit::attempted::<KIND_UNIX>(slot);
    if try_unix_peer::<O>(slot, sock, ret, address, connect).is_none() {
        emit::lost::<KIND_UNIX>(slot);
    }
}

#[inline(always)]
fn try_unix_peer<O: Owner>(
    slot: u32,
    sock: Sock,
    ret: i64,
    address: Given,
    connect: bool,
) -> Option<()> {
    let mut draft = Draft::<O, UnixRecord>::new(slot)?;
    // After a connection the kernel knows the peer: its bound path and name are beyond the caller's reach.
    let found = if connect && ret == 0 {
        sock.0.follow(offset!(unix_sock_peer))
    } else {
        None
    };
    let (resolved, peer_pid) = match found {
        // The peer of a stream was made by the kernel on the caller's behalf; the caller's own socket has who listened.
        Some(peer) => bound_path(&mut draft, peer, sock.0),
        None => (Walked::default(), 0),
    };
    let start = address.read::<u8>(2).unwrap_or(0);
    let base = if start == 0 {
        Walked::default()
    } else {
        match cwd_or_root(start) {
            Some(path) => draft.walk(path),
            None => FAULT,
        }
    };
    let (len, flags) = match address.append(&mut draft, 2) {
        Some(len) => (len, 0),
        None => (0, PATH_FAULT),
    };
    let record = UnixRecord {
        header: emit::header(KIND_UNIX),
        ret: ret as i32,
        peer_pid,
        peer: resolved,
        name: Named { base, len, flags },
        op: if connect { UNIX_CONNECT } else { UNIX_SEND },
        sock_type: sock.sock_type(),
    };
    draft.send::<KIND_UNIX>(record);
    Some(())
}

/// Appends the path that a unix socket is bound to; and the process behind the peer of `knows`, 0 when unknown.
#[inline(always)]
fn bound_path<O: Owner, T>(
    draft: &mut Draft<O, T>,
    sock: Address,
    knows: Address,
) -> (Walked, u32) {
    let path = sock.at(offset!(unix_sock_path));
    let resolved = if path.follow(offset!(path_dentry)).is_some() {
        draft.walk(path)
    } else {
        Walked::default()
    };
    let pid = knows
        .follow(offset!(sock_sk_peer_pid))
        .and_then(|pid| pid.read(offset!(pid_numbers) + offset!(upid_nr)))
        .unwrap_or(0);
    (resolved, pid)
}

/// The current task connected a unix socket or sent from it, or tried to. Sockets of other families are left out.
#[inline(always)]
pub fn unix_tried<O: Owner>(sock: Sock, ret: i64, address: Given, connect: bool) {
    let Some(slot) = scope::current() else {
        return;
    };
    if sock.family() == Some(AF_UNIX) {
        unix_peer::<O>(slot, sock, ret, address, connect);
    }
}

/// The `struct sock` of a `struct socket`.
#[inline(always)]
pub fn of(socket: Address) -> Option<Sock> {
    Some(Sock(socket.follow(offset!(socket_sk))?))
}

/// The explicit destination of a `struct msghdr`, if it has one.
#[inline(always)]
pub fn destination(message: Address) -> Option<Given> {
    let name = message.follow(offset!(msghdr_msg_name))?;
    let len: i32 = message.read(offset!(msghdr_msg_namelen))?;
    (len > 0).then(|| Given::in_kernel_memory(name, len as u64))
}

/// An inet socket listens or was bound. A bound one is told when it takes datagrams: others cannot be reached yet.
#[inline(always)]
pub fn has_address(slot: u32, sock: Sock, op: u16) {
    if let Some(family @ (AF_INET | AF_INET6)) = sock.family()
        && (op == INET_LISTEN || sock.sock_type() == SOCK_DGRAM)
    {
        inet_bound(slot, sock, family, op);
    }
}

/// The kernel is about to deliver a datagram of the current task from one unix socket to another (`struct socket`).
#[inline(always)]
pub fn unix_sending<O: Owner>(from: Address, to: Address) {
    let Some(slot) = scope::current() else {
        return;
    };
    let (Some(from), Some(to)) = (
        from.follow(offset!(socket_sk)),
        to.follow(offset!(socket_sk)),
    ) else {
        return;
    };
    // Where it is connected to was recorded then.
    if from.follow(offset!(unix_sock_peer)) == Some(to) {
        return;
    }
    emit::attempted::<KIND_UNIX>(slot);
    if try_unix_sending::<O>(slot, Sock(from), to).is_none() {
        emit::lost::<KIND_UNIX>(slot);
    }
}

#[inline(always)]
fn try_unix_sending<O: Owner>(slot: u32, from: Sock, to: Address) -> Option<()> {
    let mut draft = Draft::<O, UnixRecord>::new(slot)?;
    let (peer, peer_pid) = bound_path(&mut draft, to, to);
    // A socket without a path can have an abstract name, or none when it is half of a pair.
    let len = if peer.flags == 0 && peer.len == 0 {
        unix_address(&mut draft, to)?
    } else {
        0
    };
    let record = UnixRecord {
        header: emit::header(KIND_UNIX),
        ret: 0,
        peer_pid,
        peer,
        name: Named {
            base: Walked::default(),
            len,
            flags: 0,
        },
        op: UNIX_SEND,
        sock_type: from.sock_type(),
    };
    draft.send::<KIND_UNIX>(record);
    Some(())
}

/// A socket of a family without hooks of its own is bound, connected or sends, with an address.
#[inline(always)]
pub fn used<O: Owner>(sock: Sock, op: u16, ret: i64, address: Given) {
    let Some(slot) = scope::current() else {
        return;
    };
    match sock.family() {
        Some(AF_INET | AF_INET6 | AF_UNIX | AF_NETLINK | AF_ALG) => {}
        Some(family) => other::<O>(slot, sock, family, op, ret, address),
        None => {
            emit::attempted::<KIND_SOCKET>(slot);
            emit::lost::<KIND_SOCKET>(slot);
        }
    }
}

/// A socket of another family, with the address as the caller gave it.
#[inline(always)]
fn other<O: Owner>(slot: u32, sock: Sock, family: u16, op: u16, ret: i64, address: Given) {
    emit::attempted::<KIND_SOCKET>(slot);
    let Some(mut draft) = Draft::<O, SocketRecord>::new(slot) else {
        emit::lost::<KIND_SOCKET>(slot);
        return;
    };
    if address.append(&mut draft, 0).is_none() {
        emit::lost::<KIND_SOCKET>(slot);
        return;
    }
    let record = SocketRecord {
        header: emit::header(KIND_SOCKET),
        netns: sock.netns(),
        ret: ret as i32,
        family,
        sock_type: sock.sock_type(),
        protocol: sock.protocol(),
        op,
        pad: 0,
    };
    draft.send::<KIND_SOCKET>(record);
}
