//! What can go wrong between ranks.

use events::Operation;

/// A collective failed. Every rank of the group gets one, and all name the same culprit.
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
    /// A rank did not arrive before the deadline.
    #[error(
        "rank {rank} waited {seconds} s in {operation} #{sequence} for rank {culprit}, which never issued it"
    )]
    Timeout {
        /// The rank that reports.
        rank: u32,
        /// The first rank that had not arrived.
        culprit: u32,
        /// The operation.
        operation: Operation,
        /// Its sequence number.
        sequence: u64,
        /// The deadline, in seconds.
        seconds: u64,
    },
    /// Ranks issued different collectives under the same sequence number.
    #[error(
        "collective #{sequence} differs between ranks: rank {culprit} issued {theirs}, rank 0 issued {expected}"
    )]
    Mismatch {
        /// The rank that reports.
        rank: u32,
        /// The first rank that differs from rank 0.
        culprit: u32,
        /// The sequence number.
        sequence: u64,
        /// What rank 0 issued, in words: operation, elements per buffer, element type.
        expected: String,
        /// What the culprit issued.
        theirs: String,
    },
    /// This rank called with buffers that the operation cannot take.
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
