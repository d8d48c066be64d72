//! Those who look over the ranks' shoulders, and the hand that a fault plays in between.

use crate::contribution::Own;
use crate::run::Plan;
use crate::stage::{Setup, Stage, StepOutcome};
use device::Buffer;
use events::{Pass, What};
use settings::fault::{Fault, Kind};
use sharding::{
    FullGradients, FullParameters, Micro, Partition, Rank, Result, TrainingState, UnitId, Update,
};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A rank in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The step, from 0.
    pub step: u32,
    /// The rank.
    pub rank: usize,
}

/// Sees what ranks that are threads compute with and what each contributes before anything is summed. Called on the
/// ranks' own threads, in each rank's program order. Parameters and gradients must be fp32.
pub trait Witness: Send + Sync {
    /// The rank is about to compute with the full parameters of `unit`, padding included.
    fn computes_with(&self, _at: At, _unit: UnitId, _pass: Pass, _values: &[f32]) {}

    /// The rank hands over its own gradients of `unit`, padding included.
    fn contributes(&self, _at: At, _unit: UnitId, _values: &[f32]) {}
}

/// A stage between the training loop and a witness, with the faults of its rank: the loop and the stage know of neither.
pub(crate) struct Watched {
    stage: Box<dyn Stage>,
    rank: Rc<Rank>,
    partition: Arc<Partition>,
    faults: Vec<Fault>,
    witness: Option<Arc<dyn Witness>>,
    own: Option<Own>,
    step: u32,
    /// What a stale rank keeps computing with.
    old: BTreeMap<UnitId, Vec<f32>>,
}

impl Watched {
    /// The plan's stage with the faults of its rank, under the eyes of the plan's witness.
    ///
    /// # Errors
    /// As [`StageKind::new`](crate::StageKind::new).
    pub(crate) fn new(plan: &Plan, setup: Setup) -> Result<Self> {
        let (rank, partition) = (setup.rank.clone(), setup.partition.clone());
        Ok(Watched {
            stage: (plan.stage.new)(setup)?,
            rank,
            partition,
            faults: plan.config.faults.clone(),
            witness: plan.witness.clone(),
            own: plan.config.contributions.then(Own::default),
            step: 0,
            old: BTreeMap::new(),
        })
    }

    /// The passes of `step` begin.
    pub(crate) fn begin(&mut self, step: u32) {
        self.step = step;
        if self.has(Kind::Skip) {
            self.rank.shard_group().leave_out();
        }
        self.own = self.own.take().map(|_| Own::default());
    }

    /// Tells of the rank's own part in the step, of which it has lost `loss` and waited for `waited` seconds.
    pub(crate) fn tell(&self, loss: f64, waited: f64) {
        if let Some(own) = &self.own {
            self.rank.emitter.emit(What::Contributed(own.part(self.step, loss, waited)));
        }
    }

    fn at(&self) -> At {
        At { step: self.step, rank: self.rank.number() }
    }

    fn suffers(&self, kind: Kind) -> bool {
        self.faults.iter().any(|fault| fault.lasts(kind, self.rank.number(), self.step))
    }

    /// Whether the rank has a fault of this kind in this very step.
    fn has(&self, kind: Kind) -> bool {
        let here = (kind, self.rank.number(), self.step);
        self.faults.iter().any(|fault| (fault.kind, fault.rank, fault.step) == here)
    }

    /// Whether this is the step before the rank falls behind.
    fn turns_stale(&self) -> bool {
        let next = self.step + 1;
        self.faults
            .iter()
            .any(|fault| fault.step == next && fault.lasts(Kind::Stale, self.rank.number(), next))
    }

    /// Puts the other ranks' slices back to what they were, once the rank is stale.
    fn stale(&mut self, full: &mut FullParameters) -> Result<()> {
        let device = &self.rank.device;
        if self.turns_stale() && !self.old.contains_key(&full.unit) {
            self.old.insert(full.unit, device.read::<f32>(full.buffer.view())?.into_owned());
        }
        if let (true, Some(old)) = (self.suffers(Kind::Stale), self.old.get(&full.unit)) {
            let own = self.partition.slice(full.unit, self.rank.shard());
            for others in [0..own.start, own.end..old.len()] {
                device.write(full.buffer.slice_mut(others.clone()), &old[others])?;
            }
        }
        Ok(())
    }

    /// Spoils what the rank contributes.
    fn spoil(&self, gradients: &mut FullGradients) -> Result<()> {
        if self.suffers(Kind::Drop) {
            self.rank.kernels().fill(gradients.buffer.view_mut(), 0.0)?;
        }
        if self.has(Kind::Nan) {
            self.rank.kernels().fill(gradients.buffer.slice_mut(0..1), f32::NAN)?;
        }
        Ok(())
    }
}

impl Stage for Watched {
    fn acquire(&mut self, unit: UnitId, pass: Pass) -> Result<FullParameters> {
        let mut full = self.stage.acquire(unit, pass)?;
        self.stale(&mut full)?;
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

    fn step(&mut self, update: &Update) -> Result<StepOutcome> {
        self.stage.step(update)
    }

    fn training_state(&mut self, unit: UnitId, state: TrainingState) -> Result<Buffer> {
        self.stage.training_state(unit, state)
    }
}
