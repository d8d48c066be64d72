//! What a rank holds between steps: allocated at setup, each state where it rests.

use crate::stage::Setup;
use device::{Buffer, Class, DType, Place};
use events::header::Sharded;
use offload::{Cargo, Extent};
use sharding::{
    AdamWShard, Moments, Optimizer, OwnSlice, Rest, Result, States, TrainingState, UnitBuffers, UnitId,
    WeightSource, source,
};
use std::ops::Range;

/// What a rank holds between steps.
pub struct ModelStates {
    /// Parameters, by unit.
    pub parameters: UnitBuffers,
    /// Gradients, by unit.
    pub gradients: UnitBuffers,
    /// Optimizer states.
    pub optimizer: Optimizer,
}

impl Setup {
    /// The model states that this rank holds between steps: its slice of those that are `sharded`,
    /// all of the others. Persistent units keep their parameters in full, and on the device.
    ///
    /// # Errors
    /// If there is no room for them where they rest, or the source of the weights fails.
    pub fn model_states(&self, sharded: Sharded) -> Result<ModelStates> {
        let full = |unit: UnitId| 0..self.partition.units[unit].padded;
        let (mut parameters, mut gradients, mut optimizer) = (Vec::new(), Vec::new(), Vec::new());
        for unit in self.units() {
            let held = |sharded| if sharded { self.slice(unit) } else { full(unit) };
            let cut = sharded.parameters && !self.partition.units[unit].persistent;
            let place = if cut { self.places.parameters } else { Place::Device };
            parameters.push((self.parameters(unit, held(cut), place)?, held(cut)));
            let follow = sharded.gradients && self.gradients_follow();
            let place = if follow { Place::Host } else { Place::Device };
            gradients.push((self.gradients(held(sharded.gradients), place)?, held(sharded.gradients)));
            let slice = held(sharded.optimizer);
            let states = self.optimizer(unit, slice.clone())?;
            optimizer.push(OwnSlice { slice, states, gather_after_update: sharded.optimizer && !cut });
        }
        Ok(ModelStates {
            parameters: UnitBuffers::new(parameters, "parameters"),
            gradients: UnitBuffers::new(gradients, "gradients"),
            optimizer: Optimizer::new(self.partition.clone(), optimizer, self.places),
        })
    }

    /// Initial parameters: elements `range` of `unit`.
    fn parameters(&self, unit: UnitId, range: Range<usize>, place: Place) -> Result<Rest> {
        let dtype = self.precision.parameters;
        if place != Place::Disk {
            let kind = (place, Class::Parameters, dtype);
            return Ok(Rest::Buffer(self.load(&*self.source, unit, range, kind)?));
        }
        let values = source::read(&self.rank.device, &self.partition, unit, range, &*self.source)?;
        let extent = self.store((Class::Parameters, dtype), unit, &values)?;
        Ok(Rest::Disk(extent, dtype))
    }

    /// Zeroed gradients of elements `range` of a unit.
    fn gradients(&self, range: Range<usize>, place: Place) -> Result<Buffer> {
        self.zeros(place, Class::Gradients, self.precision.gradients, range.len())
    }

    /// Initial optimizer states of elements `range` of `unit`; no master weights among them if
    /// parameters are f32 and the optimizer is on the device, since these are the parameters.
    fn optimizer(&self, unit: UnitId, range: Range<usize>) -> Result<AdamWShard> {
        let (place, piece) = (self.places.optimizer, self.places.piece);
        let from = |state| match (state, &self.moments) {
            (TrainingState::Weight, _) => Some(&*self.source),
            (TrainingState::Momentum, Some([momentum, _])) => Some(&**momentum),
            (TrainingState::Variance, Some([_, variance])) => Some(&**variance),
            (_, None) => None,
        };
        let states = if place == Place::Disk {
            let pieces = AdamWShard::cut(range.len(), piece);
            let on_disk = |piece: Range<usize>| {
                let elements = range.start + piece.start..range.start + piece.end;
                let store = |state| self.store_state(from(state), unit, elements.clone());
                let [weight, momentum, variance] = TrainingState::ALL;
                Ok([store(weight)?, store(momentum)?, store(variance)?])
            };
            States::Disk(pieces.map(on_disk).collect::<Result<_>>()?)
        } else {
            let load = |state| match from(state) {
                Some(source) => self.load(source, unit, range.clone(), (place, Class::Optimizer, DType::F32)),
                None => self.zeros(place, Class::Optimizer, DType::F32, range.len()),
            };
            let has_master = self.precision.has_masters() || place == Place::Host;
            States::Here {
                master: has_master.then(|| load(TrainingState::Weight)).transpose()?,
                moments: Box::new(Moments {
                    momentum: load(TrainingState::Momentum)?,
                    variance: load(TrainingState::Variance)?,
                }),
            }
        };
        Ok(AdamWShard::new(&self.partition, unit, &range, states, piece))
    }

    fn zeros(&self, place: Place, class: Class, dtype: DType, len: usize) -> Result<Buffer> {
        if place == Place::Device {
            return Ok(self.rank.device.zeros(class, dtype, len)?);
        }
        let mut buffer = self.rank.device.allocate_in(place, class, dtype, len)?;
        self.rank.kernels().fill(buffer.view_mut(), 0.0)?;
        Ok(buffer)
    }

    /// Elements `range` of `unit`, as a buffer of this place, class and type.
    fn load(
        &self,
        source: &dyn WeightSource,
        unit: UnitId,
        range: Range<usize>,
        (place, class, dtype): (Place, Class, DType),
    ) -> Result<Buffer> {
        let mut buffer = self.rank.device.allocate_in(place, class, dtype, range.len())?;
        let values = source::read(&self.rank.device, &self.partition, unit, range, source)?;
        self.rank.device.write_rounded(buffer.view_mut(), &values)?;
        Ok(buffer)
    }

    /// An optimizer state of elements `range` of `unit` on disk: zero without a source.
    fn store_state(
        &self,
        source: Option<&dyn WeightSource>,
        unit: UnitId,
        range: Range<usize>,
    ) -> Result<Extent> {
        let values = match source {
            Some(source) => source::read(&self.rank.device, &self.partition, unit, range, source)?,
            None => {
                let mut zeros = self.rank.device.room(range.len())?;
                zeros.resize(range.len(), 0.0);
                zeros
            }
        };
        self.store((Class::Optimizer, DType::F32), unit, &values)
    }

    /// Writes `values`, rounded to this type, to an extent of their own.
    fn store(&self, (class, dtype): (Class, DType), unit: UnitId, values: &[f32]) -> Result<Extent> {
        let transfers = &self.rank.transfers;
        let extent = transfers.extent(class, values.len() * dtype.size())?;
        let mut staging = transfers.staging(dtype, values.len())?;
        self.rank.device.write_rounded(staging.slice_mut(0..values.len()), values)?;
        let bytes = staging.byte_len();
        transfers.settle(transfers.write(Cargo { class, unit }, &extent, 0, staging, bytes))?;
        Ok(extent)
    }
}
