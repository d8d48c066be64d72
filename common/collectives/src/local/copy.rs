//! Copies, around the caches where they would not fit.
//!
//! An ordinary store first reads its cache line from memory. For buffers larger than the last-level cache that is a
//! third of the traffic, and what the copy leaves in the cache is gone before anybody reads it; non-temporal stores
//! save both. Smaller copies stay in the cache for whoever computes with them next.

/// Bytes to copy to one receiver before the next: the source stays in the first-level cache.
pub(crate) const PIECE: usize = 16 << 10;

/// Bytes that a collective may touch in all before it goes around the caches: about a last-level cache.
pub(crate) const CACHED: usize = 24 << 20;

/// Copies `from` to `to`, of the same length; with `stream` around the caches where the processor can. After
/// streaming, [`fence`] must come before others are told.
pub(crate) fn copy(to: &mut [u8], from: &[u8], stream: bool) {
    #[cfg(target_arch = "x86_64")]
    if stream {
        return stream_copy(to, from);
    }
    let _ = stream;
    to.copy_from_slice(from);
}

/// Orders streamed stores of this thread before everything it does later.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(target_arch = "x86_64")]
fn stream_copy(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    assert_eq!(to.len(), from.len(), "lengths of a copy");
    // SAFETY: a vector is sixteen bytes, any bytes.
    let (head, body, tail) = unsafe { to.align_to_mut::<__m128i>() };
    let (start, rest) = from.split_at(head.len());
    let (middle, end) = rest.split_at(size_of_val(body));
    head.copy_from_slice(start);
    tail.copy_from_slice(end);
    for (to, from) in body.iter_mut().zip(middle.chunks_exact(size_of::<__m128i>())) {
        // SAFETY: `from` has the sixteen bytes of a vector, `to` is aligned, and SSE2 is part of x86-64.
        unsafe { _mm_stream_si128(to, _mm_loadu_si128(from.as_ptr().cast())) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streaming_copies_the_same_bytes_at_any_alignment() {
        let from: Vec<u8> = (0..300u32).map(|index| (index * 37) as u8).collect();
        for (start, end) in [(0, 0), (0, 300), (1, 17), (3, 300), (15, 16), (16, 32), (7, 290)] {
            let mut to = vec![0; 300];
            copy(&mut to[start..end], &from[300 - end..300 - start], true);
            fence();
            assert_eq!(to[start..end], from[300 - end..300 - start]);
            assert!(to[..start].iter().chain(&to[end..]).all(|&byte| byte == 0));
        }
    }
}
