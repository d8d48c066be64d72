//! What ranks tell each other beside the stage's collectives.

use crate::plan::Plan;
use crate::rank_error::{RankError, Result, other};
use events::What;
use report::Measured;
use sharding::Rank;

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

/// Fails the group of all ranks, unless it has failed already. The culprit is the rank that `error`
/// blames, as that of a smaller group may, or else this rank.
pub(super) fn tell_peers(rank: &Rank, during: &str, error: RankError) -> RankError {
    rank.emitter.emit(What::Failing);
    let number = rank.group.rank();
    let culprit = (!error.culprit_is_unknown()).then(|| error.culprit(number).unwrap_or(number));
    rank.group.blame(culprit, during.into(), error.to_string());
    error
}

/// Returns the sum of every rank's part of the mean loss, and true if any of them has seen a stop
/// request.
pub(super) fn agree(plan: &Plan, rank: &Rank, loss: f64) -> Result<(f64, bool)> {
    let stop = u64::from(plan.stop.is_set());
    let mut mine = [0; 16];
    mine[..8].copy_from_slice(&loss.to_le_bytes());
    mine[8..].copy_from_slice(&stop.to_le_bytes());
    let all = rank.group.exchange(&mine)?;
    let word = |bytes: &[u8], at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        word
    };
    let loss = all.iter().map(|bytes| f64::from_le_bytes(word(bytes, 0))).sum();
    Ok((loss, all.iter().any(|bytes| u64::from_le_bytes(word(bytes, 8)) != 0)))
}
