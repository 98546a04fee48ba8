//! Kinds of loss that the session counts, as `lost` spells them. Those of the kernel's rings are called as their records: see
//! `KIND_NAMES` of the wire format.

/// Records that could not be decoded.
pub const REJECTED: &str = "rejected";
/// Records with data missing.
pub const DAMAGED: &str = "damaged";
/// Names that were needed and could not be resolved.
pub const UNRESOLVED: &str = "unresolved";
/// Queries to a resolver that could not be put together or understood, and answers that could not be put together.
pub const QUERIES: &str = "queries";
/// Runs of probes that the kernel left out, since the same probe ran already on that CPU.
pub const SKIPPED: &str = "skipped";
/// Facts for which the session's memory had no room.
pub const MEMORY: &str = "memory";
/// Events beyond the most that are taken.
pub const EVENTS: &str = "events";
/// Records that the kernel sent and nobody read.
pub const UNREAD: &str = "unread";
/// Records whose counts do not add up.
pub const UNACCOUNTED: &str = "unaccounted";
