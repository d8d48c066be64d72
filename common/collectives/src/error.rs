//! What can go wrong between ranks.

use events::Operation;
use std::time::Duration;

/// A collective failed. Every rank of the group gets one, and all name the same culprit, where there is one to name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// A rank ended, with an error or a panic, while others still counted on it.
    #[error(
        "rank {culprit} failed during {during}: {reason} (seen by rank {rank} in {operation} #{sequence})"
    )]
    Poisoned {
        /// The rank that reports.
        rank: u32,
        /// The rank that failed.
        culprit: u32,
        /// What the culprit was doing.
        during: String,
        /// Its error.
        reason: String,
        /// The collective in which this rank noticed.
        operation: Operation,
        /// That collective's sequence number.
        sequence: u64,
    },
    /// Something failed, and nobody can tell through whom.
    #[error(
        "rank {reporter} gave up {during}, and nobody can tell whose fault it is: {reason} \
         (seen by rank {rank} in {operation} #{sequence})"
    )]
    Unknown {
        /// The rank that reports.
        rank: u32,
        /// The rank that noticed first.
        reporter: u32,
        /// What it was doing.
        during: String,
        /// What it noticed.
        reason: String,
        /// The collective in which this rank heard of it.
        operation: Operation,
        /// That collective's sequence number.
        sequence: u64,
    },
    /// A rank did not come before the deadline.
    #[error("rank {rank} waited {waited:?} in {operation} #{sequence} for rank {culprit}, which {missing}")]
    Timeout {
        /// The rank that reports.
        rank: u32,
        /// The first rank that was missing.
        culprit: u32,
        /// What the culprit did not do, in words.
        missing: &'static str,
        /// The operation.
        operation: Operation,
        /// Its sequence number.
        sequence: u64,
        /// The deadline.
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
        /// The rank compared with: the first of those that most agree with; of a message, the sender.
        reference: u32,
        /// The sequence number.
        sequence: u64,
        /// What `reference` issued, in words: operation, elements, element type.
        expected: String,
        /// What the culprit issued.
        theirs: String,
    },
    /// This rank's device refused its part.
    #[error("rank {rank}: {operation} #{sequence} failed on its device: {reason}")]
    Device {
        /// The rank.
        rank: u32,
        /// The operation.
        operation: Operation,
        /// Its sequence number.
        sequence: u64,
        /// The device's error.
        reason: String,
    },
    /// This rank cannot be connected with the others.
    #[error("rank {rank} cannot use NCCL: {reason}")]
    Setup {
        /// The rank.
        rank: u32,
        /// Why, and what to do.
        reason: String,
    },
    /// This rank called with something that the operation cannot take.
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

impl CollectiveError {
    /// The rank at fault, where it is another one than the rank that reports.
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
        let operation = Operation::AllReduce;
        let (during, reason) = ("forward of block 3".into(), "out of memory".into());
        assert_eq!(
            CollectiveError::Poisoned { rank, culprit, during, reason, operation, sequence }.to_string(),
            "rank 2 failed during forward of block 3: out of memory (seen by rank 1 in all-reduce #7)"
        );
        let (missing, waited) = ("never issued it", Duration::from_secs(60));
        assert_eq!(
            CollectiveError::Timeout { rank, culprit, missing, operation, sequence, waited }.to_string(),
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
