//! How a rank ends early.

use collectives::CollectiveError;
use device::OutOfMemory;
use planner::Moment;

/// Why a rank ended early.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RankError {
    /// The stage, its device or its peers.
    Stage(sharding::Error),
    /// Its device's memory.
    OutOfMemory(OutOfMemory, Moment),
    /// A rank starts from other weights than most; and one of those.
    OtherWeights(u32, u32),
    /// A rank begins with an earlier step than others.
    OtherStep(u32),
    /// It hung, as a fault asks for, until the others had to give up; in words.
    Stalled(String),
    /// Anything else, in words.
    Other(String),
    /// As all others did, because somebody wished it: no failure.
    Stopped,
}

impl<E: Into<sharding::Error>> From<E> for RankError {
    fn from(error: E) -> Self {
        RankError::Stage(error.into())
    }
}

impl RankError {
    /// The rank at fault, if it is another one than `rank`, whose error this is.
    pub(crate) fn culprit(&self, rank: u32) -> Option<u32> {
        match self {
            RankError::Stage(sharding::Error::Collective(error)) => error.culprit(),
            RankError::OtherWeights(culprit, _) | RankError::OtherStep(culprit) => {
                Some(*culprit).filter(|&culprit| culprit != rank)
            }
            _ => None,
        }
    }

    /// Whether something failed through nobody knows whom.
    pub(crate) fn blames_nobody(&self) -> bool {
        matches!(self, RankError::Stage(sharding::Error::Collective(CollectiveError::Unknown { .. })))
    }

    /// Whether it is a mere echo of another rank's.
    pub(crate) fn is_echo(&self) -> bool {
        matches!(self, RankError::Stage(sharding::Error::Collective(CollectiveError::Poisoned { .. })))
    }

    /// Running out of memory, with where it happened; any other error as it is.
    pub(super) fn at(self, moment: Moment) -> Self {
        let RankError::Stage(error) = &self else { return self };
        error.out_of_memory().cloned().map_or(self, |oom| RankError::OutOfMemory(oom, moment))
    }
}

impl std::fmt::Display for RankError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RankError::Stage(error) => error.fmt(f),
            RankError::OutOfMemory(oom, moment) => write!(f, "{oom}, in {moment}"),
            RankError::OtherWeights(culprit, other) => write!(
                f,
                "rank {culprit} starts from other weights than rank {other}: give every rank the same --seed and --init-from"
            ),
            RankError::OtherStep(culprit) => write!(
                f,
                "rank {culprit} does not have the state that others go on from: --checkpoint must be a directory that all machines see"
            ),
            RankError::Stalled(message) | RankError::Other(message) => f.write_str(message),
            RankError::Stopped => f.write_str("the run was stopped"),
        }
    }
}

/// An error of no kind of its own.
pub(super) fn other(error: impl std::fmt::Display) -> RankError {
    RankError::Other(error.to_string())
}
