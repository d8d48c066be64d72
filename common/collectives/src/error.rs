//! Errors of collectives.

use crate::call_id::CallId;
use events::Operation;
use std::time::Duration;

/// Why a collective failed. Every rank of the group gets such an error, and all name the same
/// culprit, if it is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// A rank ended, with an error or a panic, while other ranks still waited for it.
    #[error("rank {culprit} failed during {during}: {reason} (seen by rank {rank}{})", within(call))]
    Poisoned {
        /// The rank that reports.
        rank: u32,
        /// The rank that failed.
        culprit: u32,
        /// What the culprit was doing.
        during: String,
        /// Its error.
        reason: String,
        /// The collective in which this rank noticed, if it was in one.
        call: Option<CallId>,
    },
    /// The group failed and the culprit is unknown.
    #[error(
        "rank {reporter} gave up {during}, and the rank at fault is unknown: {reason} \
         (seen by rank {rank}{})",
        within(call)
    )]
    Unknown {
        /// The rank that reports.
        rank: u32,
        /// The rank that noticed first.
        reporter: u32,
        /// What that rank was doing.
        during: String,
        /// The reason that it gives.
        reason: String,
        /// The collective in which this rank noticed, if it was in one.
        call: Option<CallId>,
    },
    /// A rank waited for another until the timeout.
    #[error("rank {rank} waited {waited:?} in {call} for rank {culprit}, which {missing}")]
    Timeout {
        /// The rank that reports.
        rank: u32,
        /// The rank at fault.
        culprit: u32,
        /// What the culprit did not do, in words.
        missing: &'static str,
        /// The call.
        call: CallId,
        /// The timeout.
        waited: Duration,
    },
    /// Ranks issued different collectives under the same sequence number.
    #[error(
        "collective #{sequence} differs between ranks: rank {culprit} issued {theirs}, \
         rank {reference} issued {expected}; every rank must issue the same collectives in the same order"
    )]
    Mismatch {
        /// The rank that reports.
        rank: u32,
        /// The first rank that differs from `reference`.
        culprit: u32,
        /// The rank compared with: the first that most ranks agree with.
        reference: u32,
        /// The sequence number.
        sequence: u64,
        /// What `reference` issued, in words: operation, elements, element type.
        expected: String,
        /// What the culprit issued.
        theirs: String,
    },
    /// This rank's device failed in its part of the call.
    #[error("rank {rank}: {call} failed on its device: {reason}")]
    Device {
        /// The rank.
        rank: u32,
        /// The call.
        call: CallId,
        /// The device's error.
        reason: String,
    },
    /// This rank cannot be connected with the others over NCCL.
    #[error("rank {rank} cannot use NCCL: {reason}")]
    Setup {
        /// The rank.
        rank: u32,
        /// Why, and what to do.
        reason: String,
    },
    /// This rank passed something that the operation cannot take.
    #[error("rank {rank}: {operation} cannot take {what}")]
    Invalid {
        /// The rank.
        rank: u32,
        /// The operation.
        operation: Operation,
        /// What is wrong, in words.
        what: String,
    },
}

/// Returns ` in CALL` for the call in which a failure was noticed; empty outside any call.
fn within(call: &Option<CallId>) -> String {
    call.map_or(String::new(), |call| format!(" in {call}"))
}

impl CollectiveError {
    /// Returns the rank at fault, if it is not the reporting rank.
    pub fn culprit(&self) -> Option<u32> {
        match *self {
            CollectiveError::Poisoned { rank, culprit, .. }
            | CollectiveError::Timeout { rank, culprit, .. }
            | CollectiveError::Mismatch { rank, culprit, .. } => Some(culprit).filter(|&other| other != rank),
            CollectiveError::Unknown { .. }
            | CollectiveError::Device { .. }
            | CollectiveError::Setup { .. }
            | CollectiveError::Invalid { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_rank_operation_and_sequence() {
        let (rank, culprit, sequence) = (1, 2, 7);
        let call = CallId { operation: Operation::AllReduce, sequence };
        let poisoned = |call| {
            let (during, reason) = ("forward of block 3".into(), "out of memory".into());
            CollectiveError::Poisoned { rank, culprit, during, reason, call }.to_string()
        };
        let message = "rank 2 failed during forward of block 3: out of memory (seen by rank 1";
        assert_eq!(poisoned(Some(call)), format!("{message} in all-reduce #7)"));
        assert_eq!(poisoned(None), format!("{message})"));
        let (missing, waited) = ("never issued it", Duration::from_secs(60));
        assert_eq!(
            CollectiveError::Timeout { rank, culprit, missing, call, waited }.to_string(),
            "rank 1 waited 60s in all-reduce #7 for rank 2, which never issued it"
        );
        let (expected, theirs) = ("barrier".into(), "scalars".into());
        assert_eq!(
            CollectiveError::Mismatch { rank, culprit, reference: 0, sequence, expected, theirs }.to_string(),
            "collective #7 differs between ranks: rank 2 issued scalars, rank 0 issued barrier; \
             every rank must issue the same collectives in the same order"
        );
    }
}
