//! Copies between device and main memory.

use super::{Issued, ReadBuffer, TransferLabel, Transfers};
use crate::Result;
use crate::route_queue::Times;
use device::{Copying, Place, View, ViewMut};
use events::{Route, Work};
use std::time::{Duration, Instant};

/// A copy between device and main memory that the rank has not waited for.
#[must_use = "what has crossed may be used once it is waited for"]
pub struct Crossing {
    issued: Issued,
    copying: Copying,
    /// When the copy begins and ends. A copy queued on a GPU ends later, unless the route is
    /// simulated.
    crosses: Times,
}

impl Transfers {
    /// Starts to copy `x` to `out`, of the same type: one is on the device, the other in main
    /// memory. `out` holds the elements once the crossing has been waited for. Until then the
    /// caller uses neither for anything else, as [`device::Device::start_copy`] says.
    ///
    /// # Errors
    /// The driver's.
    pub fn copy(&self, label: TransferLabel, out: ViewMut<'_>, x: View<'_>) -> Result<Crossing> {
        self.copy_from(self.now(), label, out, x)
    }

    /// Starts to copy a buffer that was read from a disk to the device, as [`Transfers::copy`]
    /// does. A simulated link may have carried it since the read was complete.
    ///
    /// # Errors
    /// The driver's.
    pub fn copy_to_device(
        &self,
        label: TransferLabel,
        out: ViewMut<'_>,
        from: &ReadBuffer,
    ) -> Result<Crossing> {
        let x = from.buffer.slice(0..out.len());
        self.copy_from(self.at(from.complete), label, out, x)
    }

    /// True if the device is the CPU, whose buffers are in main memory.
    pub fn device_in_main_memory(&self) -> bool {
        self.device.gpu().is_none()
    }

    /// True if a copy to the device takes no time: the device is the CPU, and the route to it is
    /// not simulated.
    pub fn crosses_at_once(&self) -> bool {
        self.device_in_main_memory() && self.queues.borrow()[Route::HostToDevice.index()].link.is_none()
    }

    /// Starts a copy as [`Transfers::copy`] does, unless the device is the CPU: the caller then
    /// reads `x` in place, and `out` stays as it was. Either way the transfer counts.
    ///
    /// # Errors
    /// The driver's.
    pub fn copy_or_borrow(&self, label: TransferLabel, out: ViewMut<'_>, x: View<'_>) -> Result<Crossing> {
        self.copy_or_borrow_since(Instant::now(), label, out, x)
    }

    /// Starts a copy as [`Transfers::copy_or_borrow`] does. `x` was complete at `complete`, and a
    /// simulated link may have carried it since then.
    ///
    /// # Errors
    /// The driver's.
    pub fn copy_or_borrow_since(
        &self,
        complete: Instant,
        label: TransferLabel,
        out: ViewMut<'_>,
        x: View<'_>,
    ) -> Result<Crossing> {
        let ready = self.at(complete);
        if self.device_in_main_memory() {
            let bytes = x.len() * x.dtype().size();
            return Ok(self.cross_in_place(ready, route_from(x.place()), label, bytes));
        }
        self.copy_from(ready, label, out, x)
    }

    /// Counts a transfer of `bytes` bytes from main memory to a CPU device: the kernel that
    /// computed them has written them there.
    pub fn count_in_place_write(&self, label: TransferLabel, bytes: usize) -> Crossing {
        self.cross_in_place(self.now(), Route::HostToDevice, label, bytes)
    }

    fn cross_in_place(&self, ready: Duration, route: Route, label: TransferLabel, bytes: usize) -> Crossing {
        let issued = self.issue(route, label, bytes as u64);
        let crosses = self.queues.borrow_mut()[route.index()].cross(ready, bytes as u64, (ready, ready));
        Crossing { issued, copying: Copying::done(), crosses }
    }

    fn copy_from(
        &self,
        ready: Duration,
        label: TransferLabel,
        out: ViewMut<'_>,
        x: View<'_>,
    ) -> Result<Crossing> {
        let route = route_from(x.place());
        let bytes = (x.len() * x.dtype().size()) as u64;
        let issued = self.issue(route, label, bytes);
        let began = self.now();
        let is_simulated = self.queues.borrow()[route.index()].link.is_some();
        let work = (!is_simulated).then_some(Work::Transfer { sequence: issued.sequence });
        let copying = self.device.start_copy(out, x, work)?;
        let crosses = self.queues.borrow_mut()[route.index()].cross(ready, bytes, (began, self.now()));
        Ok(Crossing { issued, copying, crosses })
    }

    /// Waits for `crossing`, so that its elements may be used. A copy from a GPU to main memory
    /// blocks the host until it is done. After a copy to a GPU, the GPU's next kernels wait for it.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait(&self, crossing: Crossing) -> Result<()> {
        let Crossing { issued, copying, mut crosses } = crossing;
        let (since, was_done) = (self.now(), copying.is_done());
        copying.wait()?;
        if !was_done {
            // The device emits the true times later, when they are known.
            crosses.1 = crosses.1.max(self.now());
        }
        self.sleep_until(issued, crosses.1)?;
        self.finished(issued, crosses, since);
        Ok(())
    }

    /// True if the rank would wait for `crossing`, a copy to the device. Always false on a GPU,
    /// whose next kernels wait instead.
    pub fn would_wait(&self, crossing: &Crossing) -> bool {
        self.device_in_main_memory() && !self.has_crossed(crossing)
    }

    /// True if waiting for `crossing` would not block.
    pub fn has_crossed(&self, crossing: &Crossing) -> bool {
        crossing.copying.is_over() && crossing.crosses.1 <= self.now()
    }
}

/// Returns the route from `place`, the device or main memory, to the other one.
fn route_from(place: Place) -> Route {
    if place == Place::Device { Route::DeviceToHost } else { Route::HostToDevice }
}
