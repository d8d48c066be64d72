//! Prefetching memory before it is used.

use std::ops::Range;

/// Bytes of a line of a cache.
pub(super) const LINE: usize = 64;

/// Prefetches `len` bytes from `first` on, any address, to the middle cache: a line every 64 bytes.
#[inline(always)]
pub(super) fn prefetch(first: *const u8, len: usize) {
    for at in (0..len).step_by(LINE) {
        prefetch_line(first.wrapping_add(at));
    }
}

/// Prefetches `len` bytes of each of `rows`, which start `stride` bytes apart, to the middle cache.
/// Any address is valid. The inner loop goes down the rows, most of which have only a line or two.
pub(super) fn prefetch_rows(first: *const u8, stride: usize, rows: Range<usize>, len: usize) {
    for at in (0..len).step_by(LINE) {
        for row in rows.clone() {
            prefetch_line(first.wrapping_add(row * stride + at));
        }
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
