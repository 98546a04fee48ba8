//! Inet: connects and addressed datagrams before the kernel acts on them, and packets on their way out.

use aya_ebpf::{
    EbpfContext as _,
    bindings::bpf_sock,
    btf_maps::LruHashMap,
    helpers::{bpf_get_netns_cookie, bpf_probe_read_kernel, bpf_sk_fullsock},
    macros::btf_map,
    programs::{SkBuffContext, SockAddrContext},
};
use capgate_common::event::{Header, INET_EGRESS, InetRecord, KIND_INET, REC_DENIED, Slot};

use crate::{
    emit,
    enforce::{self, Destination},
    forward,
    kernel::{self, Address, offset},
    scope,
    socket::{AF_INET, AF_INET6},
};

pub const IPPROTO_TCP: u8 = 6;
pub const IPPROTO_UDP: u8 = 17;
pub const IPPROTO_UDPLITE: u8 = 136;
pub const SOCK_RAW: u32 = 3;
/// `sin6_scope_id` in `struct sockaddr_in6` (include/uapi/linux/in6.h).
const SCOPE_ID: usize = 24;

/// The current task connects or sends to an address, which the kernel has not acted on yet. The answer is whether it may.
#[inline(always)]
pub fn addressed(ctx: &SockAddrContext, family: u16, op: u16) -> bool {
    let Some(slot) = scope::current() else {
        return true;
    };
    let addr_ctx = ctx.sock_addr;
    let (mut addr, mut port) = forward::address(ctx, family);
    // SAFETY: the context is the program's own; the verifier checks each access.
    let (sock_type, protocol, netns) = unsafe {
        (
            core::ptr::read_volatile(&raw const (*addr_ctx).type_) as u16,
            core::ptr::read_volatile(&raw const (*addr_ctx).protocol) as u16,
            bpf_get_netns_cookie(ctx.as_ptr()),
        )
    };
    let scope_id = if family == AF_INET6 {
        // The context does not show the scope; the kernel's own struct behind it does.
        Address(ctx.as_ptr() as u64)
            .follow(offset!(bpf_sock_addr_kern_uaddr))
            .and_then(|sockaddr| sockaddr.read(SCOPE_ID))
            .unwrap_or(0)
    } else {
        0
    };
    let mut permitted = true;
    if let Some(enforced) = enforce::of(slot) {
        let to = Destination::new(family, &addr, scope_id);
        let forwards = enforced.forwards != 0 && netns == enforced.netns;
        let resolver = if forwards {
            forward::stands_for(slot, &to, port)
        } else {
            None
        };
        if let Some(resolver) = resolver {
            // A connected IPv6 socket addresses each datagram to an IPv4-mapped peer anew, and the peer is the stand-in.
            addr = forward::as_of(family, &resolver);
            port = forward::DOMAIN;
        } else {
            permitted = enforce::permits(ctx, slot, enforced, &to, port, protocol, netns);
            if permitted && forwards {
                forward::redirect(ctx, slot, family, &to, port);
            }
        }
    }
    let record = InetRecord {
        header: Header {
            flags: if permitted { 0 } else { REC_DENIED },
            ..emit::header(KIND_INET)
        },
        netns,
        addr,
        local: [0; 16],
        scope_id,
        port,
        local_port: 0,
        family,
        sock_type,
        protocol,
        op,
    };
    emit::send_fixed::<_, KIND_INET>(slot, &record);
    permitted
}

/// Writes a word of an address.
#[inline(always)]
pub fn put(addr: &mut [u8; 16], at: usize, word: u32) {
    let bytes = word.to_ne_bytes();
    addr[at] = bytes[0];
    addr[at + 1] = bytes[1];
    addr[at + 2] = bytes[2];
    addr[at + 3] = bytes[3];
}

/// What makes two packets the same for the record.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flow {
    netns: u64,
    addr: [u8; 16],
    local: [u8; 16],
    job: Slot,
    port: u16,
    local_port: u16,
    family: u16,
    protocol: u16,
    sock_type: u32,
    pad: u32,
}

/// Flows already reported.
#[btf_map]
static FLOWS: LruHashMap<Flow, u8, 16384> = LruHashMap::new();

/// A packet leaves a socket. The answer is whether it may.
#[inline(always)]
pub fn egress(ctx: &SkBuffContext) -> bool {
    packet(ctx).unwrap_or(true)
}

#[inline(always)]
fn packet(ctx: &SkBuffContext) -> Option<bool> {
    let skb = ctx.skb.skb;
    let job = scope::packet(ctx)?;
    let slot = job.index;
    let version: u8 = ctx.load(0).ok()?;
    let mut addr = [0u8; 16];
    let mut local = [0u8; 16];
    let (family, protocol, payload) = if version >> 4 == 4 {
        let from: [u8; 4] = ctx.load(12).ok()?;
        let to: [u8; 4] = ctx.load(16).ok()?;
        put(&mut addr, 0, u32::from_ne_bytes(to));
        put(&mut local, 0, u32::from_ne_bytes(from));
        (
            AF_INET,
            ctx.load::<u8>(9).ok()?,
            usize::from(version & 0xf) * 4,
        )
    } else {
        local = ctx.load(8).ok()?;
        addr = ctx.load(24).ok()?;
        (AF_INET6, ctx.load::<u8>(6).ok()?, 40)
    };
    // SAFETY: the context is the program's own, and the helper is given a socket that is not null.
    let (sock, sock_type, carrier) = unsafe {
        let sock: *mut bpf_sock = core::ptr::read_volatile(&raw const (*skb).__bindgen_anon_2.sk);
        if sock.is_null() {
            return None;
        }
        let full = bpf_sk_fullsock(sock);
        let (sock_type, carrier) = if full.is_null() {
            (0, u32::from(IPPROTO_TCP))
        } else {
            (
                core::ptr::read_volatile(&raw const (*full).type_),
                core::ptr::read_volatile(&raw const (*full).protocol),
            )
        };
        // The verifier allows no arithmetic on this pointer: read back from the stack it is a plain number.
        (
            Address(bpf_probe_read_kernel(&raw const sock).ok()? as u64),
            sock_type,
            carrier,
        )
    };
    let has_ports = sock_type != SOCK_RAW && enforce::has_ports(carrier as u16);
    let enforced = enforce::of(slot);
    let forwards = has_ports && enforced.is_some_and(|enforced| enforced.forwards != 0);
    let is_tcp = protocol == IPPROTO_TCP && sock_type != SOCK_RAW;
    let is_udp = (protocol == IPPROTO_UDP || protocol == IPPROTO_UDPLITE) && sock_type != SOCK_RAW;
    let (mut port, mut local_port) = (0, 0);
    if is_udp || is_tcp && forwards {
        local_port = u16::from_be(ctx.load(payload).ok()?);
        port = u16::from_be(ctx.load(payload + 2).ok()?);
    }
    if forwards {
        let to = Destination::new(family, &addr, 0);
        if let Some(resolver) = forward::stands_for(slot, &to, port) {
            forward::asked(slot, &to, port, local_port, protocol);
            // As far as the job knows it goes to the resolver.
            addr = forward::as_of(family, &resolver);
            port = forward::DOMAIN;
        }
    }
    // A TCP connection is recorded when it is made.
    if is_tcp {
        return None;
    }
    let flow = Flow {
        netns: sock
            .follow(offset!(sock_common_skc_net))
            .and_then(|net| net.read(offset!(net_net_cookie)))
            .unwrap_or(0),
        addr,
        local,
        job,
        port,
        local_port,
        family,
        protocol: u16::from(protocol),
        sock_type,
        pad: 0,
    };
    // What has ports was judged when it was connected or addressed. The socket counts, not the packet: a tunnel puts what a
    // socket sends into packets of other protocols.
    let permitted = has_ports
        || enforced.is_none()
        || enforce::permits_raw(slot, &Destination::new(family, &addr, 0), protocol);
    emit::attempted::<KIND_INET>(slot);
    // SAFETY: the value is never used as a reference, only its presence counts.
    if unsafe { FLOWS.get(flow) }.is_some() {
        emit::deduplicated::<KIND_INET>(slot);
        return Some(permitted);
    }
    // A full map forgets an old flow, which is then reported once more.
    let _: Result<(), i32> = FLOWS.insert(flow, 1, 0);
    // By reads of the task: programs of this kind have no helper for the current task's cgroups before 6.3.
    let mut header = if scope::task(kernel::current()).unwrap_or(scope::NONE) == slot {
        emit::header(KIND_INET)
    } else {
        // A softirq ran on somebody else's back.
        Header {
            kind: KIND_INET,
            ..Header::default()
        }
    };
    if !permitted {
        header.flags = REC_DENIED;
    }
    let record = InetRecord {
        header,
        netns: flow.netns,
        addr,
        local,
        scope_id: 0,
        port,
        local_port,
        family,
        sock_type: sock_type as u16,
        protocol: u16::from(protocol),
        op: INET_EGRESS,
    };
    emit::send::<KIND_INET>(
        slot,
        core::ptr::from_ref(&record).cast(),
        size_of::<InetRecord>() as u64,
    );
    Some(permitted)
}
