//! What the C library's allocator keeps of freed memory: left alone it grows with the largest job, for good.

/// Freed memory at the end of a heap is given back from this size on, and a block from this size on is its own mapping. These are
/// the C library's first values; without being told it raises both with each large block that is freed, to 64 and 32 MiB.
const KEPT_BYTES: libc::c_int = 128 << 10;
/// Heaps beside each other. Each thread would get its own, up to eight for each CPU, and each keeps what it once had; the
/// threads that allocate much are one for each running job.
const HEAPS: libc::c_int = 4;

/// Bounds what is kept. To be called before there are threads.
pub fn bound() {
    for (setting, value) in [
        (libc::M_MMAP_THRESHOLD, KEPT_BYTES),
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
        (libc::M_ARENA_MAX, HEAPS),
    ] {
        // SAFETY: mallopt takes plain numbers. It refuses none of these, and if it did, only more would be kept.
        unsafe {
            libc::mallopt(setting, value);
        }
    }
}

/// Returns freed memory to the system: parsing the kernel's BTF takes tens of megabytes for a moment, and a large job its share.
pub fn give_back() {
    // SAFETY: malloc_trim has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
