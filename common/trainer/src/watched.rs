//! The wrapper between the training loop and a stage: it shows a witness what passes through, sums
//! up the rank's own contribution, and plays the silent faults. The loop and the stage know none of
//! these.

use crate::contribution::OwnPart;
use crate::hooks::Hooks;
use crate::plan::Plan;
use crate::stage::{Setup, Stage, StepOutcome};
use crate::witness::{At, Witness};
use events::{Pass, What};
use settings::fault::Kind;
use sharding::{
    FullGradients, FullParameters, Micro, Optimizer, Partition, Rank, Result, UnitBuffers, UnitId, Update,
};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A stage with the faults of its rank, under the eyes of a witness.
pub(crate) struct Watched {
    stage: Box<dyn Stage>,
    rank: Rc<Rank>,
    partition: Arc<Partition>,
    hooks: Rc<Hooks>,
    witness: Option<Arc<dyn Witness>>,
    own: Option<OwnPart>,
    /// The rank's mean loss in this step.
    loss: f64,
    /// The parameters of the step before the rank went stale, which it keeps computing with.
    old: BTreeMap<UnitId, Vec<f32>>,
}

impl Watched {
    /// Builds `plan`'s stage from `setup` and wraps it.
    ///
    /// # Errors
    /// As [`StageKind::new`](crate::StageKind::new).
    pub(crate) fn new(plan: &Plan, setup: Setup, hooks: Rc<Hooks>) -> Result<Self> {
        let (rank, partition) = (setup.rank.clone(), setup.partition.clone());
        Ok(Watched {
            stage: (plan.stage.new)(setup)?,
            rank,
            partition,
            hooks,
            witness: plan.witness.clone(),
            own: plan.config.contributions.then(OwnPart::default),
            loss: 0.0,
            old: BTreeMap::new(),
        })
    }

    /// Begins a step, whose number the hooks know.
    pub(crate) fn begin(&mut self) {
        if self.hooks.faults().strikes(Kind::Skip) {
            self.rank.shard_group().leave_out();
        }
        let waited = self.waited_for_peers();
        self.own = self.own.take().map(|_| OwnPart::begin(waited));
    }

    /// Notes the rank's mean loss in this step, for its own part.
    pub(crate) fn note_loss(&mut self, loss: f64) {
        self.loss = loss;
    }

    fn waited_for_peers(&self) -> f64 {
        self.rank.group.overall_traffic().seconds()[1]
    }

    fn at(&self) -> At {
        At { step: self.hooks.step(), rank: self.rank.number() }
    }

    /// On a stale rank, overwrites the other ranks' slices of `full` with what they were in the
    /// step before the fault.
    fn make_stale(&mut self, full: &mut FullParameters) -> Result<()> {
        let (device, faults) = (&self.rank.device, self.hooks.faults());
        if faults.begins_next(Kind::Stale) && !self.old.contains_key(&full.unit) {
            self.old.insert(full.unit, device.read::<f32>(full.buffer.view())?.into_owned());
        }
        if let (true, Some(old)) = (faults.lasts(Kind::Stale), self.old.get(&full.unit)) {
            let own = self.partition.slice(full.unit, self.rank.shard());
            for others in [0..own.start, own.end..old.len()] {
                device.write(full.buffer.slice_mut(others.clone()), &old[others])?;
            }
        }
        Ok(())
    }

    /// Spoils the gradients of a rank whose fault says so.
    fn spoil(&self, gradients: &mut FullGradients) -> Result<()> {
        if self.hooks.faults().lasts(Kind::Drop) {
            self.rank.kernels().fill(gradients.buffer.view_mut(), 0.0)?;
        }
        if self.hooks.faults().strikes(Kind::Nan) {
            self.rank.kernels().fill(gradients.buffer.slice_mut(0..1), f32::NAN)?;
        }
        Ok(())
    }
}

impl Stage for Watched {
    fn acquire(&mut self, unit: UnitId, pass: Pass) -> Result<FullParameters> {
        let mut full = self.stage.acquire(unit, pass)?;
        self.make_stale(&mut full)?;
        let values = || self.rank.device.read(full.buffer.view());
        if let Some(witness) = &self.witness {
            witness.computes_with(self.at(), unit, pass, &values()?);
        }
        if let Some(own) = &mut self.own {
            own.computes_with(pass, &values()?);
        }
        Ok(full)
    }

    fn release(&mut self, full: FullParameters, pass: Pass) -> Result<()> {
        self.stage.release(full, pass)
    }

    fn gradients(&mut self, unit: UnitId, micro: Micro) -> Result<FullGradients> {
        self.stage.gradients(unit, micro)
    }

    fn reduce(&mut self, mut gradients: FullGradients, micro: Micro) -> Result<()> {
        self.spoil(&mut gradients)?;
        let values = || self.rank.device.read(gradients.buffer.view());
        if let Some(witness) = &self.witness {
            witness.contributes(self.at(), gradients.unit, &values()?);
        }
        if let Some(own) = &mut self.own {
            own.contributes(&values()?);
        }
        self.stage.reduce(gradients, micro)
    }

    fn stop(&mut self) -> Result<()> {
        self.stage.stop()
    }

    /// Emits the rank's own part once the step is done.
    fn step(&mut self, update: &Update) -> Result<StepOutcome> {
        let outcome = self.stage.step(update);
        if let Some(own) = &self.own {
            let part = own.finish(self.hooks.step(), self.loss, self.waited_for_peers());
            self.rank.emitter.emit(What::Contributed(part));
        }
        outcome
    }

    fn complete(&mut self, unit: Option<UnitId>) -> Result<()> {
        self.stage.complete(unit)
    }

    fn states(&mut self) -> (&mut Optimizer, &UnitBuffers) {
        self.stage.states()
    }
}
