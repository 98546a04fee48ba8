//! Queries of an enforced job go to the daemon first, which lets the job reach what an answer names before the job has the answer.
//! To the job it looks as if it talked to its resolver.

use aya_ebpf::{
    btf_maps::{Array, HashMap, LruHashMap},
    helpers::bpf_ktime_get_boot_ns,
    macros::btf_map,
    programs::SockAddrContext,
};
use capgate_common::enforce::{Asker, MAX_ASKERS, MAX_FORWARDS, Resolver, StandIn};

use crate::{
    enforce::{self, Destination},
    net::{IPPROTO_TCP, put},
    scope,
    socket::AF_INET,
};

/// Resolvers, and the ports where the daemon stands in for them.
#[btf_map]
static FORWARDS: HashMap<Resolver, u32, { MAX_FORWARDS as usize }> = HashMap::new();

/// The same the other way round.
#[btf_map]
static STAND_INS: HashMap<StandIn, [u8; 16], { MAX_FORWARDS as usize }> = HashMap::new();

/// How many of these there are. Packets ask for it first.
#[btf_map]
static STANDING: Array<u32, 1> = Array::new();

/// Who asked: the daemon answers nobody else.
#[btf_map]
static ASKERS: LruHashMap<Asker, u64, { MAX_ASKERS as usize }> = LruHashMap::new();

/// Port of a resolver.
pub const DOMAIN: u16 = 53;

/// Sends a query on its way to the daemon, when that stands in for its destination.
#[inline(always)]
pub fn redirect(ctx: &SockAddrContext, slot: u32, family: u16, to: &Destination, port: u16) {
    if port != DOMAIN {
        return;
    }
    let key = Resolver {
        addr: to.as_v6(),
        slot,
    };
    // SAFETY: the value is an integer, written before the job has a task.
    let Some(port) = (unsafe { FORWARDS.get(key) }) else {
        return;
    };
    let mut loopback = [0u8; 16];
    if to.is_v4() {
        loopback[10] = 0xff;
        loopback[11] = 0xff;
        loopback[12] = 127;
    }
    loopback[15] = 1;
    replace(ctx, family, &loopback, *port as u16);
}

/// An address that the current task is told of a peer: the resolver's, when the daemon stands in for it.
#[inline(always)]
pub fn show(ctx: &SockAddrContext, family: u16) {
    let Some(slot) = scope::current() else {
        return;
    };
    let Some(enforced) = enforce::of(slot) else {
        return;
    };
    if enforced.forwards == 0 {
        return;
    }
    let (addr, port) = address(ctx, family);
    let from = Destination::new(family, &addr, 0);
    if let Some(resolver) = stands_for(slot, &from, port) {
        replace(ctx, family, &resolver, DOMAIN);
    }
}

/// Whether the daemon stands in for any resolver.
#[inline(always)]
pub fn in_use() -> bool {
    STANDING.get(0).is_some_and(|count| *count != 0)
}

/// The resolver that the daemon stands in for, in the form of [`Resolver`]; `None` for another address.
#[inline(always)]
pub fn stands_for(slot: u32, at: &Destination, port: u16) -> Option<[u8; 16]> {
    if !at.is_loopback() {
        return None;
    }
    // SAFETY: the value is bytes, written before the job has a task.
    unsafe { STAND_INS.get(stand_in(slot, at, port)) }.copied()
}

/// An address of the form of [`Resolver`] as packets of its family have it: IPv4 in the first four bytes.
#[inline(always)]
pub fn as_of(family: u16, resolver: &[u8; 16]) -> [u8; 16] {
    let mut addr = *resolver;
    if family == AF_INET {
        addr = [0; 16];
        addr[0] = resolver[12];
        addr[1] = resolver[13];
        addr[2] = resolver[14];
        addr[3] = resolver[15];
    }
    addr
}

/// Notes that a socket of the job sends something to the daemon.
#[inline(always)]
pub fn asked(slot: u32, to: &Destination, port: u16, own: u16, protocol: u8) {
    let asker = Asker {
        to: stand_in(slot, to, port),
        port: own,
        is_tcp: u16::from(protocol == IPPROTO_TCP),
    };
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    // One that cannot be noted is not answered.
    let _: Result<(), i32> = ASKERS.insert(asker, now, 0);
}

#[inline(always)]
fn stand_in(slot: u32, at: &Destination, port: u16) -> StandIn {
    StandIn {
        slot,
        port,
        is_v6: u16::from(!at.is_v4()),
    }
}

/// Address and port of the context, IPv4 in the first four bytes.
#[inline(always)]
pub fn address(ctx: &SockAddrContext, family: u16) -> ([u8; 16], u16) {
    let given = ctx.sock_addr;
    let mut addr = [0u8; 16];
    // SAFETY: the context is the program's own; the verifier checks each access. Single words, since it refuses wider loads
    // of the address.
    unsafe {
        if family == AF_INET {
            put(
                &mut addr,
                0,
                core::ptr::read_volatile(&raw const (*given).user_ip4),
            );
        } else {
            put(
                &mut addr,
                0,
                core::ptr::read_volatile(&raw const (*given).user_ip6[0]),
            );
            put(
                &mut addr,
                4,
                core::ptr::read_volatile(&raw const (*given).user_ip6[1]),
            );
            put(
                &mut addr,
                8,
                core::ptr::read_volatile(&raw const (*given).user_ip6[2]),
            );
            put(
                &mut addr,
                12,
                core::ptr::read_volatile(&raw const (*given).user_ip6[3]),
            );
        }
        let port = core::ptr::read_volatile(&raw const (*given).user_port);
        (addr, u16::from_be(port as u16))
    }
}

/// Writes another address into the context; `addr` is in the form of [`Resolver`].
#[inline(always)]
fn replace(ctx: &SockAddrContext, family: u16, addr: &[u8; 16], port: u16) {
    let word = |at: usize| u32::from_ne_bytes([addr[at], addr[at + 1], addr[at + 2], addr[at + 3]]);
    let given = ctx.sock_addr;
    // SAFETY: as in `address`; these are the members that a program of this kind may write.
    unsafe {
        if family == AF_INET {
            core::ptr::write_volatile(&raw mut (*given).user_ip4, word(12));
        } else {
            core::ptr::write_volatile(&raw mut (*given).user_ip6[0], word(0));
            core::ptr::write_volatile(&raw mut (*given).user_ip6[1], word(4));
            core::ptr::write_volatile(&raw mut (*given).user_ip6[2], word(8));
            core::ptr::write_volatile(&raw mut (*given).user_ip6[3], word(12));
        }
        core::ptr::write_volatile(&raw mut (*given).user_port, u32::from(port.to_be()));
    }
}
