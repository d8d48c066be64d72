//! The walk of offloaded block inputs: they leave the device after forward and return for backward.

use super::Walk;
use crate::activations::BlockKept;
use crate::ledger::Allocation;
use crate::offload::pages;
use crate::rank::{Cargo, InFlight};
use crate::script::Begins;
use events::{Class, Place, Route};

/// The buffers that a block keeps between its forward and its backward.
pub(super) enum Saved {
    /// The buffers stay on the device.
    OnDevice(BlockKept),
    /// The block's input is stored in main memory or on disk.
    Offloaded {
        block: usize,
        /// Its buffer on the device, once it is in flight from main memory.
        x: Option<Staged>,
        /// Its buffer in main memory, if it is stored there.
        held: Option<Allocation>,
        /// Its buffer in main memory, while it is in flight from disk.
        read: Option<Staged>,
    },
}

/// An input in flight, and the buffer that is held for it.
pub(super) struct Staged(InFlight, Allocation);

/// A block's input in flight off the device.
pub(super) struct Leaving {
    block: usize,
    crossing: InFlight,
    /// Its buffer on the device.
    x: Allocation,
    /// Its buffer in main memory, if it is to be stored on disk.
    staged: Option<Allocation>,
}

impl Walk<'_> {
    /// Starts to move the input that the forward of `block` has kept off the device, unless it
    /// stays there.
    pub(super) fn offload_input(&mut self, block: usize, kept: BlockKept) -> Saved {
        let place = self.offload.placement.activations;
        let x = match kept {
            BlockKept::Input(x) if place != Place::Device => x,
            kept => return Saved::OnDevice(kept),
        };
        self.wait_for_leaving();
        let (staged, held) = if place == Place::Disk {
            (Some(self.staged_input()), None)
        } else {
            (None, Some(self.rank.allocate_in(Place::Host, Class::Activations, self.sizes.residual)))
        };
        let crossing = self.move_input(block, Route::DeviceToHost);
        self.leaving = Some(Leaving { block, crossing, x, staged });
        Saved::Offloaded { block, x: None, held, read: None }
    }

    /// Waits, at the end of forward, until every input has left and is written.
    pub(super) fn wait_until_offloaded(&mut self) {
        self.wait_for_leaving();
        self.wait_for_write();
    }

    fn wait_for_write(&mut self) {
        if let Some(Staged(write, buffer)) = self.writing.take() {
            self.rank.wait(write);
            self.rank.free(buffer);
        }
    }

    /// Waits until the input in flight has left the device. If it is to be stored on disk, waits
    /// for the previous write and starts its own.
    fn wait_for_leaving(&mut self) {
        let Some(Leaving { block, crossing, x, staged }) = self.leaving.take() else { return };
        self.rank.wait(crossing);
        self.rank.free(x);
        if let Some(staged) = staged {
            self.wait_for_write();
            self.writing = Some(Staged(self.move_input(block, Route::HostToDisk), staged));
        }
    }

    /// Starts to bring back the input of the block whose backward comes next. Does nothing if there
    /// is no such block, or if its input is on the device.
    pub(super) fn fetch_input(&mut self, next: Option<&mut Saved>) {
        let Some(Saved::Offloaded { block, x, read, .. }) = next else { return };
        if self.offload.placement.activations == Place::Disk {
            let staged = self.staged_input();
            *read = Some(Staged(self.move_input(*block, Route::DiskToHost), staged));
        } else {
            *x = Some(self.returning_input(*block));
        }
    }

    /// Waits until a block's input is back on the device.
    pub(super) fn arrived_input(&mut self, saved: Saved) -> BlockKept {
        let (block, x, held, read) = match saved {
            Saved::OnDevice(kept) => return kept,
            Saved::Offloaded { block, x, held, read } => (block, x, held, read),
        };
        let read = read.map(|Staged(read, buffer)| {
            self.rank.wait(read);
            buffer
        });
        let Staged(crossing, x) = x.unwrap_or_else(|| self.returning_input(block));
        self.rank.wait(crossing);
        self.rank.free_all(held);
        self.rank.free_all(read);
        BlockKept::Input(x)
    }

    /// Allocates a buffer in main memory for an input in flight to or from disk.
    fn staged_input(&mut self) -> Allocation {
        self.rank.allocate_in(Place::Host, Class::Workspace, pages(self.sizes.residual))
    }

    /// Starts to move the input of `block` to the device, into a buffer that it allocates.
    fn returning_input(&mut self, block: usize) -> Staged {
        let x = self.rank.allocate(Class::Activations, self.sizes.residual);
        Staged(self.move_input(block, Route::HostToDevice), x)
    }

    /// Starts to move the input of `block` over `route`.
    fn move_input(&mut self, block: usize, route: Route) -> InFlight {
        let bytes = if route.touches_disk() { pages(self.sizes.residual) } else { self.sizes.residual };
        let cargo = Cargo { route, class: Class::Activations, unit: block, bytes };
        self.rank.transfer(cargo, Begins::Now, &[])
    }
}
