//! Main memory, kept for reuse: a freed block serves the next request of its size, so that a
//! training step allocates nothing from the system.

use events::lock;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

/// The unit of allocation; the system zeroes memory of this type lazily.
type Word = u128;

/// Bytes of a cache line, to which blocks are aligned for vector loads.
const LINE: usize = 64;

/// Bytes of a page, to which blocks of at least one are aligned, for direct I/O.
const PAGE: usize = 4096;

/// Returns the alignment of a block of `lines` lines.
const fn alignment(lines: usize) -> usize {
    if lines * LINE < PAGE { LINE } else { PAGE }
}

/// Number of lines, 64 MiB, that freed blocks may take in addition to the maximum ever in use at
/// once: small models never ask the system twice, and large ones stay close to the ledger's count.
const SLACK: usize = (64 << 20) / LINE;

/// Bytes that the system must have left after a large block. Other allocations, such as threads'
/// stacks, are small, and abort the process if there is no memory for them.
const MARGIN: usize = 32 << 20;

/// Size in bytes from which a block is large.
const LARGE: usize = 64 << 10;

/// Returns zeroed memory from the system; `None` if it gives no more.
fn from_system(words: usize) -> Option<Vec<Word>> {
    let layout = Layout::array::<Word>(words).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout has a size.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return None;
    }
    // SAFETY: the global allocator gave the memory for this many words, and zero is a word.
    let block = unsafe { Vec::from_raw_parts(start.cast::<Word>(), words, words) };
    (layout.size() < LARGE || has_margin()).then_some(block)
}

/// True if the system would give [`MARGIN`] bytes more.
fn has_margin() -> bool {
    // SAFETY: the system chooses where it maps the memory.
    let mapped =
        unsafe { mmap_anonymous(null_mut(), MARGIN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    // SAFETY: the memory was just mapped, and nothing refers to it.
    mapped.is_ok_and(|start| unsafe { munmap(start, MARGIN) }.is_ok())
}

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

    /// Counts a block as live, and releases the oldest freed ones while the memory taken from the
    /// system exceeds the maximum ever in use at once by more than [`SLACK`].
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

/// Freed blocks. Together with the blocks in use they take little more than the maximum ever in use
/// at once.
#[derive(Default)]
pub(crate) struct Pool {
    stock: Mutex<Stock>,
}

impl Pool {
    /// Returns a block of at least `bytes` bytes, with unspecified contents; `None` if the system
    /// gives no more.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Memory> {
        let lines = bytes.div_ceil(LINE);
        let align = alignment(lines);
        let (reused, released) = {
            let mut stock = lock(&self.stock);
            let reused = stock.reuse(lines);
            (reused, stock.count(lines))
        };
        drop(released);
        let words = reused.or_else(|| self.fresh(lines.checked_mul(LINE)?.checked_add(align)?));
        let Some(words) = words else {
            lock(&self.stock).live -= lines;
            return None;
        };
        let past = words.as_ptr() as usize % align;
        Some(Memory { start: (align - past) % align, lines, words, pool: self.clone() })
    }

    /// Returns memory of `bytes` bytes, less one word, from the system. If it gives no more,
    /// retries after releasing the freed blocks.
    fn fresh(&self, bytes: usize) -> Option<Vec<Word>> {
        let words = bytes / size_of::<Word>() - 1;
        from_system(words).or_else(|| {
            while lock(&self.stock).release_oldest().is_some() {}
            from_system(words)
        })
    }

    /// Returns `len` f32 of unspecified contents for use within a kernel; `None` if the system
    /// gives no more. Sizes are powers of two, so that calls of different shapes share blocks.
    pub(crate) fn scratch(self: &Arc<Self>, len: usize) -> Option<Scratch> {
        let bytes = len.checked_mul(size_of::<f32>())?.checked_next_power_of_two()?;
        Some(Scratch { memory: self.take(bytes)?, len })
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
        lock(&self.pool.stock).put(self.lines, words);
    }
}

/// f32 for use within a kernel.
pub(crate) struct Scratch {
    memory: Memory,
    len: usize,
}

impl Scratch {
    /// Returns consecutive parts of the given lengths.
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
        let block = pool.take(1000).unwrap();
        let address = block.bytes().as_ptr();
        assert_eq!((address as usize % LINE, block.bytes().len()), (0, 1024));
        assert_eq!(pool.take(PAGE).unwrap().bytes().as_ptr() as usize % PAGE, 0);
        let pool = Arc::new(Pool::default());
        let block = pool.take(1000).unwrap();
        let address = block.bytes().as_ptr();
        assert!(block.bytes().iter().all(|byte| *byte == 0));
        drop(block);
        assert_eq!(pool.take(1010).unwrap().bytes().as_ptr(), address);
        for bytes in (64..1024).step_by(64) {
            drop(pool.take(bytes).unwrap());
            let stock = lock(&pool.stock);
            assert!(stock.live == 0 && stock.held <= stock.peak + SLACK && stock.peak == 16);
        }
    }

    #[test]
    fn what_the_system_refuses_is_not_counted_and_frees_what_is_unused() {
        let pool = Arc::new(Pool::default());
        drop(pool.take(1000).unwrap());
        let block = pool.take(100).unwrap();
        assert!([1 << 60, usize::MAX - 1, usize::MAX].iter().all(|&bytes| pool.take(bytes).is_none()));
        assert!([1 << 58, usize::MAX].iter().all(|&len| pool.scratch(len).is_none()));
        let counts = |stock: &Stock| (stock.live, stock.held);
        assert_eq!(counts(&lock(&pool.stock)), (2, 0));
        drop(block);
        assert!(pool.take(64 << 10).is_some());
    }
}
