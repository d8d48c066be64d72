//! A rank's memory on its GPU, kept for reuse: a freed block serves the next request of its size.
//!
//! Blocks are handed out and taken back in the order of the rank's program, and reused in the order
//! of its compute stream, so the same addresses come back on every run, whatever the timing.

use super::call::Named;
use super::context::Context;
use super::gate::ContextWait;
use crate::{DeviceError, Result};
use cudarc::driver::result;
use events::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Sizes are multiples of this many bytes; the driver aligns to it.
const GRAIN: usize = 512;

#[derive(Default)]
struct Stock {
    /// Freed blocks by size.
    shelves: BTreeMap<usize, Vec<u64>>,
    /// Every block allocated from the driver, with its size.
    taken: BTreeMap<u64, usize>,
    /// Bytes of all these blocks.
    reserved: u64,
    /// Maximum number of bytes ever allocated.
    most: u64,
    /// Bytes of the blocks that buffers hold.
    lent: u64,
}

/// Memory that a rank has allocated on its GPU, and the other memory in use there. Values are
/// bytes, except for the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Maximum that this rank has ever held.
    pub taken: u64,
    /// Held now, neither by buffers nor for reuse: workspaces, partial results, tables.
    pub workspaces: u64,
    /// In use on the whole GPU now, as the driver counts.
    pub in_use: u64,
    /// The part of `in_use` taken by the ranks of this process.
    pub of_ranks: u64,
    /// The part of `in_use` taken by communicators when they were created: those of all ranks on
    /// this GPU, including other processes. The rest is contexts, code and other programs.
    pub communicators: u64,
    /// Number of kernels, copies and fills that this rank has queued.
    pub queued: u64,
    /// Number of times that the host has waited for one of the rank's streams to be idle.
    pub waits: u64,
}

impl Stock {
    /// Frees a block.
    ///
    /// # Safety
    /// Every stream is idle, and no buffer holds the block.
    unsafe fn free(&mut self, taken: &AtomicU64, address: u64) -> Result<()> {
        let Some(size) = self.taken.remove(&address) else { return Ok(()) };
        self.reserved -= size as u64;
        taken.fetch_sub(size as u64, Ordering::Relaxed);
        // SAFETY: taken once, freed once; the rest is the caller's promise.
        unsafe { result::free_sync(address) }.named("cuMemFree")
    }
}

/// The stocks of the ranks that share a GPU.
#[derive(Default)]
pub(super) struct Stocks {
    all: Mutex<Vec<Weak<Mutex<Stock>>>>,
    /// Bytes that these ranks have taken.
    taken: AtomicU64,
}

impl Stocks {
    /// Returns the bytes that the ranks on this GPU have taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn add(&self, stock: &Arc<Mutex<Stock>>) {
        let mut stocks = lock(&self.all);
        stocks.retain(|known| known.strong_count() > 0);
        stocks.push(Arc::downgrade(stock));
    }

    /// Frees blocks that ranks keep for reuse, until `needed` bytes are free or none is left: those
    /// of `own` first, and large ones before small ones.
    fn release(&self, context: &Context, own: &Arc<Mutex<Stock>>, mut needed: usize) -> Result<()> {
        let mut stocks: Vec<_> = lock(&self.all).iter().filter_map(Weak::upgrade).collect();
        stocks.sort_by_key(|stock| !Arc::ptr_eq(stock, own));
        // Blocks that are taken off the shelves can no longer be handed out, and once every stream
        // is idle, no queued work uses them.
        let mut freed = Vec::new();
        for stock in &stocks {
            let shelves = &mut lock(stock).shelves;
            while needed > 0
                && let Some(mut shelf) = shelves.last_entry()
            {
                match shelf.get_mut().pop() {
                    Some(address) => {
                        freed.push((stock, address));
                        needed = needed.saturating_sub(*shelf.key());
                    }
                    None => drop(shelf.remove()),
                }
            }
        }
        if freed.is_empty() {
            return Ok(());
        }
        context.synchronize()?;
        for (stock, address) in freed {
            // SAFETY: as said above.
            unsafe { lock(stock).free(&self.taken, address) }?;
        }
        Ok(())
    }
}

/// The memory that a rank has allocated from the driver.
pub(super) struct Pool {
    context: Arc<Context>,
    stocks: Arc<Stocks>,
    stock: Arc<Mutex<Stock>>,
}

impl Pool {
    pub(super) fn new(context: Arc<Context>, stocks: Arc<Stocks>) -> Self {
        let stock = Arc::default();
        stocks.add(&stock);
        Pool { context, stocks, stock }
    }

    /// Returns the bytes taken from the driver.
    pub(super) fn reserved(&self) -> u64 {
        lock(&self.stock).reserved
    }

    /// Returns the address of `bytes` bytes with unspecified contents; `None` if the GPU has no
    /// room even after its ranks have released everything that they kept for reuse. They also
    /// release some before memory is [`SCARCE`]: NVIDIA's libraries allocate memory when one of
    /// their kernels first runs, and if there is none they choose another kernel or fail.
    pub(super) fn take(&self, bytes: usize) -> Result<Option<u64>> {
        let size = rounded(bytes);
        if let Some(address) = lock(&self.stock).shelves.get_mut(&size).and_then(Vec::pop) {
            return Ok(Some(address));
        }
        self.context.enter()?;
        let _wait = ContextWait::begin();
        let lacking = free_bytes().map_or(0, |free| (size + SCARCE).saturating_sub(free));
        self.stocks.release(&self.context, &self.stock, lacking)?;
        // SAFETY: the driver takes a size and touches nothing of ours; a context is current.
        let mut taken = unsafe { result::malloc_sync(size) };
        if taken.is_err() {
            self.stocks.release(&self.context, &self.stock, usize::MAX)?;
            // SAFETY: as above.
            taken = unsafe { result::malloc_sync(size) };
        }
        match taken {
            Ok(address) => {
                let mut stock = lock(&self.stock);
                stock.reserved += size as u64;
                stock.taken.insert(address, size);
                stock.most = stock.most.max(stock.reserved);
                self.stocks.taken.fetch_add(size as u64, Ordering::Relaxed);
                Ok(Some(address))
            }
            Err(error) if error.0 == cudarc::driver::sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY => {
                Ok(None)
            }
            Err(error) => Err(error).named("cuMemAlloc"),
        }
    }

    /// Takes memory like [`Pool::take`], for a buffer.
    pub(super) fn lend(&self, bytes: usize) -> Result<Option<u64>> {
        let address = self.take(bytes)?;
        lock(&self.stock).lent += address.map_or(0, |_| rounded(bytes) as u64);
        Ok(address)
    }

    /// Takes back an address of [`Pool::lend`].
    pub(super) fn take_back(&self, address: u64, bytes: usize) {
        lock(&self.stock).lent -= rounded(bytes) as u64;
        self.put(address, bytes);
    }

    /// Returns the maximum number of bytes ever allocated from the driver, and the bytes now held
    /// neither by buffers nor for reuse.
    pub(super) fn holdings(&self) -> (u64, u64) {
        let stock = lock(&self.stock);
        let kept: usize = stock.shelves.iter().map(|(size, addresses)| size * addresses.len()).sum();
        (stock.most, stock.reserved - stock.lent - kept as u64)
    }

    pub(super) fn put(&self, address: u64, bytes: usize) {
        lock(&self.stock).shelves.entry(rounded(bytes)).or_default().push(address);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _wait = ContextWait::begin();
        // If the GPU fails here, nothing can be freed; the driver frees everything when the process
        // ends.
        if self.context.synchronize().is_err() {
            return;
        }
        let mut stock = lock(&self.stock);
        for address in stock.taken.keys().copied().collect::<Vec<_>>() {
            // SAFETY: the rank that the pool belongs to ends: buffers keep it alive, and its
            // streams are idle.
            let _ = unsafe { stock.free(&self.stocks.taken, address) };
        }
    }
}

/// Free bytes of a GPU below which NVIDIA's libraries may lack memory.
pub(super) const SCARCE: usize = 256 << 20;

/// Returns the number of free bytes on the current GPU; `None` if the driver does not report it.
pub(super) fn free_bytes() -> Option<usize> {
    result::mem_get_info().ok().map(|(free, _)| free)
}

fn rounded(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(GRAIN)
}

/// The message of every error about a lack of memory.
pub(super) const OUT_OF_MEMORY: &str = "out of memory";

/// Returns the error for a GPU without room for memory that the ledger does not count.
pub(super) fn no_room(what: &str, bytes: usize) -> DeviceError {
    DeviceError::Cuda {
        call: "cuMemAlloc",
        reason: format!("{OUT_OF_MEMORY}: the GPU has no room for {bytes} bytes of {what}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_lack_of_memory_is_called_out_of_memory() {
        let said = super::no_room("partial results", 7).to_string();
        assert!(said.contains("out of memory") && said.contains("7 bytes of partial results"), "{said}");
    }
}
