//! The weights before the first step and after the last, and the state of training in between.

use super::error::{RankError, other};
use super::{Plan, Result, Worker};
use crate::faults::fault;
use crate::kept::{self, Progress};
use crate::source;
use crate::stage::Stage as _;
use checkpoint::{StateWriter, Writer};
use device::Buffer;
use model::TensorId;
use settings::fault::{Kind, Phase};
use sharding::{LossScaler, Rank, TrainingState, UnitId, WeightSource};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// What `rank` starts from, once all ranks have found that they start from the same.
pub(super) fn first_weights(plan: &Plan, rank: &Rank) -> Result<Arc<dyn WeightSource>> {
    let config = &plan.config;
    let wrong = |phase| fault(config, rank.number(), 0, phase, Kind::Seed);
    let weights = |wrong| match &plan.kept {
        Some(kept) => Ok(kept.source(TrainingState::Weight)),
        None => {
            source::weights(config, &plan.model, config.seed + u64::from(wrong)).map_err(RankError::Other)
        }
    };
    let source = weights(wrong(Phase::Setup))?;
    let mut mine = source::fingerprint(&*source, &plan.model.layout).map_err(RankError::Other)?;
    mine[..4].copy_from_slice(&plan.first_step().to_be_bytes());
    agree_on_start(rank, mine)?;
    if wrong(Phase::Backward) { weights(true) } else { Ok(source) }
}

/// Ranks that silently start from different weights never agree again: compare first. `mine` is the first step in four bytes, and
/// a hash.
fn agree_on_start(rank: &Rank, mine: [u8; 32]) -> Result<()> {
    let all = rank.group.exchange(&mine)?;
    if let Some(begins_anew) = all.iter().position(|start| start[..4] < mine[..4]) {
        return Err(RankError::OtherStep(begins_anew as u32));
    }
    if all.iter().any(|start| start[..4] > mine[..4]) {
        return Err(RankError::OtherStep(rank.number() as u32));
    }
    match odd_one(&all) {
        None => Ok(()),
        Some((culprit, other)) => Err(RankError::OtherWeights(culprit as u32, other as u32)),
    }
}

/// The first that is not what most are, and the first that is; where no value has most, rank 0's counts.
fn odd_one<T: PartialEq>(all: &[T]) -> Option<(usize, usize)> {
    let alike = |one: &T| all.iter().filter(|other| *other == one).count();
    let most = all.iter().map(alike).max()?;
    let usual = all.iter().position(|one| alike(one) == most)?;
    all.iter().position(|one| *one != all[usual]).map(|odd| (odd, usual))
}

impl Worker<'_> {
    /// Gathers the master weights, unit by unit; rank 0 hashes them tensor by tensor, in the layout's order, and writes
    /// them if asked to. Nothing where nobody asks for either.
    pub(super) fn save(&mut self) -> Result<Option<String>> {
        let plan = self.plan;
        if !plan.config.hashed && plan.config.save.is_none() {
            return Ok(None);
        }
        let leader = self.rank.number() == 0;
        let mut writer = None;
        if let (true, Some(dir)) = (leader, &plan.config.save) {
            let new =
                writer.insert(Writer::create(dir, &plan.model.config, &plan.model.layout).map_err(other)?);
            plan.tokenizer.iter().for_each(|(name, contents)| new.attach(name, contents.as_slice()));
        }
        let mut hasher = blake3::Hasher::new();
        self.gather(TrainingState::Weight, |tensor, values| {
            source::hash(&mut hasher, values);
            writer.as_mut().map_or(Ok(()), |writer| writer.write(tensor, values))
        })?;
        writer.map_or(Ok(()), Writer::finish).map_err(other)?;
        self.meet()?;
        Ok(leader.then(|| hasher.finalize().to_hex().to_string()))
    }

    /// Gathers what training goes on from, unit by unit; rank 0 puts it in the place of what was kept before.
    pub(super) fn keep(&mut self) -> Result<()> {
        let plan = self.plan;
        let Some(checkpoint) = &plan.config.checkpoint else { return Ok(()) };
        let mut writer = None;
        if self.rank.number() == 0 {
            let progress = Progress {
                steps: plan.first_step() + self.steps.len() as u32,
                updates: self.updates,
                loss_scale: self.scaler.as_ref().map(LossScaler::at),
                stage: plan.stage.name.into(),
                ranks: plan.config.world_size,
                tokens_per_step: plan.config.tokens_per_step(),
                architecture: kept::architecture(&plan.model),
            };
            let words = serde_json::to_string(&progress).map_err(other)?;
            let new = StateWriter::create(&checkpoint.directory, &plan.model.layout, &words);
            writer = Some(new.map_err(other)?);
        }
        for state in TrainingState::ALL {
            self.gather(state, |tensor, values| {
                writer.as_mut().map_or(Ok(()), |writer| writer.write(state, tensor, values))
            })?;
        }
        writer.map_or(Ok(()), StateWriter::finish).map_err(other)?;
        self.meet()
    }

    /// Waits for the others: while rank 0 writes, nobody goes on to what has a deadline and counts as waiting for peers.
    fn meet(&self) -> Result<()> {
        Ok(self.meeting.exchange(&[]).map(drop)?)
    }

    /// Gathers `state` unit by unit, in which every rank takes part; rank 0 hands over its tensors in the layout's order.
    fn gather(
        &mut self,
        state: TrainingState,
        mut take: impl FnMut(TensorId, &[f32]) -> checkpoint::Result<()>,
    ) -> Result<()> {
        let plan = self.plan;
        let mut gathered = Gathered::default();
        for tensor in 0..plan.model.layout.tensors.len() {
            let (unit, slot) = plan.partition.home(tensor);
            let full = gathered.unit(unit, || self.stage.training_state(unit, state))?;
            if self.rank.number() == 0 {
                let values = self.rank.device.read::<f32>(full.slice(slot.range()))?;
                take(tensor, &values).map_err(other)?;
            }
            if gathered.read(unit, plan.partition.units[unit].slots.len()) {
                self.meet()?;
            }
        }
        Ok(())
    }
}

/// Units that are gathered for as long as some of their tensors are still to be read.
#[derive(Default)]
struct Gathered(BTreeMap<UnitId, (Buffer, usize)>);

impl Gathered {
    /// `unit`, gathered by `gather` if it is not here.
    fn unit(
        &mut self,
        unit: UnitId,
        gather: impl FnOnce() -> sharding::Result<Buffer>,
    ) -> sharding::Result<&Buffer> {
        let (full, _) = match self.0.entry(unit) {
            Entry::Occupied(here) => here.into_mut(),
            Entry::Vacant(place) => place.insert((gather()?, 0)),
        };
        Ok(full)
    }

    /// Another tensor of `unit`, of `tensors` in all, has been read; whether it was the last.
    fn read(&mut self, unit: UnitId, tensors: usize) -> bool {
        let Some((_, read)) = self.0.get_mut(&unit) else { return false };
        *read += 1;
        let last = *read == tensors;
        if last {
            self.0.remove(&unit);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_one_is_not_what_most_are() {
        for (all, odd) in [
            (&[7, 7, 7, 7][..], None),
            (&[7, 7, 7, 9], Some((3, 0))),
            (&[9, 7, 7, 7], Some((0, 1))),
            (&[7, 9, 9, 7, 9], Some((0, 1))),
            (&[7, 9], Some((1, 0))),
            (&[7], None),
        ] {
            assert_eq!(odd_one(all), odd, "{all:?}");
        }
    }
}
