//! Inputs of blocks that rest beyond the device from forward to backward.
//!
//! While a block's forward computes, the input of the one before leaves; while its backward
//! computes, the input of the one before in the model comes back.

use crate::rank_error::{RankError, Result};
use device::{Buffer, Class, DType, Place};
use offload::{Cargo, Crossing, Extent, Staged};
use sharding::Rank;
use std::rc::Rc;

/// The inputs of one micro-batch, by block.
pub(super) struct Inputs {
    rank: Rc<Rank>,
    place: Place,
    /// Where they rest on disk.
    extents: Vec<Extent>,
    /// Those that rest in main memory.
    held: Vec<Option<Buffer>>,
    /// The one that leaves the device, with its copy in main memory.
    leaving: Option<Leaving>,
    /// The one that is written to the disk.
    writing: Option<Staged>,
    /// The one that comes back.
    coming: Option<Coming>,
    /// Elements of one.
    len: usize,
    dtype: DType,
}

struct Leaving {
    block: usize,
    /// Held until the copy is over, which may still read it; the planner counts it so long.
    _input: Buffer,
    copy: Buffer,
    crossing: Crossing,
}

enum Coming {
    Crossing(Buffer, Crossing),
    Reading(Staged),
}

impl Inputs {
    /// Room for the inputs of `blocks` blocks, each of `len` elements of type `dtype`, in `place`;
    /// nothing if they stay on the device.
    ///
    /// # Errors
    /// If the disk is full.
    pub(super) fn new(
        rank: Rc<Rank>,
        place: Place,
        blocks: usize,
        (len, dtype): (usize, DType),
    ) -> Result<Option<Self>> {
        if place == Place::Device {
            return Ok(None);
        }
        let extent = |_| rank.transfers.extent(Class::Activations, len * dtype.size());
        let on_disk = if place == Place::Disk { blocks } else { 0 };
        let extents = (0..on_disk).map(extent).collect::<offload::Result<_>>()?;
        let held = (0..blocks).map(|_| None).collect();
        Ok(Some(Inputs {
            rank,
            place,
            extents,
            held,
            leaving: None,
            writing: None,
            coming: None,
            len,
            dtype,
        }))
    }

    fn cargo(block: usize) -> Cargo {
        Cargo { class: Class::Activations, unit: block }
    }

    /// The input of `block`, which has computed its forward, begins to leave.
    ///
    /// # Errors
    /// If there is no room for it, or the transfer before it fails.
    pub(super) fn leave(&mut self, block: usize, input: Buffer) -> Result<()> {
        self.wait_for_leaving()?;
        let transfers = &self.rank.transfers;
        let mut copy = match self.place {
            Place::Disk => transfers.staging(self.dtype, self.len)?,
            _ => self.rank.device.allocate_host(Class::Activations, self.dtype, self.len)?,
        };
        let crossing = transfers.copy(Self::cargo(block), copy.slice_mut(0..self.len), input.view())?;
        self.leaving = Some(Leaving { block, _input: input, copy, crossing });
        Ok(())
    }

    /// Waits for the input that leaves, and frees it on the device. It goes on to the disk, if that
    /// is where it rests.
    fn wait_for_leaving(&mut self) -> Result<()> {
        let Some(Leaving { block, _input, copy, crossing }) = self.leaving.take() else { return Ok(()) };
        self.rank.transfers.wait(crossing)?;
        drop(_input);
        if self.place == Place::Host {
            self.held[block] = Some(copy);
            return Ok(());
        }
        self.wait_for_write()?;
        let bytes = copy.byte_len();
        let extent = &self.extents[block];
        self.writing = Some(self.rank.transfers.write(Self::cargo(block), extent, 0, copy, bytes));
        Ok(())
    }

    fn wait_for_write(&mut self) -> Result<()> {
        let writing = self.writing.take();
        Ok(writing.map_or(Ok(()), |staged| self.rank.transfers.wait_staged(staged).map(drop))?)
    }

    /// Forward is done: waits for all that leaves.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn left(&mut self) -> Result<()> {
        self.wait_for_leaving()?;
        self.wait_for_write()
    }

    /// The input of `block` begins to come back.
    ///
    /// # Errors
    /// If there is no room for it.
    pub(super) fn fetch(&mut self, block: usize) -> Result<()> {
        let Rank { transfers, device, .. } = &*self.rank;
        self.coming = Some(match &self.held[block] {
            Some(held) => {
                let mut input = device.allocate(Class::Activations, self.dtype, self.len)?;
                let crossing = transfers.copy(Self::cargo(block), input.view_mut(), held.view())?;
                Coming::Crossing(input, crossing)
            }
            None => {
                let (staging, extent) = (transfers.staging(self.dtype, self.len)?, &self.extents[block]);
                Coming::Reading(transfers.read(Self::cargo(block), extent, 0, staging, extent.bytes()))
            }
        });
        Ok(())
    }

    /// The input of `block`, which [`Inputs::fetch`] has fetched.
    ///
    /// # Errors
    /// If there is no room for it, or a transfer fails.
    pub(super) fn arrive(&mut self, block: usize) -> Result<Buffer> {
        let Rank { transfers, device, .. } = &*self.rank;
        match self.coming.take() {
            Some(Coming::Crossing(input, crossing)) => {
                transfers.wait(crossing)?;
                self.held[block] = None;
                Ok(input)
            }
            Some(Coming::Reading(staged)) => {
                let arrived = transfers.wait_staged(staged)?;
                let mut input = device.allocate(Class::Activations, self.dtype, self.len)?;
                let crossing = transfers.forward(Self::cargo(block), input.view_mut(), &arrived)?;
                transfers.wait(crossing)?;
                Ok(input)
            }
            None => Err(RankError::Other(format!("the input of block {block} was not fetched"))),
        }
    }

    /// Frees what a pass that was broken off has left.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn clear(&mut self) -> Result<()> {
        // The rank's own thread frees what travels.
        self.wait_for_write()?;
        if let Some(Coming::Reading(staged)) = self.coming.take() {
            self.rank.transfers.discard(staged)?;
        }
        self.leaving = None;
        self.held.fill_with(|| None);
        Ok(())
    }
}
