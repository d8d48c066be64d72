//! Emits the start and the end of a pass over a unit.

use crate::{Rank, UnitId};
use device::Device;
use device::cuda::Begun;
use events::{Began, Boundary, Emitter, Pass, What, Work};

/// A pass over a unit that has begun. Dropping it emits the end of the pass. On a GPU the pass is
/// then queued; the times at which it ran are reported later.
#[must_use = "the pass ends when this is dropped"]
pub struct PassSpan {
    emitter: Emitter,
    device: Device,
    begun: Option<Begun>,
    pass: Pass,
    unit: u16,
    micro: u16,
}

impl Rank {
    /// Emits the start of `pass` over `unit` in micro-batch `micro` of the step. A viewer may hold
    /// the rank here: the unit is gathered, and the next one is in flight.
    pub fn begin_pass(&self, pass: Pass, unit: UnitId, micro: usize) -> PassSpan {
        let mut span = self.begin_pass_on_cpu(pass, unit, micro);
        span.begun = self.device.begin();
        span
    }

    /// The same for a pass that the CPU runs, whatever the device: it is not queued.
    pub fn begin_pass_on_cpu(&self, pass: Pass, unit: UnitId, micro: usize) -> PassSpan {
        let (unit, micro) = (unit as u16, micro.min(u16::MAX.into()) as u16);
        let (emitter, device) = (self.emitter.clone(), self.device.clone());
        // Reported first, so that the last pass over this unit precedes this one. The next kernel
        // returns its error.
        let _ = device.emit_past();
        emitter.emit(What::PassStarted { pass, unit, micro });
        emitter.boundary(Boundary::Unit);
        PassSpan { emitter, device, begun: None, pass, unit, micro }
    }
}

impl Rank {
    /// Emits that the CPU has run a pass since `began`, beside the other passes.
    pub fn emit_pass_on_cpu(&self, pass: Pass, unit: UnitId, micro: usize, began: Began) {
        let work = Work::Pass { pass, unit: unit as u16, micro: micro.min(u16::MAX.into()) as u16 };
        let began = self.emitter.since(began).as_nanos() as u64;
        self.emitter.emit(What::Ran { work, began, ended: 0 });
    }
}

impl Drop for PassSpan {
    fn drop(&mut self) {
        let PassSpan { pass, unit, micro, .. } = *self;
        self.emitter.emit(What::PassFinished { pass, unit, micro });
        self.device.end(self.begun.take(), Work::Pass { pass, unit, micro });
    }
}
