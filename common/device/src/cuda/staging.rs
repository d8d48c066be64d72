//! Page-locked main memory for copies between the host and a GPU, which run while the host
//! continues.
//!
//! From and to pageable memory the driver copies itself, once everything queued before is done, and
//! blocks the host.

use super::pinned::{Pinned, Spare};
use super::stream::Fence;
use crate::Result;
use events::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Bytes of the largest copy that is staged. Larger ones are of weights, at the beginning and the
/// end of a run, and use pageable memory.
pub(super) const MOST: usize = 4 << 20;

/// Blocks are powers of two, and at least this large.
const LEAST: usize = 4 << 10;

/// Maximum number of blocks whose copies are queued at a time; the next `take` waits for the
/// oldest.
const BUSY: usize = 16;

/// A rank's blocks of queued copies, each with the point at which its copy is done, oldest first.
#[derive(Default)]
pub(super) struct Staging(Mutex<VecDeque<(Fence, Pinned)>>);

impl Staging {
    /// Returns a block with room for `bytes` that no copy touches.
    pub(super) fn take(&self, spare: &Arc<Spare>, bytes: usize) -> Result<Pinned> {
        self.settle()?;
        Pinned::new(spare, bytes.next_power_of_two().max(LEAST))
    }

    /// Takes back the blocks whose copies are done. Blocks while there are more than [`BUSY`].
    fn settle(&self) -> Result<()> {
        let mut busy = lock(&self.0);
        while let Some((fence, _)) = busy.front() {
            if busy.len() > BUSY {
                fence.wait()?;
            } else if !fence.is_reached()? {
                return Ok(());
            }
            busy.pop_front();
        }
        Ok(())
    }

    /// Takes back a block, to be reused after `fence`.
    pub(super) fn keep(&self, fence: Fence, block: Pinned) {
        lock(&self.0).push_back((fence, block));
    }
}
