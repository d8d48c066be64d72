//! The walk of blocks' inputs that leave the device after forward and come back for backward.

use super::Walk;
use crate::activations::BlockKept;
use crate::ledger::Allocation;
use crate::offload::pages;
use events::{Class, Place, Route};

/// What a block keeps between its forward and its backward.
pub(super) enum Saved {
    /// It stays on the device.
    Here(BlockKept),
    /// Its input, which rests in main memory or on disk.
    Away {
        /// Its buffer on the device, once it is on its way back from main memory.
        x: Option<Allocation>,
        /// Its buffer in main memory: it rests there, or is on its way back from disk.
        held: Option<Allocation>,
    },
}

/// A block's input on its way off the device: its buffer there, and for one that goes on to disk
/// its buffer in main memory.
pub(super) struct Leaving(Allocation, Option<Allocation>);

impl Walk<'_> {
    /// Sends off the input that a block's forward has kept, unless it stays.
    pub(super) fn save(&mut self, kept: BlockKept) -> Saved {
        let place = self.offload.placement.activations;
        let x = match kept {
            BlockKept::Input(x) if place != Place::Device => x,
            kept => return Saved::Here(kept),
        };
        self.settle_input();
        self.counter.transfers.count(Route::DeviceToHost, self.sizes.residual);
        let (staged, held) = if place == Place::Disk {
            (Some(self.staged_input()), None)
        } else {
            (None, Some(self.host.allocate(Class::Activations, self.sizes.residual)))
        };
        self.leaving = Some(Leaving(x, staged));
        Saved::Away { x: None, held }
    }

    /// Waits, at the end of forward, until every input has left and is written.
    pub(super) fn settle_inputs(&mut self) {
        self.settle_input();
        self.host.free_all(self.writing.take());
    }

    /// Waits until the input that leaves has left. If it goes on to disk, waits for the write
    /// before its own and starts that.
    fn settle_input(&mut self) {
        let Some(Leaving(x, staged)) = self.leaving.take() else { return };
        self.device.free(x);
        if let Some(staged) = staged {
            self.host.free_all(self.writing.replace(staged));
            self.counter.transfers.count(Route::HostToDisk, pages(self.sizes.residual));
        }
    }

    /// Starts to bring back the input of the block whose backward comes next, if there is one.
    pub(super) fn start(&mut self, next: Option<&mut Saved>) {
        let Some(Saved::Away { x, held }) = next else { return };
        if self.offload.placement.activations == Place::Disk {
            self.counter.transfers.count(Route::DiskToHost, pages(self.sizes.residual));
            *held = Some(self.staged_input());
        } else {
            *x = Some(self.returning_input());
        }
    }

    /// Waits until a block's input is back on the device.
    pub(super) fn arrive(&mut self, saved: Saved) -> BlockKept {
        match saved {
            Saved::Here(kept) => kept,
            Saved::Away { x, held } => {
                let x = x.unwrap_or_else(|| self.returning_input());
                self.host.free_all(held);
                BlockKept::Input(x)
            }
        }
    }

    /// Allocates a buffer in main memory for an input on its way to or from disk.
    fn staged_input(&mut self) -> Allocation {
        self.host.allocate(Class::Workspace, pages(self.sizes.residual))
    }

    /// Allocates a buffer on the device for an input that comes back, and counts its last way.
    fn returning_input(&mut self) -> Allocation {
        self.counter.transfers.count(Route::HostToDevice, self.sizes.residual);
        self.device.allocate(Class::Activations, self.sizes.residual)
    }
}
