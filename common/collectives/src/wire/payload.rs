//! The bytes of a message, aligned so that they can be read as numbers.

use events::lock;
use std::sync::Mutex;

/// Bytes that begin on a multiple of [`ALIGN`].
#[derive(Default)]
pub(crate) struct Payload {
    words: Vec<u64>,
    /// First byte, a multiple of [`ALIGN`].
    start: usize,
    len: usize,
}

/// Alignment of a payload and of every piece within it, in bytes: that of the widest element.
pub(crate) const ALIGN: usize = 8;

/// Returns `len`, rounded up to a multiple of [`ALIGN`].
pub(crate) const fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGN)
}

impl Payload {
    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[self.start..self.start + self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[self.start..self.start + self.len]
    }

    /// Makes the payload `len` bytes long, if it is shorter. Memory at most doubles.
    pub(crate) fn grow(&mut self, len: usize) {
        let words = (self.start + len).div_ceil(size_of::<u64>());
        self.words.resize(words.max(self.words.len()), 0);
        self.len = len.max(self.len);
    }

    /// Returns the payload cut to `len` bytes from `start` on; `None` if they are not there or not
    /// aligned.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "for transports that receive whole messages"))]
    pub(crate) fn part(mut self, start: usize, len: usize) -> Option<Self> {
        let inside = start.is_multiple_of(ALIGN) && start.checked_add(len)? <= self.len;
        (self.start, self.len) = (self.start + start, len);
        inside.then_some(self)
    }
}

/// Payloads to reuse: fresh memory costs more than the copy into it.
#[derive(Default)]
pub(crate) struct PayloadPool {
    free: Mutex<Vec<Vec<u64>>>,
}

/// Payloads of fewer bytes are not kept: they are cheap to make.
const WORTH_KEEPING: usize = 4096;
/// Most payloads that are kept.
const MAX_KEPT: usize = 32;

impl PayloadPool {
    /// Returns a payload of `len` bytes with unspecified contents.
    #[cfg(any(test, feature = "mpi"))]
    pub(crate) fn take(&self, len: usize) -> Payload {
        self.reuse(len).unwrap_or_else(|| Payload { words: vec![0; len.div_ceil(8)], start: 0, len })
    }

    /// Returns a payload of `len` bytes that was given back before, if one fits.
    pub(crate) fn reuse(&self, len: usize) -> Option<Payload> {
        let needed = len.div_ceil(size_of::<u64>());
        let mut free = lock(&self.free);
        let fits = |words: &Vec<u64>| words.len() >= needed && words.len() / 2 <= needed;
        let found = free.iter().position(fits).map(|index| free.swap_remove(index));
        found.map(|words| Payload { words, start: 0, len })
    }

    /// Keeps a payload that is no longer needed.
    pub(crate) fn give(&self, payload: Payload) {
        if payload.words.len() * size_of::<u64>() < WORTH_KEEPING {
            return;
        }
        let mut free = lock(&self.free);
        if free.len() >= MAX_KEPT {
            free.remove(0);
        }
        free.push(payload.words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_reused_where_they_fit() {
        let pool = PayloadPool::default();
        let mut payload = pool.take(10_001);
        payload.bytes_mut().fill(7);
        let place = payload.bytes().as_ptr();
        pool.give(payload);
        assert_ne!(pool.take(100_000).bytes().as_ptr(), place);
        let again = pool.take(9_000);
        assert_eq!((again.bytes().as_ptr(), again.bytes().len()), (place, 9_000));
        assert_eq!(pool.take(3).bytes().len(), 3);
    }
}
