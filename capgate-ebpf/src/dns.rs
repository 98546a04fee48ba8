//! Packets between a job's sockets and the resolvers that it is configured for: what names the addresses that it connects to.

use aya_ebpf::{
    bindings::bpf_sock,
    btf_maps::{HashMap, PerCpuArray},
    helpers::{
        bpf_get_socket_cookie, bpf_ktime_get_boot_ns, bpf_probe_read_kernel, bpf_sk_fullsock,
        generated::bpf_skb_load_bytes,
    },
    macros::btf_map,
    programs::SkBuffContext,
};
use capgate_common::{
    event::{DNS_ANSWER, DNS_PIECE, DNS_QUERY, DnsRecord, Header, KIND_DNS, ResolverKey, TCP_SYN},
    limits::{MAX_JOBS, RESOLVERS_PER_JOB},
};

use crate::{
    emit,
    enforce::Destination,
    forward,
    kernel::{self, Address, Sock, offset},
    net::{IPPROTO_TCP, IPPROTO_UDP, SOCK_RAW, put},
    record::{exchange, opaque},
    scope,
    socket::{AF_INET, AF_INET6},
};

const _: () = assert!(DNS_PIECE.is_power_of_two());

/// Where resolvers listen.
const PORT: u16 = 53;
/// Shortest packet of interest: an IPv6 header, which is as long as those of IPv4 and UDP and a message's own together.
const SHORTEST: usize = 40;
/// `sizeof(struct udphdr)`.
const UDP_HEADER: u32 = 8;
/// Most pieces of one packet: the largest that a socket is given but for jumbograms, of which the rest is lost.
const PIECES: u32 = 17;
/// Packets of one processor that can be looked at one inside the other.
const PLACES: u32 = 4;

/// The resolvers of each job.
#[btf_map]
static RESOLVERS: HashMap<ResolverKey, u8, { (MAX_JOBS * RESOLVERS_PER_JOB) as usize }> =
    HashMap::new();

/// Room for one record.
#[repr(C, align(8))]
struct Room {
    record: DnsRecord,
    piece: [u8; DNS_PIECE],
    /// Not 0 while a program uses it: what a softirq brings comes in between.
    busy: u64,
}

#[btf_map]
static DNS_ROOM: PerCpuArray<Room, { PLACES as usize }> = PerCpuArray::new();

/// A packet leaves a socket.
#[inline(always)]
pub fn sent(ctx: &SkBuffContext) {
    look(ctx, DNS_QUERY);
}

/// A packet is about to be given to a socket.
#[inline(always)]
pub fn received(ctx: &SkBuffContext) {
    look(ctx, DNS_ANSWER);
}

/// Every packet of the host comes here while a job runs: the port is asked for first, and whether it is local.
#[inline(always)]
fn look(ctx: &SkBuffContext, op: u16) -> Option<()> {
    let head: [u8; SHORTEST] = ctx.load(0).ok()?;
    let is_v4 = head[0] >> 4 == 4;
    let (protocol, mut at) = if is_v4 {
        (head[9], u32::from(head[0] & 0xf) * 4)
    } else {
        (head[6], SHORTEST as u32)
    };
    let odd = !is_v4 && is_extension(protocol);
    if odd {
        at = transport(ctx)?;
    } else if protocol != IPPROTO_UDP && protocol != IPPROTO_TCP {
        return None;
    }
    let ports: [u8; 4] = ctx.load(at as usize).ok()?;
    let from = u16::from_be_bytes([ports[0], ports[1]]);
    let to = u16::from_be_bytes([ports[2], ports[3]]);
    let (source, target) = addresses(&head, is_v4);
    let (local, remote, local_port, port) = if op == DNS_QUERY {
        (source, target, from, to)
    } else {
        (target, source, to, from)
    };
    let family = if is_v4 { AF_INET } else { AF_INET6 };
    let peer = if op == DNS_QUERY {
        connected(ctx, is_v4)
    } else {
        None
    };
    let to = Destination::new(family, &remote, 0);
    if port != PORT && peer.is_none() && !(to.is_loopback() && forward::in_use()) {
        return None;
    }
    let slot = scope::packet(ctx)?.index;
    let remote = if port == PORT && is_resolver(slot, &remote, is_v4) {
        remote
    } else if let Some(peer) = peer
        && is_resolver(slot, &peer, is_v4)
    {
        // The host sends it elsewhere (DNAT); what comes back says that it comes from there.
        peer
    } else {
        // Of an enforced job the daemon asks; as far as the job knows it talks to the resolver.
        forward::as_of(family, &forward::stands_for(slot, &to, port)?)
    };
    let mut record = DnsRecord {
        header: Header {
            kind: KIND_DNS,
            ..Header::default()
        },
        local_port,
        family,
        op,
        local,
        remote,
        ..DnsRecord::default()
    };
    let found = Found {
        slot,
        at,
        protocol: if odd { None } else { Some(protocol) },
    };
    if capture(ctx, &found, &mut record).is_none() {
        emit::attempted::<KIND_DNS>(slot);
        emit::lost::<KIND_DNS>(slot);
    }
    Some(())
}

/// A packet between a job and its resolver.
struct Found {
    slot: u32,
    /// Where the header of the transport begins.
    at: u32,
    /// `None` behind other headers: it is the socket's.
    protocol: Option<u8>,
}

/// Completes the record and sends it. `None` for a packet that cannot be looked at.
#[inline(always)]
fn capture(ctx: &SkBuffContext, found: &Found, record: &mut DnsRecord) -> Option<()> {
    let sock = Socket::of(ctx)?;
    if sock.sock_type == SOCK_RAW {
        // A copy, or a packet that is recorded as raw.
        return Some(());
    }
    let protocol = found.protocol.unwrap_or(sock.protocol as u8);
    record.protocol = u16::from(protocol);
    record.netns = sock.sock.netns();
    let skb = ctx.skb.skb;
    // SAFETY: the context is the program's own; the verifier checks each access.
    let (len, segment) = unsafe {
        record.cookie = bpf_get_socket_cookie(skb.cast());
        (
            core::ptr::read_volatile(&raw const (*skb).len),
            core::ptr::read_volatile(&raw const (*skb).gso_size),
        )
    };
    let header = if protocol == IPPROTO_TCP {
        let tcp: [u8; 14] = ctx.load(found.at as usize).ok()?;
        record.seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        record.tcp_flags = u16::from(tcp[13]);
        u32::from(tcp[12] >> 4) * 4
    } else if segment == 0 {
        UDP_HEADER
    } else {
        // Several datagrams in one packet.
        return None;
    };
    let payload = found.at + header;
    if len < payload {
        return None;
    }
    record.total = len - payload;
    if protocol == IPPROTO_TCP && record.total == 0 && record.tcp_flags & TCP_SYN == 0 {
        return Some(());
    }
    // By reads of the task: programs of this kind have no helper for the current task's cgroups before 6.3.
    if record.op == DNS_QUERY && scope::task(kernel::current()).unwrap_or(scope::NONE) == found.slot
    {
        record.header = emit::header(KIND_DNS);
    } else {
        // SAFETY: the helper has no preconditions.
        record.header.time_ns = unsafe { bpf_ktime_get_boot_ns() };
    }
    send(ctx, found.slot, payload, record);
    Some(())
}

/// Headers of IPv6 that stand before another one (RFC 8200, 4.1; RFC 4302).
#[inline(always)]
fn is_extension(next: u8) -> bool {
    matches!(next, 0 | 43 | 44 | 51 | 60)
}

/// Where the header of the transport begins, from that of the network.
#[inline(always)]
fn transport(ctx: &SkBuffContext) -> Option<u32> {
    let skb = plain(ctx.skb.skb.cast())?;
    let transport: u16 = skb.read(offset!(sk_buff_transport_header))?;
    let network: u16 = skb.read(offset!(sk_buff_network_header))?;
    Some(u32::from(transport.wrapping_sub(network)))
}

/// A pointer as a number: the verifier allows no arithmetic on it, and read back from the stack it has no type.
#[inline(always)]
fn plain(pointer: *const u8) -> Option<Address> {
    // SAFETY: reads the program's own stack.
    unsafe { bpf_probe_read_kernel(&raw const pointer) }
        .ok()
        .map(|pointer| Address(pointer as u64))
}

/// The address that the socket is connected to, when that is at port 53.
#[inline(always)]
fn connected(ctx: &SkBuffContext, is_v4: bool) -> Option<[u8; 16]> {
    let mut addr = [0u8; 16];
    // SAFETY: the context is the program's own; the verifier checks each access. Single words, since it refuses wider loads.
    unsafe {
        let sock: *mut bpf_sock =
            core::ptr::read_volatile(&raw const (*ctx.skb.skb).__bindgen_anon_2.sk);
        if sock.is_null()
            || u16::from_be(core::ptr::read_volatile(&raw const (*sock).dst_port)) != PORT
        {
            return None;
        }
        if is_v4 {
            put(
                &mut addr,
                0,
                core::ptr::read_volatile(&raw const (*sock).dst_ip4),
            );
        } else {
            put(
                &mut addr,
                0,
                core::ptr::read_volatile(&raw const (*sock).dst_ip6[0]),
            );
            put(
                &mut addr,
                4,
                core::ptr::read_volatile(&raw const (*sock).dst_ip6[1]),
            );
            put(
                &mut addr,
                8,
                core::ptr::read_volatile(&raw const (*sock).dst_ip6[2]),
            );
            put(
                &mut addr,
                12,
                core::ptr::read_volatile(&raw const (*sock).dst_ip6[3]),
            );
        }
    }
    Some(addr)
}

/// Source and target; IPv4 in the first four bytes.
#[inline(always)]
fn addresses(head: &[u8; SHORTEST], is_v4: bool) -> ([u8; 16], [u8; 16]) {
    let (mut source, mut target) = ([0u8; 16], [0u8; 16]);
    if is_v4 {
        source[..4].copy_from_slice(&head[12..16]);
        target[..4].copy_from_slice(&head[16..20]);
    } else {
        source.copy_from_slice(&head[8..24]);
        target.copy_from_slice(&head[24..40]);
    }
    (source, target)
}

#[inline(always)]
fn is_resolver(slot: u32, addr: &[u8; 16], is_v4: bool) -> bool {
    let mut key = ResolverKey {
        addr: *addr,
        slot,
        pad: 0,
    };
    if is_v4 {
        key.addr = [0; 16];
        key.addr[10] = 0xff;
        key.addr[11] = 0xff;
        key.addr[12..].copy_from_slice(&addr[..4]);
    }
    // SAFETY: the value is never used as a reference, only its presence counts.
    unsafe { RESOLVERS.get(key) }.is_some()
}

/// The socket of a packet.
struct Socket {
    sock: Sock,
    sock_type: u32,
    protocol: u32,
}

impl Socket {
    #[inline(always)]
    fn of(ctx: &SkBuffContext) -> Option<Self> {
        // SAFETY: the context is the program's own, and the helper is given a socket that is not null.
        let (sock, sock_type, protocol) = unsafe {
            let sock: *mut bpf_sock =
                core::ptr::read_volatile(&raw const (*ctx.skb.skb).__bindgen_anon_2.sk);
            if sock.is_null() {
                return None;
            }
            let full = bpf_sk_fullsock(sock);
            if full.is_null() {
                return None;
            }
            (
                sock,
                core::ptr::read_volatile(&raw const (*full).type_),
                core::ptr::read_volatile(&raw const (*full).protocol),
            )
        };
        Some(Self {
            sock: Sock(plain(sock.cast())?),
            sock_type,
            protocol,
        })
    }
}

/// Sends what a packet carries from `payload` on, in pieces, or counts it as lost.
#[inline(always)]
fn send(ctx: &SkBuffContext, slot: u32, payload: u32, record: &DnsRecord) {
    emit::attempted::<KIND_DNS>(slot);
    let Some(room) = take() else {
        emit::lost::<KIND_DNS>(slot);
        return;
    };
    // SAFETY: the pointer comes from a successful lookup, and the place is this program's.
    let room = unsafe { &mut *room };
    if pieces(ctx, slot, payload, record, room).is_none() {
        emit::lost::<KIND_DNS>(slot);
    }
    exchange(&raw mut room.busy, 0);
}

#[inline(always)]
fn take() -> Option<*mut Room> {
    for place in 0..PLACES {
        let room = DNS_ROOM.get_ptr_mut(place)?;
        // SAFETY: the pointer comes from a successful lookup.
        if exchange(unsafe { &raw mut (*room).busy }, 1) == 0 {
            return Some(room);
        }
    }
    None
}

/// `None` when the last piece that was set out for is not there.
#[inline(always)]
fn pieces(
    ctx: &SkBuffContext,
    slot: u32,
    payload: u32,
    record: &DnsRecord,
    room: &mut Room,
) -> Option<()> {
    room.record = *record;
    let total = record.total;
    for number in 0..PIECES {
        let at = number * DNS_PIECE as u32;
        if number > 0 {
            if at >= total {
                return Some(());
            }
            emit::attempted::<KIND_DNS>(slot);
        }
        let left = u64::from(total.wrapping_sub(at));
        let len = opaque(if left < DNS_PIECE as u64 {
            left
        } else {
            DNS_PIECE as u64
        });
        if len > DNS_PIECE as u64 {
            return None;
        }
        if len > 0 {
            // Before 6.8 the verifier learns nothing from a comparison with 0: the bounds are written out.
            let size = (opaque(len - 1) & (DNS_PIECE as u64 - 1)) + 1;
            // SAFETY: as many bytes fit into the piece; the helper checks the packet's end.
            let read = unsafe {
                bpf_skb_load_bytes(
                    ctx.skb.skb.cast(),
                    payload.wrapping_add(at),
                    room.piece.as_mut_ptr().cast(),
                    size as u32,
                )
            };
            if read < 0 {
                return None;
            }
        }
        room.record.at = at;
        room.record.header.data_len = len as u32;
        emit::send::<KIND_DNS>(
            slot,
            core::ptr::from_ref(room).cast(),
            size_of::<DnsRecord>() as u64 + len,
        );
    }
    if total > PIECES * DNS_PIECE as u32 {
        emit::attempted::<KIND_DNS>(slot);
        return None;
    }
    Some(())
}
