//! The messages that ranks exchange in addition to the stage's collectives.

use crate::plan::Plan;
use crate::rank_error::{RankError, Result, other};
use collectives::ControlChannel;
use report::Measured;
use sharding::Rank;
use std::ops::ControlFlow;

/// Returns the measurements of all ranks, in rank order; those of other processes come through the
/// group. Steps and validations, which are the same on every rank, are kept of this rank alone.
///
/// # Errors
/// The group's failure.
pub(crate) fn share(rank: &Rank, measured: Measured) -> Result<Vec<Measured>> {
    let mine = Measured { steps: Vec::new(), evaluations: Vec::new(), ..measured.clone() };
    let all = rank.group.exchange(&serde_json::to_vec(&mine).map_err(other)?)?;
    let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes).map_err(other);
    let mut all: Vec<Measured> = all.iter().map(read).collect::<Result<_>>()?;
    all[rank.number()] = measured;
    Ok(all)
}

/// Fails the group of all ranks, unless it has failed already. Blames the rank that `error` names,
/// or else this rank.
pub(super) fn tell_peers(rank: &Rank, during: &str, error: RankError) -> RankError {
    error.announce(&rank.emitter);
    let number = rank.group.rank();
    let culprit = (!error.culprit_is_unknown()).then(|| error.culprit(number).unwrap_or(number));
    rank.group.blame(culprit, during.into(), error.to_string());
    error
}

/// What one rank contributes before a step's update or at the end of a validation.
pub(super) struct OwnStatus {
    /// This rank's part of the mean loss.
    pub(super) loss: f64,
    /// True if this rank is busy with a save.
    pub(super) is_saving: bool,
}

/// The values that ranks agree on before a step's update or at the end of a validation.
pub(super) struct Agreed {
    /// The mean loss: the sum of every rank's part.
    pub(super) loss: f64,
    /// True if any rank has seen a stop request.
    pub(super) stop: bool,
    /// True if any rank is busy with a save.
    pub(super) any_rank_saving: bool,
}

impl Agreed {
    /// Breaks if any rank has seen a stop request.
    pub(super) fn control_flow(&self) -> ControlFlow<()> {
        if self.stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Exchanges loss, stop signal and save status, and returns what holds for all ranks.
pub(super) fn agree(plan: &Plan, rank: &Rank, status: OwnStatus) -> Result<Agreed> {
    // One word: the signal of a stop request, then whether the rank is busy.
    let mine = [plan.stop.own_signal(), u8::from(status.is_saving), 0, 0, 0, 0, 0, 0];
    let all = rank.group.exchange(&[status.loss.to_le_bytes(), mine].concat())?;
    let word = |bytes: &[u8], index: usize| bytes.as_chunks::<8>().0[index];
    let loss = all.iter().map(|bytes| f64::from_le_bytes(word(bytes, 0))).sum();
    let stop = plan.stop.note_signals(all.iter().map(|bytes| word(bytes, 1)[0]));
    let any_rank_saving = all.iter().any(|bytes| word(bytes, 1)[1] != 0);
    Ok(Agreed { loss, stop, any_rank_saving })
}

/// Exchanges with the other ranks whether this one is `busy`. Returns whether any rank is.
/// Collective: all ranks call it until none is busy.
///
/// # Errors
/// The group's failure.
pub(super) fn exchange_busy(channel: &ControlChannel, busy: bool) -> Result<bool> {
    let all = channel.exchange(&[u8::from(busy)])?;
    Ok(all.iter().any(|busy| busy != &[0]))
}
