//! NCCL's own calls, one after the other: the baseline for measuring the layer above them.

use super::calls::{CallState, Transfer, nccl_error};
use super::communicator::Communicator;
use super::setup::Setup;
use crate::CollectiveError;
use crate::core::backend::Backend;
use crate::core::call::{BufferShape, Call, Signature};
use crate::core::observer::Observer;
use crate::group::Group;
use device::Buffer;
use device::cuda::Runtime;
use events::Operation;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A communicator of all ranks of a group, for repeated calls only.
pub struct Repeater {
    control: Arc<dyn Backend>,
    runtime: Arc<Runtime>,
    communicator: Option<Communicator>,
    timeout: Duration,
    next: u64,
}

impl Repeater {
    /// Makes a communicator in addition to the group's. Every rank calls it, with its GPU.
    ///
    /// # Errors
    /// As [`join`](super::join()).
    pub fn new(group: &Group, runtime: &Arc<Runtime>, timeout: Duration) -> Result<Self, CollectiveError> {
        let all: Vec<usize> = (0..group.size() as usize).collect();
        let control = group.backend().split((u64::MAX - 1, u64::MAX), &all);
        let communicator = Setup::new(&control, runtime, timeout).run()?.communicator;
        Ok(Repeater { control, runtime: runtime.clone(), communicator, timeout, next: 0 })
    }

    /// Returns how long `calls` calls of `operation` (a reduction, an all-gather, or a broadcast of
    /// rank 0) on `buffer` take, one queued behind the other, until the GPU has done all. Ranks
    /// compare the call once, not at every repetition.
    ///
    /// # Errors
    /// The group's failure, NCCL's, or the driver's.
    pub fn time(
        &mut self,
        operation: Operation,
        buffer: &Buffer,
        calls: usize,
    ) -> Result<Duration, CollectiveError> {
        let (len, dtype) = (buffer.len(), buffer.dtype());
        let invalid = |what| self.control.invalid(operation, what);
        let own = buffer.on_gpu().filter(|(runtime, _)| Arc::ptr_eq(runtime, &self.runtime));
        let (_, address) = own.ok_or_else(|| invalid("a buffer elsewhere than on this rank's GPU"))?;
        let shapes = vec![BufferShape { len, dtype }];
        let signature =
            Signature { shapes, on_gpu: true, external_engine: true, ..Signature::new(operation) };
        let observer = Observer::silent(self.control.global_rank());
        let call = Arc::new(Call { signature, ..Call::new(operation, self.next, observer) });
        self.next += 1;
        self.control.issue(&call, &mut [], &[])?;
        self.control.wait(&call)?;
        let transfer = Transfer { operation, root: 0, address, len, dtype };
        self.repeat(&call, transfer, calls).map_err(|error| self.control.device_error(&call, &error))
    }

    fn repeat(&self, call: &Call, transfer: Transfer, calls: usize) -> device::Result<Duration> {
        self.runtime.synchronize()?;
        let began = Instant::now();
        let Some(communicator) = &self.communicator else { return Ok(began.elapsed()) };
        let give_up = || {
            let failed = self.control.failure(Some(call.id())).map(|error| error.to_string());
            failed.or_else(|| (began.elapsed() > self.timeout).then(|| "it timed out".to_string()))
        };
        let done = self.runtime.communicate([], |stream| {
            for _ in 0..calls {
                // SAFETY: the ranks have agreed about operation, length and type, and each repeats
                // the call as often; the buffer is borrowed until the GPU is done, below.
                let state =
                    unsafe { communicator.enqueue(&[transfer], stream.handle()) }.map_err(nccl_error)?;
                if state == CallState::Running {
                    communicator.settle(&give_up).map_err(nccl_error)?;
                }
            }
            Ok(())
        })?;
        while !self.runtime.has_reached(&done)? {
            if let Some(reason) = give_up() {
                communicator.abort();
                self.runtime.synchronize()?;
                return Err(nccl_error(reason));
            }
            std::thread::yield_now();
        }
        Ok(began.elapsed())
    }
}

impl Drop for Repeater {
    fn drop(&mut self) {
        let since = Instant::now();
        let give_up =
            || (since.elapsed() > self.timeout).then(|| "the other ranks do not end it".to_string());
        if let Some(communicator) = &self.communicator {
            // A communicator that cannot be ended in order is aborted when it is dropped.
            let _ = communicator.finish(&give_up);
        }
        self.control.depart();
    }
}
