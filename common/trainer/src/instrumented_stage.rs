//! The wrapper between the training loop and a stage: it reports to a witness, measures the rank's
//! local contribution, and injects silent faults. Neither the loop nor the stage knows of these.

use crate::contribution::LocalContribution;
use crate::hooks::Hooks;
use crate::plan::Plan;
use crate::stage::{Setup, Stage, StageStates};
use crate::witness::{At, Witness};
use events::{Pass, What};
use settings::fault::Kind;
use sharding::{FullGradients, FullParameters, MicroBatch, Partition, Rank, Result, ScaledUpdate, UnitId};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Wraps a stage: reports to a witness and injects this rank's faults.
pub(crate) struct InstrumentedStage {
    stage: Box<dyn Stage>,
    rank: Rc<Rank>,
    partition: Arc<Partition>,
    hooks: Rc<Hooks>,
    witness: Option<Arc<dyn Witness>>,
    local: Option<LocalContribution>,
    /// The parameters of the step before the rank went stale, with which it keeps computing.
    old: BTreeMap<UnitId, Vec<f32>>,
}

impl InstrumentedStage {
    /// Builds `plan`'s stage from `setup` and wraps it.
    ///
    /// # Errors
    /// As [`StageKind::new`](crate::StageKind::new).
    pub(crate) fn new(plan: &Plan, setup: Setup, hooks: Rc<Hooks>) -> Result<Self> {
        let (rank, partition) = (setup.rank.clone(), setup.partition.clone());
        Ok(InstrumentedStage {
            stage: (plan.stage.new)(setup)?,
            rank,
            partition,
            hooks,
            witness: plan.witness.clone(),
            local: plan.config.contributions.then(LocalContribution::default),
            old: BTreeMap::new(),
        })
    }

    /// Begins a step, whose number the hooks know.
    pub(crate) fn begin(&mut self) {
        if self.hooks.fires_now(Kind::Skip) {
            self.rank.shard_group().skip_next_collective();
        }
        let waited = self.waited_for_peers();
        self.local = self.local.take().map(|_| LocalContribution::begin(waited));
    }

    /// Ends a step in which the rank's mean loss was `loss`: emits the rank's local contribution.
    pub(crate) fn end(&self, loss: f64) {
        if let Some(local) = &self.local {
            let metrics = local.finish(self.hooks.step(), loss, self.waited_for_peers());
            self.rank.emitter.emit(What::Contributed(metrics));
        }
    }

    fn waited_for_peers(&self) -> f64 {
        self.rank.group.overall_traffic().seconds_for_peers()
    }

    fn at(&self) -> At {
        At { step: self.hooks.step(), rank: self.rank.number() }
    }

    /// On a stale rank, overwrites the other ranks' slices of `full` with their values in the step
    /// before the fault.
    fn make_stale(&mut self, full: &mut FullParameters) -> Result<()> {
        let (device, hooks) = (&self.rank.device, &self.hooks);
        if hooks.starts_next_step(Kind::Stale) && !self.old.contains_key(&full.unit) {
            self.old.insert(full.unit, device.read::<f32>(full.buffer.view())?.into_owned());
        }
        if let (true, Some(old)) = (hooks.is_active(Kind::Stale), self.old.get(&full.unit)) {
            let own = self.partition.slice(full.unit, self.rank.shard());
            for others in [0..own.start, own.end..old.len()] {
                device.write(full.buffer.slice_mut(others.clone()), &old[others])?;
            }
        }
        Ok(())
    }

    /// Applies the rank's gradient faults: `drop` zeroes them, `nan` sets the first element to NaN.
    fn corrupt(&self, gradients: &mut FullGradients) -> Result<()> {
        if self.hooks.is_active(Kind::Drop) {
            self.rank.kernels().fill(gradients.buffer.view_mut(), 0.0)?;
        }
        if self.hooks.fires_now(Kind::Nan) {
            self.rank.kernels().fill(gradients.buffer.slice_mut(0..1), f32::NAN)?;
        }
        Ok(())
    }
}

impl Stage for InstrumentedStage {
    fn acquire(&mut self, unit: UnitId, pass: Pass) -> Result<FullParameters> {
        let mut full = self.stage.acquire(unit, pass)?;
        self.make_stale(&mut full)?;
        let values = || self.rank.device.read(full.buffer.view());
        if let Some(witness) = &self.witness {
            witness.on_parameters(self.at(), unit, pass, &values()?);
        }
        if let Some(local) = &mut self.local {
            local.add_parameters(pass, &values()?);
        }
        Ok(full)
    }

    fn release(&mut self, full: FullParameters, pass: Pass) -> Result<()> {
        self.stage.release(full, pass)
    }

    fn acquire_gradients(&mut self, unit: UnitId, micro: MicroBatch) -> Result<FullGradients> {
        self.stage.acquire_gradients(unit, micro)
    }

    fn reduce(&mut self, mut gradients: FullGradients, micro: MicroBatch) -> Result<()> {
        self.corrupt(&mut gradients)?;
        let values = || self.rank.device.read(gradients.buffer.view());
        if let Some(witness) = &self.witness {
            witness.on_gradients(self.at(), gradients.unit, &values()?);
        }
        if let Some(local) = &mut self.local {
            local.add_gradients(&values()?);
        }
        self.stage.reduce(gradients, micro)
    }

    fn abort_step(&mut self) -> Result<()> {
        self.stage.abort_step()
    }

    fn gradient_norm(&mut self) -> Result<f64> {
        self.stage.gradient_norm()
    }

    fn update(&mut self, update: ScaledUpdate) -> Result<()> {
        self.stage.update(update)
    }

    fn continue_update(&mut self, unit: UnitId) -> Result<()> {
        self.stage.continue_update(unit)
    }

    fn finish_update(&mut self) -> Result<()> {
        self.stage.finish_update()
    }

    fn states(&mut self) -> StageStates<'_> {
        self.stage.states()
    }
}
