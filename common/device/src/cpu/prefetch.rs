//! Asking for memory before it is used.

/// Bytes of a line of a cache.
const LINE: usize = 64;

/// Asks for the lines of `bytes`, for the middle cache.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        ask(line.as_ptr());
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ask(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: a prefetch reads nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
}

/// Stable Rust has this instruction for x86-64 only.
#[cfg(not(target_arch = "x86_64"))]
fn ask(_: *const u8) {}
