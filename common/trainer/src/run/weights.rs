//! The weights before the first step and after the last, and checkpoints in between.

use super::Worker;
use super::exchange::exchange_busy;
use super::record::RunEvent;
use super::saver::{HEARTBEAT, SHUTDOWN_GRACE, SaveOutcome};
use super::weight_writer::{Reply, WeightWriter};
use crate::hooks::Hooks;
use crate::plan::Plan;
use crate::rank_error::{RankError, Result, other};
use crate::resume::TrainingProgress;
use crate::source;
use crate::stage::{Stage as _, StageStates};
use crate::witness::Milestone;
use collectives::{ControlChannel, odd_one_out};
use device::Buffer;
use settings::fault::Phase;
use sharding::{LossScaler, Rank, TrainingState, UnitId, WeightSource};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the weights that `rank` starts from. Collective: the ranks compare theirs first. Ranks
/// that resume have agreed on a checkpoint already. They exchange zeros, because the prediction
/// counts this exchange.
pub(super) fn first_weights(plan: &Plan, rank: &Rank, hooks: &Hooks) -> Result<Arc<dyn WeightSource>> {
    let weights = |seed| match &plan.resume {
        Some(state) => state.source(TrainingState::Weight),
        None => source::weights(plan.pretrained.as_ref(), &plan.model, seed, plan.config.threads),
    };
    let seed = hooks.seed(Phase::Setup, plan.config.seed);
    let mine = match &plan.resume {
        Some(_) => [0; 32],
        None => source::fingerprint(&*weights(seed), &plan.model.layout).map_err(RankError::Other)?,
    };
    agree_on_start(rank, mine)?;
    // `--inject seed@rankR,step0` changes the seed here, after the comparison: no rank notices.
    Ok(weights(hooks.seed(Phase::Backward, seed)))
}

/// Fails unless all ranks have the same hash of weights as this rank, whose hash is `mine`: ranks
/// that start from different weights would silently train different models.
fn agree_on_start(rank: &Rank, mine: [u8; 32]) -> Result<()> {
    match odd_one_out(&rank.group.exchange(&mine)?) {
        None => Ok(()),
        Some((odd, usual)) => Err(RankError::OtherWeights { culprit: odd as u32, usual: usual as u32 }),
    }
}

impl Worker<'_> {
    /// Gathers the master weights unit by unit; a thread of rank 0 hashes them tensor by tensor, in
    /// the layout's order, and writes them with `--save`. Returns the hash on rank 0. Does nothing
    /// if neither is asked for.
    pub(super) fn save_weights(&mut self) -> Result<Option<String>> {
        let plan = self.plan;
        if !plan.config.hashed && plan.config.output.save.is_none() {
            return Ok(None);
        }
        let leader = self.rank.number() == 0;
        let mut writer = leader.then(|| WeightWriter::start(plan)).transpose()?;
        self.gather_weights(&mut writer)?;
        if let Some(writer) = &mut writer {
            writer.finish();
        }
        match wait_for_writer(&self.writing_channel, writer.as_ref())? {
            Some(Reply::Published(hash)) => Ok(Some(hash)),
            _ => Ok(None),
        }
    }

    /// Begins a save of a checkpoint, unless the previous one is still in progress.
    pub(super) fn save_checkpoint(&mut self) -> Result<()> {
        let Some(saver) = &mut self.saver else { return Ok(()) };
        if !saver.is_idle() {
            let why = "skipped: the previous checkpoint is still being written";
            self.report_checkpoint(self.steps, Some(why));
            return Ok(());
        }
        let waits = self.plan.config.output.checkpoint_wait;
        self.stage.states().optimizer.free_buffers();
        let mut outcome = self.begin_checkpoint()?;
        self.plan.reached(self.hooks.step(), self.rank.number(), Milestone::Checkpointing);
        if let Some(saver) = &mut self.saver
            && waits
        {
            outcome = outcome.or(saver.wait()?);
        }
        self.record.checkpoint();
        self.note_outcome(outcome);
        Ok(())
    }

    /// Continues the save in progress, if there is one and no rank is busy with it.
    pub(super) fn advance_checkpoint(&mut self) -> Result<()> {
        if let Some(saver) = &mut self.saver {
            let outcome = saver.advance()?;
            self.note_outcome(outcome);
        }
        Ok(())
    }

    /// Saves a checkpoint of the last step, unless that is done.
    pub(super) fn save_last_checkpoint(&mut self) -> Result<()> {
        let Some(saver) = &mut self.saver else { return Ok(()) };
        let previous = saver.wait()?;
        self.note_outcome(previous);
        if self.steps == self.plan.first_step() || self.last_saved_step == Some(self.steps) {
            return Ok(());
        }
        let mut outcome = self.begin_checkpoint()?;
        if let Some(saver) = &mut self.saver {
            outcome = outcome.or(saver.wait()?);
        }
        self.note_outcome(outcome);
        Ok(())
    }

    fn begin_checkpoint(&mut self) -> Result<Option<SaveOutcome>> {
        self.plan.reached(self.hooks.step(), self.rank.number(), Milestone::Copying);
        let since = u64::from(self.steps - self.plan.first_step());
        let progress = TrainingProgress {
            steps: self.steps,
            updates: self.updates,
            tokens: Some(self.plan.tokens_before() + since * self.plan.config.tokens_per_step()),
            loss_scale: self.scaler.as_ref().map(LossScaler::at),
        };
        match &mut self.saver {
            Some(saver) => saver.begin(self.stage.states(), progress),
            None => Ok(None),
        }
    }

    /// Stores the outcome of a save that has ended, if one has, and reports it.
    fn note_outcome(&mut self, outcome: Option<SaveOutcome>) {
        let Some(SaveOutcome { steps, result }) = outcome else { return };
        self.report_checkpoint(steps, result.as_ref().err().map(String::as_str));
        if result.is_ok() {
            self.last_saved_step = Some(steps);
        }
        self.save_error = result.err();
    }

    /// Reports the outcome of a save after `steps` steps.
    fn report_checkpoint(&self, steps: u32, failed: Option<&str>) {
        self.record.report(RunEvent::Checkpoint(steps, failed));
        if let Some(witness) = &self.plan.witness {
            witness.on_checkpoint(self.rank.number(), steps, failed);
        }
    }

    /// Gathers the master weights unit by unit on all ranks. Rank 0 gives each tensor to `writer`,
    /// in the layout's order, and all ranks wait for it.
    fn gather_weights(&mut self, writer: &mut Option<WeightWriter>) -> Result<()> {
        let Worker { plan, rank, stage, writing_channel, .. } = self;
        let StageStates { optimizer, parameters } = stage.states();
        // Units that are gathered, with the number of their tensors that have been read.
        let mut gathered: BTreeMap<UnitId, (Buffer, usize)> = BTreeMap::new();
        for tensor in 0..plan.model.layout.tensors.len() {
            let (unit, slot) = plan.partition.home(tensor);
            let (full, read) = match gathered.remove(&unit) {
                Some(held) => held,
                None => (optimizer.whole(rank, unit, TrainingState::Weight, parameters)?, 0),
            };
            plan.reached(plan.config.steps, rank.number(), Milestone::Gathered(tensor));
            let full = match writer {
                Some(writer) => {
                    writer.write(full, tensor, slot.range());
                    match wait_for_writer(writing_channel, Some(writer))? {
                        Some(Reply::Written(full)) => full,
                        _ => {
                            return Err(other(
                                "the weights were published before all were written; this is a bug in this program",
                            ));
                        }
                    }
                }
                None => {
                    wait_for_writer(writing_channel, None)?;
                    full
                }
            };
            // A unit is freed after its last tensor.
            if read + 1 < plan.partition.units[unit].slots.len() {
                gathered.insert(unit, (full, read + 1));
            }
        }
        Ok(())
    }
}

/// Blocks until rank 0's writer has answered its last request, exchanging heartbeats. Collective:
/// all ranks call it. Returns the answer on rank 0, `None` elsewhere.
fn wait_for_writer(channel: &ControlChannel, writer: Option<&WeightWriter>) -> Result<Option<Reply>> {
    loop {
        let reply = match writer {
            Some(writer) => writer.reply(HEARTBEAT)?,
            None => None,
        };
        let busy = writer.is_some() && reply.is_none();
        let any_busy = exchange_busy(channel, busy);
        if let (Err(_), true, Some(writer)) = (&any_busy, busy, writer) {
            // The group has failed: the rank frees the unit itself, unless the disk hangs.
            let _ = writer.reply(SHUTDOWN_GRACE);
        }
        if !any_busy? {
            return Ok(reply);
        }
    }
}
