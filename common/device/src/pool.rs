//! Main memory, kept for reuse: a freed block serves the next request of its size, so that a
//! training step allocates nothing from the system.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The unit of allocation; the system zeroes memory of this type lazily.
type Word = u128;

/// Bytes of a cache line, to which blocks are aligned for vector loads.
const LINE: usize = 64;

/// Bytes of a page, to which blocks of at least one are aligned, for direct I/O.
const PAGE: usize = 4096;

/// What a block of `lines` lines is aligned to.
const fn alignment(lines: usize) -> usize {
    if lines * LINE < PAGE { LINE } else { PAGE }
}

/// Lines, 64 MiB, that freed blocks may take beside what was ever in use at once: small models
/// never ask the system twice, and large ones stay within what the ledger says.
const SLACK: usize = (64 << 20) / LINE;

/// Freed blocks of one size, oldest first, each with the time of its freeing.
type Shelf = Vec<(u64, Vec<Word>)>;

#[derive(Default)]
struct Stock {
    /// By number of lines.
    shelves: HashMap<usize, Shelf>,
    clock: u64,
    held: usize,
    live: usize,
    peak: usize,
}

impl Stock {
    /// Takes a block of exactly `lines` lines off its shelf.
    fn reuse(&mut self, lines: usize) -> Option<Vec<Word>> {
        let (_, words) = self.shelves.get_mut(&lines)?.pop()?;
        self.held -= lines;
        Some(words)
    }

    /// Counts a block as live, and releases the oldest freed ones while more memory is taken from the
    /// system than was ever in use at once, and some.
    fn count(&mut self, lines: usize) -> Vec<Vec<Word>> {
        self.live += lines;
        self.peak = self.peak.max(self.live);
        let mut released = Vec::new();
        while self.held + self.live > self.peak + (self.peak / 32).max(SLACK) {
            released.extend(self.release_oldest());
        }
        released
    }

    fn release_oldest(&mut self) -> Option<Vec<Word>> {
        let oldest = |(_, shelf): &(&usize, &mut Shelf)| shelf.first().map_or(u64::MAX, |(freed, _)| *freed);
        let (&lines, shelf) = self.shelves.iter_mut().min_by_key(oldest)?;
        if shelf.is_empty() {
            return None;
        }
        self.held -= lines;
        Some(shelf.remove(0).1)
    }

    fn put(&mut self, lines: usize, words: Vec<Word>) {
        self.clock += 1;
        self.live -= lines;
        self.held += lines;
        self.shelves.entry(lines).or_default().push((self.clock, words));
    }
}

/// Freed blocks. With those in use they take little more than was ever in use at once.
#[derive(Default)]
pub(crate) struct Pool {
    stock: Mutex<Stock>,
}

impl Pool {
    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `bytes` bytes, with unspecified contents.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Memory {
        let lines = bytes.div_ceil(LINE);
        let (reused, released) = {
            let mut stock = self.stock();
            let reused = stock.reuse(lines);
            (reused, stock.count(lines))
        };
        drop(released);
        let align = alignment(lines);
        let words = reused.unwrap_or_else(|| vec![0; (lines * LINE + align) / size_of::<Word>() - 1]);
        let past = words.as_ptr() as usize % align;
        Memory { start: (align - past) % align, lines, words, pool: self.clone() }
    }

    /// `len` f32 of unspecified contents for the inside of a kernel. Sizes are powers of two, so
    /// that calls of different shapes share blocks.
    pub(crate) fn scratch(self: &Arc<Self>, len: usize) -> Scratch {
        let bytes = (len * size_of::<f32>()).next_power_of_two();
        Scratch { memory: self.take(bytes), len }
    }
}

/// A block of main memory; goes back to its pool when dropped.
pub(crate) struct Memory {
    words: Vec<Word>,
    /// Bytes before the first line.
    start: usize,
    lines: usize,
    pool: Arc<Pool>,
}

impl Memory {
    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[self.start..self.start + self.lines * LINE]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[self.start..self.start + self.lines * LINE]
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let words = std::mem::take(&mut self.words);
        self.pool.stock().put(self.lines, words);
    }
}

/// f32 for the inside of a kernel.
pub(crate) struct Scratch {
    memory: Memory,
    len: usize,
}

impl Scratch {
    /// Consecutive parts of the given lengths.
    pub(crate) fn parts<const N: usize>(&mut self, lengths: [usize; N]) -> [&mut [f32]; N] {
        let mut rest = &mut **self;
        lengths.map(|len| {
            let (part, next) = std::mem::take(&mut rest).split_at_mut(len);
            rest = next;
            part
        })
    }
}

impl Deref for Scratch {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &bytemuck::cast_slice(self.memory.bytes())[..self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut bytemuck::cast_slice_mut(self.memory.bytes_mut())[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_reused_and_released() {
        let pool = Arc::new(Pool::default());
        let block = pool.take(1000);
        let address = block.bytes().as_ptr();
        assert_eq!((address as usize % LINE, block.bytes().len()), (0, 1024));
        assert_eq!(pool.take(PAGE).bytes().as_ptr() as usize % PAGE, 0);
        let pool = Arc::new(Pool::default());
        let block = pool.take(1000);
        let address = block.bytes().as_ptr();
        assert!(block.bytes().iter().all(|byte| *byte == 0));
        drop(block);
        assert_eq!(pool.take(1010).bytes().as_ptr(), address);
        for bytes in (64..1024).step_by(64) {
            drop(pool.take(bytes));
            let stock = pool.stock();
            assert!(stock.live == 0 && stock.held <= stock.peak + SLACK && stock.peak == 16);
        }
    }
}
