//! Long copies by non-temporal stores, which go past the caches.

/// Bytes from which a copy goes past the caches: more than a core's own cache keeps for the next
/// reader.
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

/// The C library does this for copies of about a shared cache's size only, which can be hundreds
/// of MiB.
#[cfg(target_arch = "x86_64")]
fn long(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LANE: usize = size_of::<__m128i>();
    assert_eq!(to.len(), from.len(), "a copy between different lengths");
    // SAFETY: any bytes are an integer vector.
    let (head, lanes, tail) = unsafe { to.align_to_mut::<__m128i>() };
    let (first, rest) = from.split_at(head.len());
    let (middle, last) = rest.split_at(rest.len() - tail.len());
    head.copy_from_slice(first);
    tail.copy_from_slice(last);
    for (lane, from) in lanes.iter_mut().zip(middle.as_chunks::<LANE>().0) {
        // SAFETY: every x86-64 has these instructions; `lane` is aligned, and `from` has `LANE`
        // bytes.
        unsafe { _mm_stream_si128(lane, _mm_loadu_si128(from.as_ptr().cast())) };
    }
    // SAFETY: as above. Other threads see what was stored once they see what this thread stores
    // later.
    unsafe { _mm_sfence() };
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
