//! Sizes and names that the kernel side and user space must agree on.

/// Jobs that can be recorded at the same time; the length of every per-job kernel array.
pub const MAX_JOBS: u32 = 256;

/// Distinct cgroup depths that jobs may have at the same time. Scoping looks at each depth in use, so this is
/// small.
pub const MAX_LEVELS: usize = 8;

/// Mounts that can be known at the same time, of all jobs together.
pub const MAX_MOUNTS: u32 = 256 * 1024;

/// Most resolvers of one job.
pub const RESOLVERS_PER_JOB: u32 = 16;

/// Bytes of variable-length data (paths, strings, argv) in one record.
pub const DATA_CAP: usize = 16 * 1024;

/// Bytes that one walked path may take in its encoded form: two bytes short of twice `PATH_MAX`,
/// because a path that was reached by relative steps can be longer than `PATH_MAX`.
pub const WALK_CAP: usize = 8 * 1024;

/// Steps of one walk: components and mounts together.
pub const WALK_STEPS: u32 = 2048;

/// Bytes of a string taken from user memory, the closing NUL included (`PATH_MAX`, limits.h).
pub const STRING_CAP: usize = 4096;

/// Bytes of argv kept with an exec. More is cut and flagged: argv is evidence, never compared.
pub const ARGV_CAP: usize = 2048;

/// Default size of one job's ring in bytes; a power of two and a multiple of the page size.
pub const RING_BYTES: u32 = 8 << 20;

/// The part of a ring that may fill before the kernel wakes the reader: one eighth.
pub const WAKE_SHIFT: u32 = 3;
