//! The memory that communicators take on a GPU: the difference in free bytes before and after, over
//! all its ranks.

use crate::CollectiveError;
use crate::core::backend::{Backend, Result, Topic};
use crate::group::ControlChannel;
use device::cuda::Runtime;
use std::sync::Arc;

/// Identifies a GPU.
pub(crate) type Uuid = [u8; 16];

/// One rank's part in measuring the memory that communicators take.
pub(crate) struct MemoryProbe {
    channel: ControlChannel,
    runtime: Arc<Runtime>,
    /// By member: its GPU.
    gpus: Vec<Uuid>,
}

impl MemoryProbe {
    pub(crate) fn new(channel: ControlChannel, runtime: &Arc<Runtime>, gpus: Vec<Uuid>) -> Self {
        MemoryProbe { channel, runtime: runtime.clone(), gpus }
    }

    /// Returns the probe for the sub-group of `members`, whose group is `control`.
    pub(crate) fn split(&self, control: &Arc<dyn Backend>, members: &[usize]) -> Self {
        let gpus = members.iter().map(|&member| self.gpus[member]).collect();
        MemoryProbe::new(ControlChannel::open(control, Topic::Splits), &self.runtime, gpus)
    }

    fn free(&self) -> Result<u64> {
        let refused = |error: device::DeviceError| CollectiveError::Setup {
            rank: self.channel.global_rank(),
            reason: error.to_string(),
        };
        self.runtime.gpu().memory().map(|(free, _)| free).map_err(refused)
    }

    /// Returns the free bytes of this rank's GPU before communicators are made. Every rank calls
    /// it; none returns before all have read.
    pub(crate) fn begin(&self) -> Result<u64> {
        let free = self.free()?;
        self.channel.exchange(&[]).map(|_| free)
    }

    /// Notes how much memory of this rank's GPU the communicators of all its ranks have taken since
    /// [`MemoryProbe::begin`] returned `before`. Every rank calls it once they are made.
    pub(crate) fn end(&self, before: u64) -> Result<()> {
        let free = self.channel.exchange(bytemuck::bytes_of(&[before, self.free()?]))?;
        let gpu = self.gpus[self.channel.member()];
        let here = self.gpus.iter().zip(&free).filter(|(other, _)| **other == gpu);
        let (most, least) = here.fold((0, u64::MAX), |(most, least), (_, bytes)| {
            let [before, after] = bytemuck::try_pod_read_unaligned(bytes).unwrap_or_default();
            (most.max(before), least.min(after))
        });
        self.runtime.note_communicators(most.saturating_sub(least));
        Ok(())
    }
}
