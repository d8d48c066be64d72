//! The walk of offloaded block inputs: they leave the device after forward and return for backward.

use super::Walk;
use crate::activations::BlockKept;
use crate::ledger::Allocation;
use crate::offload::pages;
use events::{Class, Place, Route};

/// The buffers that a block keeps between its forward and its backward.
pub(super) enum Saved {
    /// The buffers stay on the device.
    OnDevice(BlockKept),
    /// The block's input is stored in main memory or on disk.
    Offloaded {
        /// Its buffer on the device, once it is in flight from main memory.
        x: Option<Allocation>,
        /// Its buffer in main memory: it is stored there, or is in flight from disk.
        held: Option<Allocation>,
    },
}

/// A block's input in flight off the device: its buffer on the device and, if it is to be stored on
/// disk, its buffer in main memory.
pub(super) struct Leaving(Allocation, Option<Allocation>);

impl Walk<'_> {
    /// Starts to move the input that a block's forward has kept off the device, unless it stays
    /// there.
    pub(super) fn offload_input(&mut self, kept: BlockKept) -> Saved {
        let place = self.offload.placement.activations;
        let x = match kept {
            BlockKept::Input(x) if place != Place::Device => x,
            kept => return Saved::OnDevice(kept),
        };
        self.wait_for_leaving();
        self.rank.counter.transfers.count(Route::DeviceToHost, self.sizes.residual);
        let (staged, held) = if place == Place::Disk {
            (Some(self.staged_input()), None)
        } else {
            (None, Some(self.rank.allocate_in(Place::Host, Class::Activations, self.sizes.residual)))
        };
        self.leaving = Some(Leaving(x, staged));
        Saved::Offloaded { x: None, held }
    }

    /// Waits, at the end of forward, until every input has left and is written.
    pub(super) fn wait_until_offloaded(&mut self) {
        self.wait_for_leaving();
        self.rank.free_all(self.writing.take());
    }

    /// Waits until the input in flight has left the device. If it is to be stored on disk, waits
    /// for the previous write and starts its own.
    fn wait_for_leaving(&mut self) {
        let Some(Leaving(x, staged)) = self.leaving.take() else { return };
        self.rank.free(x);
        if let Some(staged) = staged {
            self.rank.free_all(self.writing.replace(staged));
            self.rank.counter.transfers.count(Route::HostToDisk, pages(self.sizes.residual));
        }
    }

    /// Starts to bring back the input of the block whose backward comes next. Does nothing if there
    /// is no such block, or if its input is on the device.
    pub(super) fn fetch_input(&mut self, next: Option<&mut Saved>) {
        let Some(Saved::Offloaded { x, held }) = next else { return };
        if self.offload.placement.activations == Place::Disk {
            self.rank.counter.transfers.count(Route::DiskToHost, pages(self.sizes.residual));
            *held = Some(self.staged_input());
        } else {
            *x = Some(self.returning_input());
        }
    }

    /// Waits until a block's input is back on the device.
    pub(super) fn arrived_input(&mut self, saved: Saved) -> BlockKept {
        match saved {
            Saved::OnDevice(kept) => kept,
            Saved::Offloaded { x, held } => {
                let x = x.unwrap_or_else(|| self.returning_input());
                self.rank.free_all(held);
                BlockKept::Input(x)
            }
        }
    }

    /// Allocates a buffer in main memory for an input in flight to or from disk.
    fn staged_input(&mut self) -> Allocation {
        self.rank.allocate_in(Place::Host, Class::Workspace, pages(self.sizes.residual))
    }

    /// Allocates a buffer on the device for a returning input, and counts its last transfer.
    fn returning_input(&mut self) -> Allocation {
        self.rank.counter.transfers.count(Route::HostToDevice, self.sizes.residual);
        self.rank.allocate(Class::Activations, self.sizes.residual)
    }
}
