//! What an enforced job may reach. Decided from maps that the daemon fills before the job has a task.

use aya_ebpf::{
    EbpfContext as _,
    bindings::{
        bpf_sock, bpf_sock_tuple, bpf_sock_tuple__bindgen_ty_1,
        bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1, bpf_sock_tuple__bindgen_ty_1__bindgen_ty_2,
    },
    btf_maps::{Array, LpmTrie, lpm_trie::Key},
    helpers::{bpf_probe_read_kernel, bpf_sk_lookup_tcp, bpf_sk_lookup_udp, bpf_sk_release},
    macros::btf_map,
    programs::SockAddrContext,
};
use capgate_common::{
    enforce::{
        ANY_SCOPE, Enforced, HEAD4, HEAD6, KIND_LOCAL, KIND_PORTS, KIND_RAW, MAX_RANGES, MAX_RULES,
        Net4, Net6, Ports, Space,
    },
    limits::MAX_JOBS,
};

use crate::{
    kernel::{Address, offset},
    net::{IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDPLITE},
    scope,
    socket::AF_INET,
};

/// How each slot's job is enforced; all zero: not at all.
#[btf_map]
static ENFORCED: Array<Enforced, { MAX_JOBS as usize }> = Array::new();

/// What jobs may reach by IPv4: the longest prefix decides, and has the ports of all that cover it.
#[btf_map]
static RULES4: LpmTrie<Net4, Ports, { MAX_RULES as usize }> = LpmTrie::new();

/// The same by IPv6.
#[btf_map]
static RULES6: LpmTrie<Net6, Ports, { MAX_RULES as usize }> = LpmTrie::new();

const IPPROTO_MPTCP: u16 = 262;
/// The network namespace of the context (`BPF_F_CURRENT_NETNS`).
const OWN_NAMESPACE: u64 = u64::MAX;

/// Bytes 8 to 11 of an IPv4-mapped address.
const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);

/// The slot's job, when it is enforced.
#[inline(always)]
pub fn of(slot: u32) -> Option<&'static Enforced> {
    ENFORCED.get(slot).filter(|enforced| enforced.on != 0)
}

/// Where to.
#[derive(Clone, Copy)]
pub struct Destination {
    /// IPv4 in the first four bytes. Network order.
    addr: [u8; 16],
    is_v4: bool,
    /// Interface index (`sin6_scope_id`).
    scope: u32,
}

impl Destination {
    /// An address as the kernel acts on it: IPv4-mapped is IPv4, and the unspecified address is the loopback.
    #[inline(always)]
    pub fn new(family: u16, addr: &[u8; 16], scope: u32) -> Self {
        let mut to = Self {
            addr: *addr,
            is_v4: family == AF_INET,
            scope,
        };
        let (first, second, third, last) = (to.word(0), to.word(4), to.word(8), to.word(12));
        if !to.is_v4 && first == 0 && second == 0 {
            if third == MAPPED {
                to.is_v4 = true;
                to.addr[0] = addr[12];
                to.addr[1] = addr[13];
                to.addr[2] = addr[14];
                to.addr[3] = addr[15];
            } else if third == 0 && last == 0 {
                to.addr[15] = 1;
            }
        }
        if to.is_v4 && to.word(0) == 0 {
            to.addr[0] = 127;
            to.addr[3] = 1;
        }
        to
    }

    #[inline(always)]
    pub fn is_v4(&self) -> bool {
        self.is_v4
    }

    /// The address in IPv6, IPv4-mapped where it is IPv4.
    #[inline(always)]
    pub fn as_v6(&self) -> [u8; 16] {
        let mut addr = self.addr;
        if self.is_v4 {
            addr[12] = self.addr[0];
            addr[13] = self.addr[1];
            addr[14] = self.addr[2];
            addr[15] = self.addr[3];
            addr[10] = 0xff;
            addr[11] = 0xff;
            let mut index = 0;
            while index < 10 {
                addr[index] = 0;
                index += 1;
            }
        }
        addr
    }

    #[inline(always)]
    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes([
            self.addr[at],
            self.addr[at + 1],
            self.addr[at + 2],
            self.addr[at + 3],
        ])
    }

    #[inline(always)]
    pub fn is_loopback(&self) -> bool {
        if self.is_v4 {
            self.addr[0] == 127
        } else {
            self.word(0) == 0
                && self.word(4) == 0
                && self.word(8) == 0
                && self.word(12) == 1u32.to_be()
        }
    }

    /// Whether its interface belongs to the address: `fe80::/10`, and multicast on one link.
    #[inline(always)]
    fn is_link_local(&self) -> bool {
        let (first, second) = (self.addr[0], self.addr[1]);
        first == 0xfe && second & 0xc0 == 0x80 || first == 0xff && second & 0xf == 2
    }

    /// Whether a rule of a kind holds for it, on a port.
    #[inline(always)]
    fn is_under(&self, slot: u32, kind: u16, port: u16) -> bool {
        let space = Space {
            slot: slot as u16,
            kind,
        };
        if self.is_v4 {
            let net = Net4 {
                space,
                addr: [self.addr[0], self.addr[1], self.addr[2], self.addr[3]],
            };
            let rule = RULES4.get(&Key::new(HEAD4 + 32, net));
            return rule.is_some_and(|ports| has(ports, port));
        }
        let mut net = Net6 {
            space,
            scope: ANY_SCOPE,
            addr: self.addr,
        };
        let rule = RULES6.get(&Key::new(HEAD6 + 128, net));
        if rule.is_some_and(|ports| has(ports, port)) {
            return true;
        }
        if !self.is_link_local() {
            return false;
        }
        net.scope = self.scope;
        let rule = RULES6.get(&Key::new(HEAD6 + 128, net));
        rule.is_some_and(|ports| has(ports, port))
    }

    /// Whether nobody but the job in a slot has a socket bound to it: nobody at all counts.
    #[inline(always)]
    fn is_free_for(&self, slot: u32, ctx: &SockAddrContext, is_tcp: bool, port: u16) -> bool {
        let port = port.to_be();
        let mut tuple = bpf_sock_tuple {
            __bindgen_anon_1: bpf_sock_tuple__bindgen_ty_1 {
                ipv6: bpf_sock_tuple__bindgen_ty_1__bindgen_ty_2 {
                    saddr: [0; 4],
                    daddr: [self.word(0), self.word(4), self.word(8), self.word(12)],
                    sport: 0,
                    dport: port,
                },
            },
        };
        let mut len = size_of::<bpf_sock_tuple__bindgen_ty_1__bindgen_ty_2>();
        if self.is_v4 {
            tuple.__bindgen_anon_1.ipv4 = bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1 {
                saddr: 0,
                daddr: self.word(0),
                sport: 0,
                dport: port,
            };
            len = size_of::<bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1>();
        }
        let (context, tuple, len) = (ctx.as_ptr(), &raw mut tuple, len as u32);
        let group = offset!(sock_sk_cgrp_data_cgroup);
        // SAFETY: the context is the program's own, the tuple lives through the call, and the socket is released below.
        unsafe {
            let sock: *mut bpf_sock = if is_tcp {
                bpf_sk_lookup_tcp(context, tuple, len, OWN_NAMESPACE, 0)
            } else {
                bpf_sk_lookup_udp(context, tuple, len, OWN_NAMESPACE, 0)
            };
            if sock.is_null() {
                return true;
            }
            // The verifier allows no arithmetic on this pointer: read back from the stack it is a plain number.
            let holder = bpf_probe_read_kernel(&raw const sock)
                .ok()
                .and_then(|sock| Address(sock as u64).follow(group))
                .and_then(scope::cgroup)
                .unwrap_or(scope::NONE);
            bpf_sk_release(sock.cast());
            holder == slot
        }
    }
}

/// Whether a port is in one of the ranges.
#[inline(always)]
fn has(ports: &Ports, port: u16) -> bool {
    for index in 0..MAX_RANGES {
        if index >= ports.count as usize {
            return false;
        }
        let [first, last] = ports.ranges[index];
        if first <= port && port <= last {
            return true;
        }
    }
    false
}

#[inline(always)]
fn is_tcp(protocol: u16) -> bool {
    protocol == u16::from(IPPROTO_TCP) || protocol == IPPROTO_MPTCP
}

/// Whether a socket's protocol has ports that a rule can name.
#[inline(always)]
pub fn has_ports(protocol: u16) -> bool {
    is_tcp(protocol) || protocol == u16::from(IPPROTO_UDP) || protocol == u16::from(IPPROTO_UDPLITE)
}

/// Whether the job may connect or send to a port.
#[inline(always)]
pub fn permits(
    ctx: &SockAddrContext,
    slot: u32,
    enforced: &Enforced,
    to: &Destination,
    port: u16,
    protocol: u16,
    netns: u64,
) -> bool {
    let is_tcp = is_tcp(protocol);
    // Of others the packets are judged. And no datagram leaves for port 0, by which the C library asks for the route.
    if !has_ports(protocol) || !is_tcp && port == 0 {
        return true;
    }
    if to.is_under(slot, KIND_PORTS, port) {
        return true;
    }
    let is_local = to.is_loopback() || netns == enforced.netns && to.is_under(slot, KIND_LOCAL, 0);
    if !is_local {
        return false;
    }
    // Nobody can be asked who is bound by UDP-Lite.
    if protocol == u16::from(IPPROTO_UDPLITE) {
        return false;
    }
    // Where nobody listens the kernel says so itself: a server of the job may come up there yet.
    to.is_free_for(slot, ctx, is_tcp, port)
}

/// Whether the job may send packets of a protocol from a raw socket.
#[inline(always)]
pub fn permits_raw(slot: u32, to: &Destination, protocol: u8) -> bool {
    to.is_under(slot, KIND_RAW + u16::from(protocol), 0)
}
