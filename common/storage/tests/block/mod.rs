//! Memory for direct I/O, for tests and benchmarks.

use std::ops::Range;
use storage::PAGE;

/// A buffer that begins on a page.
pub(crate) struct Block {
    memory: Vec<u8>,
    place: Range<usize>,
}

impl Block {
    /// Returns a buffer of `bytes` bytes, all of which have been touched.
    pub(crate) fn new(bytes: usize) -> Self {
        let memory = vec![1; bytes + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Block { memory, place: start..start + bytes }
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.place.clone()]
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.place.clone()]
    }
}
