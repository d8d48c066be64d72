//! The buffers that a stage has handed out: units' full parameters and gradients, and the layers'
//! views in them.

use crate::rank_error::Result;
use crate::stage::Stage;
use events::Pass;
use model::Layer;
use sharding::{FullGradients, FullParameters, LayerGradients, LayerWeights, MicroBatch, Partition, UnitId};
use std::sync::Arc;

/// Full parameters and gradients on loan from a stage, by unit.
pub(super) struct Loans {
    partition: Arc<Partition>,
    parameters: Vec<Option<FullParameters>>,
    gradients: Vec<Option<FullGradients>>,
}

impl Loans {
    /// Returns empty loans for the units of `partition`.
    pub(super) fn none(partition: Arc<Partition>) -> Self {
        let units = partition.units.len();
        Loans {
            partition,
            parameters: (0..units).map(|_| None).collect(),
            gradients: (0..units).map(|_| None).collect(),
        }
    }

    /// Acquires the full parameters of `units` for `pass`. Before forward, continues the update
    /// until they are up to date.
    pub(super) fn acquire(&mut self, stage: &mut dyn Stage, units: &[UnitId], pass: Pass) -> Result<()> {
        for &unit in units {
            if pass == Pass::Forward {
                stage.continue_update(unit)?;
            }
            self.parameters[unit] = Some(stage.acquire(unit, pass)?);
        }
        Ok(())
    }

    /// Releases the full parameters of `units` after `pass`.
    pub(super) fn release(&mut self, stage: &mut dyn Stage, units: &[UnitId], pass: Pass) -> Result<()> {
        for &unit in units {
            if let Some(full) = self.parameters[unit].take() {
                stage.release(full, pass)?;
            }
        }
        Ok(())
    }

    /// Acquires buffers for the full gradients of `units`.
    pub(super) fn acquire_gradients(
        &mut self,
        stage: &mut dyn Stage,
        units: &[UnitId],
        micro: MicroBatch,
    ) -> Result<()> {
        for &unit in units {
            self.gradients[unit] = Some(stage.acquire_gradients(unit, micro)?);
        }
        Ok(())
    }

    /// Hands the full gradients of `units` to the stage's reduction.
    pub(super) fn reduce(
        &mut self,
        stage: &mut dyn Stage,
        units: &[UnitId],
        micro: MicroBatch,
    ) -> Result<()> {
        for &unit in units {
            if let Some(gradients) = self.gradients[unit].take() {
                stage.reduce(gradients, micro)?;
            }
        }
        Ok(())
    }

    /// Frees the gradients of an interrupted pass and hands the parameters back.
    pub(super) fn hand_back(&mut self, stage: &mut dyn Stage) -> Result<()> {
        self.gradients.iter_mut().for_each(|held| *held = None);
        for full in self.parameters.iter_mut().filter_map(Option::take) {
            // Released as after validation, so that the stage neither gathers ahead nor keeps them.
            stage.release(full, Pass::Evaluate)?;
        }
        Ok(())
    }

    /// Returns `layer`'s weights.
    pub(super) fn weights<'a>(&'a self, layer: &'a Layer) -> LayerWeights<'a> {
        LayerWeights { tensors: &layer.tensors, partition: &self.partition, held: &self.parameters }
    }

    /// Returns `layer`'s weights, and the views for its gradients.
    pub(super) fn weights_and_gradients<'a>(
        &'a mut self,
        layer: &'a Layer,
    ) -> (LayerWeights<'a>, LayerGradients<'a>) {
        let Loans { partition, parameters, gradients } = self;
        let tensors = &layer.tensors;
        (
            LayerWeights { tensors, partition, held: parameters },
            LayerGradients { tensors, partition, held: gradients },
        )
    }

    /// Returns the unit that viewers show for a pass over `layer`: the first of its own units that
    /// is gathered, or else the first of its units.
    pub(super) fn shown_for(&self, layer: &Layer) -> UnitId {
        let first = layer.tensors[0];
        let own = layer.tensors.iter().filter(|&&tensor| tensor >= first);
        let mut units = own.map(|&tensor| self.partition.home(tensor).0);
        let gathered = units.find(|&unit| !self.partition.units[unit].persistent);
        gathered.unwrap_or(self.partition.home(first).0)
    }
}
