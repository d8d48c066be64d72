//! Inputs of blocks that are stored beyond the device from forward to backward.
//!
//! While a block's forward computes, the previous block's input is offloaded; while its backward
//! computes, the previous block's input is fetched.

use crate::rank_error::{RankError, Result};
use device::{Buffer, Class, DType, Place};
use offload::{Crossing, DiskTransfer, Extent, OnDisk, TransferLabel};
use sharding::Rank;
use std::rc::Rc;

/// The inputs of one micro-batch, by block.
pub(super) struct OffloadedInputs {
    rank: Rc<Rank>,
    place: Place,
    /// The extents of inputs that are stored on disk.
    extents: Vec<Extent>,
    /// The inputs that are stored in main memory.
    held: Vec<Option<Buffer>>,
    /// The input that leaves the device, with its copy in main memory.
    outgoing: Option<OutgoingInput>,
    /// The input that is written to disk.
    writing: Option<DiskTransfer>,
    /// The input that is fetched.
    incoming: Option<IncomingInput>,
    /// Number of elements of an input.
    len: usize,
    dtype: DType,
}

struct OutgoingInput {
    block: usize,
    /// Held until the copy is done, since the copy may still read it; the planner counts it until
    /// then.
    sent: Buffer,
    copy: Buffer,
    crossing: Crossing,
}

enum IncomingInput {
    Crossing(Buffer, Crossing),
    Reading(DiskTransfer),
}

impl OffloadedInputs {
    /// Reserves space in `place` for the inputs of `blocks` blocks, each of `len` elements of type
    /// `dtype`; `None` if they stay on the device.
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
        Ok(Some(OffloadedInputs {
            rank,
            place,
            extents,
            held,
            outgoing: None,
            writing: None,
            incoming: None,
            len,
            dtype,
        }))
    }

    fn label(block: usize) -> TransferLabel {
        TransferLabel { class: Class::Activations, unit: block }
    }

    /// Starts to offload the input of `block`, which has computed its forward.
    ///
    /// # Errors
    /// If there is no memory for it, or the previous transfer fails.
    pub(super) fn offload(&mut self, block: usize, input: Buffer) -> Result<()> {
        self.wait_for_outgoing()?;
        let transfers = &self.rank.transfers;
        let mut copy = match self.place {
            Place::Disk => transfers.staging(self.dtype, self.len)?,
            _ => self.rank.device.allocate_host(Class::Activations, self.dtype, self.len)?,
        };
        let crossing = transfers.copy(Self::label(block), copy.slice_mut(0..self.len), input.view())?;
        self.outgoing = Some(OutgoingInput { block, sent: input, copy, crossing });
        Ok(())
    }

    /// Waits for the input that leaves, and frees it on the device. Then starts to write it to
    /// disk, if inputs are stored there.
    fn wait_for_outgoing(&mut self) -> Result<()> {
        let Some(OutgoingInput { block, sent, copy, crossing }) = self.outgoing.take() else { return Ok(()) };
        self.rank.transfers.wait(crossing)?;
        drop(sent);
        if self.place == Place::Host {
            self.held[block] = Some(copy);
            return Ok(());
        }
        self.wait_for_write()?;
        let to = OnDisk::first(Self::label(block), &self.extents[block], copy.byte_len());
        self.writing = Some(self.rank.transfers.write(to, copy));
        Ok(())
    }

    fn wait_for_write(&mut self) -> Result<()> {
        if let Some(staged) = self.writing.take() {
            self.rank.transfers.wait_staged(staged)?;
        }
        Ok(())
    }

    /// Waits until all inputs of a forward are offloaded.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn wait_until_offloaded(&mut self) -> Result<()> {
        self.wait_for_outgoing()?;
        self.wait_for_write()
    }

    /// Starts to fetch the input of `block`.
    ///
    /// # Errors
    /// If there is no room for it.
    pub(super) fn fetch(&mut self, block: usize) -> Result<()> {
        let Rank { transfers, device, .. } = &*self.rank;
        self.incoming = Some(match &self.held[block] {
            Some(held) => {
                let mut input = device.allocate(Class::Activations, self.dtype, self.len)?;
                let crossing = transfers.copy(Self::label(block), input.view_mut(), held.view())?;
                IncomingInput::Crossing(input, crossing)
            }
            None => {
                let (staging, extent) = (transfers.staging(self.dtype, self.len)?, &self.extents[block]);
                let from = OnDisk::first(Self::label(block), extent, extent.bytes());
                IncomingInput::Reading(transfers.read(from, staging))
            }
        });
        Ok(())
    }

    /// Waits for the input of `block`, which [`OffloadedInputs::fetch`] fetches, and returns it.
    ///
    /// # Errors
    /// If there is no room for it, or a transfer fails.
    pub(super) fn arrive(&mut self, block: usize) -> Result<Buffer> {
        let Rank { transfers, device, .. } = &*self.rank;
        match self.incoming.take() {
            Some(IncomingInput::Crossing(input, crossing)) => {
                transfers.wait(crossing)?;
                self.held[block] = None;
                Ok(input)
            }
            Some(IncomingInput::Reading(staged)) => {
                let arrived = transfers.wait_staged(staged)?;
                let mut input = device.allocate(Class::Activations, self.dtype, self.len)?;
                let crossing = transfers.copy_to_device(Self::label(block), input.view_mut(), &arrived)?;
                transfers.wait(crossing)?;
                Ok(input)
            }
            None => Err(RankError::Other(format!(
                "the input of block {block} was not fetched; this is a bug in this program"
            ))),
        }
    }

    /// Frees the inputs of a pass that was interrupted.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn clear(&mut self) -> Result<()> {
        // Buffers in flight must be freed by the rank's own thread.
        self.wait_for_write()?;
        if let Some(IncomingInput::Reading(staged)) = self.incoming.take() {
            self.rank.transfers.discard(staged)?;
        }
        self.outgoing = None;
        self.held.fill_with(|| None);
        Ok(())
    }
}
