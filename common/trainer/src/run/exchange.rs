//! What ranks tell each other beside the stage's collectives.

use super::error::other;
use super::{Measured, RankError, Result, Worker};
use events::What;
use sharding::Rank;

/// Everybody's measurements, in rank order: what ranks of other processes have to say comes through the group. Of steps
/// and validations, which are the same on every rank, only this rank's are kept.
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

/// Fails the group of all ranks, unless it has failed already: with this rank as the culprit, or whom the error of a
/// smaller group blames.
pub(super) fn tell_peers(rank: &Rank, during: &str, error: RankError) -> RankError {
    rank.emitter.emit(What::Failing);
    let number = rank.group.rank();
    let culprit = (!error.blames_nobody()).then(|| error.culprit(number).unwrap_or(number));
    rank.group.blame(culprit, during.into(), error.to_string());
    error
}

impl Worker<'_> {
    /// The sum of what every rank adds to the mean loss, and whether any of them wants to stop.
    pub(super) fn agree(&self, loss: f64) -> Result<(f64, bool)> {
        let stop = u64::from(self.plan.stop.is_there());
        let mut mine = [0; 16];
        mine[..8].copy_from_slice(&loss.to_le_bytes());
        mine[8..].copy_from_slice(&stop.to_le_bytes());
        let all = self.rank.group.exchange(&mine)?;
        let word = |bytes: &[u8], at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            word
        };
        let loss = all.iter().map(|bytes| f64::from_le_bytes(word(bytes, 0))).sum();
        Ok((loss, all.iter().any(|bytes| u64::from_le_bytes(word(bytes, 8)) != 0)))
    }
}
