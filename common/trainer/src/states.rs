//! The model states that a rank holds between steps: each is allocated at setup where it is stored.

use crate::stage::Setup;
use device::{Buffer, Class, DType, Place};
use events::header::Sharded;
use offload::{Extent, OnDisk, TransferLabel};
use sharding::{
    AdamWShard, Optimizer, OwnSlice, Partition, Result, States, Storage, TrainingState, Unit, UnitBuffers,
    UnitId, WeightSource, source,
};
use std::ops::Range;

/// The model states that a rank holds between steps.
pub struct ModelStates {
    /// Parameters, by unit.
    pub parameters: UnitBuffers,
    /// Gradients, by unit.
    pub gradients: UnitBuffers,
    /// Optimizer states.
    pub optimizer: Optimizer,
}

/// The elements of one unit that a rank holds of each model state.
pub(crate) struct HeldSlices {
    pub(crate) parameters: Range<usize>,
    pub(crate) gradients: Range<usize>,
    /// Master weights, momentum and variance.
    pub(crate) optimizer: Range<usize>,
}

impl HeldSlices {
    /// Returns the elements of `unit` that the owner of `shard` holds: its slice of states that are
    /// `sharded`, and the others in full. It holds a persistent unit's parameters in full.
    pub(crate) fn of(partition: &Partition, sharded: Sharded, unit: UnitId, shard: usize) -> Self {
        let Unit { padded, persistent, .. } = partition.units[unit];
        let held = |sharded| if sharded { partition.slice(unit, shard) } else { 0..padded };
        HeldSlices {
            parameters: held(sharded.parameters && !persistent),
            gradients: held(sharded.gradients),
            optimizer: held(sharded.optimizer),
        }
    }
}

impl Setup {
    /// Allocates the model states that this rank holds between steps: its slice of states that are
    /// `sharded`, and the others in full. Persistent units keep their parameters in full, and on
    /// the device.
    ///
    /// # Errors
    /// If a place is full, or the source of the weights fails.
    pub fn model_states(&self, sharded: Sharded) -> Result<ModelStates> {
        let (mut parameters, mut gradients, mut optimizer) = (Vec::new(), Vec::new(), Vec::new());
        for unit in self.units() {
            let held = HeldSlices::of(&self.partition, sharded, unit, self.rank.shard());
            let cut = sharded.parameters && !self.partition.units[unit].persistent;
            let place = if cut { self.placement.parameters } else { Place::Device };
            parameters.push((self.load_parameters(unit, held.parameters.clone(), place)?, held.parameters));
            let is_offloaded = sharded.gradients && self.gradients_are_offloaded();
            let place = if is_offloaded { Place::Host } else { Place::Device };
            gradients.push((self.allocate_gradients(held.gradients.clone(), place)?, held.gradients));
            let slice = held.optimizer;
            let states = self.load_optimizer_states(unit, slice.clone())?;
            optimizer.push(OwnSlice { slice, states, gather_after_update: sharded.optimizer && !cut });
        }
        let parameters = UnitBuffers::new(parameters, "parameters");
        let gradients = UnitBuffers::new(gradients, "gradients");
        let held = (&parameters, &gradients);
        let optimizer = Optimizer::new(&self.rank, self.partition.clone(), optimizer, self.placement, held)?;
        Ok(ModelStates { parameters, gradients, optimizer })
    }

    /// Stores the initial parameters of elements `range` of `unit`.
    fn load_parameters(&self, unit: UnitId, range: Range<usize>, place: Place) -> Result<Storage> {
        let dtype = self.precision.parameters;
        if place != Place::Disk {
            let kind = (place, Class::Parameters, dtype);
            return Ok(Storage::Buffer(self.load(&*self.source, unit, range, kind)?));
        }
        let extent = self.store(Some(&*self.source), (Class::Parameters, dtype), unit, range)?;
        Ok(Storage::Disk(extent, dtype))
    }

    /// Allocates zeroed gradients of elements `range` of a unit.
    fn allocate_gradients(&self, range: Range<usize>, place: Place) -> Result<Buffer> {
        self.zeros(place, Class::Gradients, self.precision.gradients, range.len())
    }

    /// Stores the initial optimizer states of elements `range` of `unit`. There are no separate
    /// master weights if parameters are f32 and the optimizer is on the device: the parameters are
    /// the master weights.
    fn load_optimizer_states(&self, unit: UnitId, range: Range<usize>) -> Result<AdamWShard> {
        let (place, sub_group_size) = (self.placement.optimizer, self.placement.sub_group_size);
        let from = |state| match (state, &self.moments) {
            (TrainingState::Weight, _) => Some(&*self.source),
            (TrainingState::Momentum, Some([momentum, _])) => Some(&**momentum),
            (TrainingState::Variance, Some([_, variance])) => Some(&**variance),
            (_, None) => None,
        };
        let states = if place == Place::Disk {
            let pieces = AdamWShard::cut(range.len(), sub_group_size);
            let on_disk = |piece: Range<usize>| {
                let elements = range.start + piece.start..range.start + piece.end;
                let kind = (Class::Optimizer, DType::F32);
                let store = |state| self.store(from(state), kind, unit, elements.clone());
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
            States::Memory {
                master: has_master.then(|| load(TrainingState::Weight)).transpose()?,
                moments: Box::new([load(TrainingState::Momentum)?, load(TrainingState::Variance)?]),
            }
        };
        Ok(AdamWShard::new(&self.partition, unit, &range, states, sub_group_size))
    }

    fn zeros(&self, place: Place, class: Class, dtype: DType, len: usize) -> Result<Buffer> {
        if place == Place::Device {
            return Ok(self.rank.device.zeros(class, dtype, len)?);
        }
        let mut buffer = self.rank.device.allocate_in(place, class, dtype, len)?;
        self.rank.kernels().fill(buffer.view_mut(), 0.0)?;
        Ok(buffer)
    }

    /// Reads elements `range` of `unit` into a new buffer of this place, class and type.
    fn load(
        &self,
        source: &dyn WeightSource,
        unit: UnitId,
        range: Range<usize>,
        (place, class, dtype): (Place, Class, DType),
    ) -> Result<Buffer> {
        let mut buffer = self.rank.device.allocate_in(place, class, dtype, range.len())?;
        source::write(&self.rank.device, &self.partition, unit, range, source, buffer.view_mut())?;
        Ok(buffer)
    }

    /// Writes elements `range` of `unit`, of this class and type, to a new extent: zeros without a
    /// source.
    fn store(
        &self,
        source: Option<&dyn WeightSource>,
        (class, dtype): (Class, DType),
        unit: UnitId,
        range: Range<usize>,
    ) -> Result<Extent> {
        let transfers = &self.rank.transfers;
        let extent = transfers.extent(class, range.len() * dtype.size())?;
        let mut staging = transfers.staging(dtype, range.len())?;
        let out = staging.slice_mut(0..range.len());
        match source {
            Some(source) => source::write(&self.rank.device, &self.partition, unit, range, source, out)?,
            None => self.rank.kernels().fill(out, 0.0)?,
        }
        let to = OnDisk::first(TransferLabel { class, unit }, &extent, staging.byte_len());
        transfers.wait_staged(transfers.write(to, staging))?;
        Ok(extent)
    }
}
