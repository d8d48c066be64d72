//! Buffers aligned for direct I/O, from a pool with a bound.

use bytemuck::{Pod, Zeroable};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Bytes to whose multiples blocks are aligned and rounded up: what direct I/O asks for on all
/// common disks.
pub const PAGE: usize = 4096;

#[repr(C, align(4096))]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Page([u8; PAGE]);

/// A fixed number of blocks of one size. They are allocated, and their memory is touched, when the
/// pool is made.
pub struct Pool {
    shared: Arc<Shared>,
    blocks: usize,
    pages: usize,
}

struct Shared {
    free: Mutex<Vec<Vec<Page>>>,
    returned: Condvar,
}

impl Pool {
    /// A pool of `blocks` blocks with room for `bytes` bytes each.
    pub fn new(blocks: usize, bytes: usize) -> Self {
        let pages = bytes.div_ceil(PAGE);
        let free = (0..blocks).map(|_| vec![Page([0; PAGE]); pages]).collect();
        let shared = Shared { free: Mutex::new(free), returned: Condvar::new() };
        Pool { shared: Arc::new(shared), blocks, pages }
    }

    /// Bytes of main memory that the pool takes, rounding included.
    pub fn bytes(&self) -> usize {
        self.blocks * self.capacity()
    }

    /// Bytes that one block has room for: a multiple of [`PAGE`].
    pub fn capacity(&self) -> usize {
        self.pages * PAGE
    }

    /// Takes a block of `bytes` bytes, with whatever it held before. Blocks until one is free.
    ///
    /// # Panics
    /// If a block has no room for so many bytes, or the pool has no blocks.
    pub fn take(&self, bytes: usize) -> Block {
        assert!(self.blocks > 0, "the pool has no blocks");
        let mut free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match free.pop() {
                Some(pages) => return self.block(pages, bytes),
                None => free = self.shared.returned.wait(free).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Takes a block of `bytes` bytes if one is free.
    ///
    /// # Panics
    /// If a block has no room for so many bytes.
    pub fn try_take(&self, bytes: usize) -> Option<Block> {
        let pages = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(self.block(pages, bytes))
    }

    fn block(&self, pages: Vec<Page>, bytes: usize) -> Block {
        let mut block = Block { pages, bytes: 0, shared: self.shared.clone() };
        block.resize(bytes);
        block
    }
}

/// A buffer that begins on a page. It returns to its pool when it is dropped.
pub struct Block {
    pages: Vec<Page>,
    bytes: usize,
    shared: Arc<Shared>,
}

impl Block {
    /// Makes the block `bytes` bytes long, within its room.
    ///
    /// # Panics
    /// If it has no room for so many.
    pub fn resize(&mut self, bytes: usize) {
        let room = self.pages.len() * PAGE;
        assert!(bytes <= room, "a block of {room} bytes has no room for {bytes}");
        self.bytes = bytes;
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.pages)[..self.bytes]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..self.bytes]
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).push(pages);
        self.shared.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_bounded_and_its_blocks_are_aligned_and_return() {
        let pool = Pool::new(2, PAGE + 1);
        assert_eq!((pool.capacity(), pool.bytes()), (2 * PAGE, 4 * PAGE));
        let (first, second) = (pool.take(1), pool.take(2 * PAGE));
        assert_eq!((first.len(), second.len()), (1, 2 * PAGE));
        assert!(first.as_ptr().addr().is_multiple_of(PAGE) && second.as_ptr().addr().is_multiple_of(PAGE));
        assert!(pool.try_take(1).is_none());
        drop(first);
        assert!(pool.try_take(1).is_some());
    }

    #[test]
    fn a_thread_that_takes_from_an_empty_pool_waits_for_a_block() {
        let pool = Pool::new(1, 1);
        let held = pool.take(1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take(1).len());
            drop(held);
            assert_eq!(waiting.join().unwrap(), 1);
        });
    }
}
