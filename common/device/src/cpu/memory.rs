//! Main memory in cache lines, kept for reuse: a freed block serves the next request of its size, so that a training
//! step asks the system for nothing.

use bytemuck::{Pod, Zeroable};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One cache line; blocks are made of them, so every buffer is aligned for vector loads.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Freed blocks by size in lines.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<HashMap<usize, Vec<Vec<Line>>>>,
}

impl Pool {
    fn free(&self) -> MutexGuard<'_, HashMap<usize, Vec<Vec<Line>>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `bytes` bytes, with unspecified contents.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Memory {
        let lines = bytes.div_ceil(size_of::<Line>());
        let reused = self.free().get_mut(&lines).and_then(Vec::pop);
        let lines = reused.unwrap_or_else(|| vec![Line::zeroed(); lines]);
        Memory { lines, pool: self.clone() }
    }
}

/// A block of main memory; goes back to its pool when dropped.
pub(crate) struct Memory {
    lines: Vec<Line>,
    pool: Arc<Pool>,
}

impl Memory {
    pub(crate) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        self.pool.free().entry(lines.len()).or_default().push(lines);
    }
}
