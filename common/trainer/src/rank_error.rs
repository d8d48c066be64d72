//! Why a rank ended before its last step.

use collectives::CollectiveError;
use device::OutOfMemory;
use events::{Emitter, What};
use prediction::Moment;

/// Why a rank ended before its last step.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum RankError {
    /// The stage, its device or a peer failed.
    #[error(transparent)]
    Stage(sharding::Error),
    /// The device ran out of memory.
    #[error("{0}, in {1}")]
    OutOfMemory(OutOfMemory, Moment),
    /// A rank starts from different weights than most ranks.
    #[error(
        "rank {culprit} starts from different weights than rank {usual}: give every rank the same --seed and --init-from"
    )]
    OtherWeights {
        /// The rank with different weights.
        culprit: u32,
        /// The first rank with the weights that most ranks have.
        usual: u32,
    },
    /// An injected fault made the rank hang until the others timed out; the message.
    #[error("{0}")]
    Stalled(String),
    /// Any other failure; the message.
    #[error("{0}")]
    Other(String),
    /// All ranks stopped on request: no failure.
    #[error("the run was stopped")]
    Stopped,
}

/// The result of what one rank does.
pub(crate) type Result<T> = std::result::Result<T, RankError>;

impl<E: Into<sharding::Error>> From<E> for RankError {
    fn from(error: E) -> Self {
        RankError::Stage(error.into())
    }
}

impl RankError {
    /// Returns the rank that caused this error of `rank`, if it is another one.
    pub(crate) fn culprit(&self, rank: u32) -> Option<u32> {
        match self {
            RankError::Stage(sharding::Error::Collective(error)) => error.culprit(),
            RankError::OtherWeights { culprit, .. } => Some(*culprit).filter(|&culprit| culprit != rank),
            _ => None,
        }
    }

    /// True if the group failed and the culprit is unknown.
    pub(crate) fn culprit_is_unknown(&self) -> bool {
        matches!(self, RankError::Stage(sharding::Error::Collective(CollectiveError::Unknown { .. })))
    }

    /// True if the rank only passes on the failure of another rank.
    pub(crate) fn is_echo(&self) -> bool {
        matches!(self, RankError::Stage(sharding::Error::Collective(CollectiveError::Poisoned { .. })))
    }

    /// Emits that the rank of `emitter` fails. A rank that stalled emits that it only passes on the
    /// failure, so that viewers show the error of the rank that timed out on it.
    pub(crate) fn announce(&self, emitter: &Emitter) {
        emitter.emit(match self {
            RankError::Stalled(_) => What::Blamed { culprit: emitter.rank(), heard: true },
            _ => What::Failing,
        });
    }

    /// Adds `moment` to an out-of-memory error; returns any other error as it is.
    pub(crate) fn at(self, moment: Moment) -> Self {
        let RankError::Stage(error) = &self else { return self };
        error.out_of_memory().cloned().map_or(self, |oom| RankError::OutOfMemory(oom, moment))
    }
}

/// Wraps an error that has no variant of its own.
pub(crate) fn other(error: impl std::fmt::Display) -> RankError {
    RankError::Other(error.to_string())
}
