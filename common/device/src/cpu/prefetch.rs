//! Prefetching memory before it is used.

/// Bytes of a line of a cache.
pub(super) const LINE: usize = 64;

/// Prefetches `bytes` to the middle cache: a line every 64 bytes from the first.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        prefetch_line(line.as_ptr());
    }
}

/// Prefetches the line at `at`, any address, to the middle cache.
#[inline(always)]
pub(super) fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }
    // Stable Rust has this instruction for x86-64 only.
    let _ = at;
}

/// Prefetches the line at `at`, any address, to the nearest cache.
#[inline(always)]
pub(super) fn prefetch_near(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    let _ = at;
}
