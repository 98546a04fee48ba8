//! What the kernel decides by when a job's network is enforced: the keys and values of its maps, layout asserted below.

/// Most separate ranges of ports that one address may have.
pub const MAX_RANGES: usize = 64;
/// Rules of each family, of all jobs together.
pub const MAX_RULES: u32 = 128 * 1024;

/// [`Space`]: ports of an address that the job may reach.
pub const KIND_PORTS: u16 = 0;
/// [`Space`]: an address of the host itself, where a connect that nobody listens for is refused by the kernel anyway.
pub const KIND_LOCAL: u16 = 1;
/// [`Space`]: packets of a protocol that the job may send to an address from a raw socket; the protocol is added.
pub const KIND_RAW: u16 = 256;

/// Whether and how the network of the job in a slot is enforced.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enforced {
    /// Not 0: what no rule permits is refused.
    pub on: u32,
    /// Not 0: queries to resolvers go to the daemon first.
    pub forwards: u32,
    /// The network namespace that the job begins in (`net.net_cookie`): there the rules of [`KIND_LOCAL`] hold, and the daemon
    /// listens.
    pub netns: u64,
}

/// Which rules a lookup is among: a job's slot, and the kind of rule.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The job's slot.
    pub slot: u16,
    /// A `KIND_` value.
    pub kind: u16,
}

/// An IPv4 network. Of a rule only the first bits count; [`HEAD4`] more than the network's prefix.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Net4 {
    /// Whose, and of which kind.
    pub space: Space,
    /// Address, network order.
    pub addr: [u8; 4],
}

/// Bits of a [`Net4`] before the address.
pub const HEAD4: u32 = 32;

/// [`Net6::scope`]: the rule holds on every interface.
pub const ANY_SCOPE: u32 = u32::MAX;

/// An IPv6 network, likewise, with [`HEAD6`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Net6 {
    /// Whose, and of which kind.
    pub space: Space,
    /// Interface index of an address that has a meaning only on one link, or [`ANY_SCOPE`].
    pub scope: u32,
    /// Address, network order.
    pub addr: [u8; 16],
}

/// Bits of a [`Net6`] before the address.
pub const HEAD6: u32 = 64;

/// Ports, as the first and the last of each range, in host order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// How many of the ranges are in use.
    pub count: u32,
    /// The ranges, ascending, none touching another.
    pub ranges: [[u16; 2]; MAX_RANGES],
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            count: 0,
            ranges: [[0; 2]; MAX_RANGES],
        }
    }
}

/// Resolvers that jobs ask through the daemon, of all jobs together.
pub const MAX_FORWARDS: u32 = 4096;
/// Sockets that were seen asking, of all jobs together; the one that asked longest ago is forgotten.
pub const MAX_ASKERS: u32 = 16 * 1024;

/// A resolver that a job asks. The value is the port where the daemon stands in for it, on the loopback address of its family.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Its address, an IPv4 one as IPv6 has it (`::ffff:192.0.2.1`). Network order.
    pub addr: [u8; 16],
    /// The job's slot.
    pub slot: u32,
}

/// A port where the daemon stands in for a resolver. The value is the resolver's address, as in [`Resolver`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandIn {
    /// The job's slot.
    pub slot: u32,
    /// The port, host order.
    pub port: u16,
    /// 1 on the IPv6 loopback address.
    pub is_v6: u16,
}

/// A socket of a job that sent something to a [`StandIn`]. The value is when it did so last, nanoseconds since boot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// Where to.
    pub to: StandIn,
    /// The socket's own port, host order.
    pub port: u16,
    /// 1 over TCP.
    pub is_tcp: u16,
}

const _: () = {
    assert!(core::mem::size_of::<Resolver>() == 20);
    assert!(core::mem::size_of::<StandIn>() == 8);
    assert!(core::mem::size_of::<Asker>() == 12);
    assert!(core::mem::size_of::<Enforced>() == 16);
    assert!(core::mem::size_of::<Net4>() == 8);
    assert!(core::mem::size_of::<Net6>() == 24);
    assert!(core::mem::size_of::<Ports>() == 4 + 4 * MAX_RANGES);
    assert!(crate::limits::MAX_JOBS <= u16::MAX as u32);
};
