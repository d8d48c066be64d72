//! Long copies by non-temporal stores, which bypass the caches.

#[cfg(target_arch = "x86_64")]
use super::prefetch::prefetch_near;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m128i as Vector;

/// Size in bytes from which a copy bypasses the caches: more than a core's own cache keeps for the
/// next reader.
const LONG: usize = 2 << 20;

/// `to = from`. A store to memory that is not in a cache reads what it overwrites; a long copy
/// here does not, so that two bytes cross the bus for each byte copied, and not three.
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    if to.len() < LONG {
        return to.copy_from_slice(from);
    }
    long(to, from);
}

#[cfg(not(target_arch = "x86_64"))]
fn long(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

/// Copies with non-temporal stores. The C library does this only for copies of about a shared
/// cache's size, which can be hundreds of MiB.
#[cfg(target_arch = "x86_64")]
fn long(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::_mm_sfence;
    /// Vectors of a line of a cache, and of a page.
    const LINE: usize = 64 / size_of::<Vector>();
    const PAGE: usize = 4096 / size_of::<Vector>();
    /// A core fetches ahead within a page only, so a line of each of these pages is copied in turn,
    /// and the same line of the next group fetched.
    const PAGES: usize = 4;
    assert_eq!(to.len(), from.len(), "a copy between different lengths");
    // SAFETY: any bytes are an integer vector.
    let (head, vectors, tail) = unsafe { to.align_to_mut::<Vector>() };
    let (first, rest) = from.split_at(head.len());
    let (middle, last) = rest.split_at(rest.len() - tail.len());
    head.copy_from_slice(first);
    tail.copy_from_slice(last);
    let (groups, rest) = vectors.as_chunks_mut::<{ PAGES * PAGE }>();
    let (from_groups, from_rest) = middle.as_chunks().0.as_chunks::<{ PAGES * PAGE }>();
    for (to, from) in groups.iter_mut().zip(from_groups) {
        for line in (0..PAGE).step_by(LINE) {
            for at in (line..PAGES * PAGE).step_by(PAGE) {
                prefetch_near(from.as_ptr().wrapping_add(from.len() + at).cast());
                store_past_caches(&mut to[at..at + LINE], &from[at..at + LINE]);
            }
        }
    }
    store_past_caches(rest, from_rest);
    // SAFETY: every x86-64 has this instruction. Other threads see what was stored once they see
    // what this thread stores later.
    unsafe { _mm_sfence() };
}

/// `to = from`, both of one length.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn store_past_caches(to: &mut [Vector], from: &[[u8; size_of::<Vector>()]]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    for (to, from) in to.iter_mut().zip(from) {
        // SAFETY: every x86-64 has these instructions; `to` is aligned, and `from` is as long.
        unsafe { _mm_stream_si128(to, _mm_loadu_si128(from.as_ptr().cast())) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_copies_copy_all_whatever_their_ends() {
        let from: Vec<u8> = (0..LONG + 100).map(|i| (i % 251) as u8).collect();
        for (start, end) in [(0, LONG), (1, LONG + 18), (15, LONG + 99), (3, LONG - 5), (16, LONG + 16)] {
            for shift in [0, 1, 7] {
                let mut to = vec![0xff; end - start + 16];
                copy(&mut to[shift..shift + end - start], &from[start..end]);
                assert!(to[shift..shift + end - start] == from[start..end], "{start} {end} {shift}");
                let around = to[..shift].iter().chain(&to[shift + end - start..]);
                assert!(around.copied().all(|byte| byte == 0xff), "{start} {end} {shift}");
            }
        }
    }
}
