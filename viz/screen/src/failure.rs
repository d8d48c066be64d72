//! The failure that the screen shows: the one that the launcher prints.

use events::{RankStatus, Snapshot};

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The rank at fault, or all ranks that failed with the same message.
    pub ranks: Vec<usize>,
    /// The error message of the first of these ranks.
    pub message: &'a str,
}

/// Returns the failure of a run; `None` if it has not failed. If several ranks failed with messages
/// that differ only in the rank, the lowest rank's message is used, whichever arrived first.
pub fn shown(now: &Snapshot) -> Option<Failure<'_>> {
    let (culprit, message) = now.failure.as_ref()?;
    let culprit = *culprit as usize;
    let own = |rank: usize, message: &'_ str| message.strip_prefix(&format!("rank {rank}")).map(String::from);
    let words = own(culprit, message);
    let errors = (0..).zip(&now.ranks).filter_map(|(rank, state)| match &state.status {
        RankStatus::Failed(error) => Some((rank, error.as_str())),
        _ => None,
    });
    let alike: Vec<_> =
        errors.filter(|(rank, error)| words.is_some() && own(*rank, error) == words).collect();
    let first = alike.first().map_or(message.as_str(), |(_, error)| error);
    let ranks = if alike.is_empty() { vec![culprit] } else { alike.iter().map(|(rank, _)| *rank).collect() };
    Some(Failure { ranks, message: first })
}
