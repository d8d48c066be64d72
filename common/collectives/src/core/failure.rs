//! Why a group failed, and which rank is to blame.

use super::call::Signature;
use crate::CollectiveError;
use crate::call_id::CallId;
use crate::vote::odd_one_out;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The result of a step that the group's failure ends.
pub(crate) type GroupResult<T> = std::result::Result<T, Failure>;

/// Why a group failed. The first failure of a group stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The rank to blame, as the world numbers it; for [`Cause::Unknown`] the rank that reports.
    pub(crate) culprit: u32,
    pub(crate) cause: Cause,
}

/// What a rank waited for in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Awaited {
    /// That the other rank issues the call.
    Issue,
    /// That it does its part.
    Part,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    /// The culprit gave up.
    Poisoned { during: String, reason: String },
    /// The group failed and the culprit is unknown.
    Unknown { during: String, reason: String },
    /// `reporter` timed out on what it awaited from the culprit.
    Late { reporter: u32, call: CallId, awaited: Awaited, waited: Duration },
    /// The culprit left the group before it issued a call that other ranks wait for.
    Departed,
    /// The culprit issued something other than `reference` did.
    Mismatch { reference: u32, sequence: u64, expected: String, theirs: String },
}

impl Failure {
    /// Returns the failure that member `reporter` of the group of `global_ranks` blames on member
    /// `culprit`; `None` for a culprit that is unknown.
    pub(crate) fn new(
        global_ranks: &[u32],
        reporter: usize,
        culprit: Option<usize>,
        during: String,
        reason: String,
    ) -> Self {
        match culprit {
            Some(culprit) => {
                Failure { culprit: global_ranks[culprit], cause: Cause::Poisoned { during, reason } }
            }
            None => Failure { culprit: global_ranks[reporter], cause: Cause::Unknown { during, reason } },
        }
    }

    /// Returns the error of `rank`, which notices the failure in `call`, or in no call.
    pub(crate) fn seen_by(self, rank: u32, call: Option<CallId>) -> CollectiveError {
        let culprit = self.culprit;
        let poisoned = |during, reason| CollectiveError::Poisoned { rank, culprit, during, reason, call };
        match self.cause {
            Cause::Poisoned { during, reason } => poisoned(during, reason),
            Cause::Unknown { during, reason } => {
                CollectiveError::Unknown { rank, reporter: culprit, during, reason, call }
            }
            Cause::Departed => {
                poisoned("shutdown".into(), "it left the group while other ranks still waited for it".into())
            }
            Cause::Mismatch { reference, sequence, expected, theirs } => {
                CollectiveError::Mismatch { rank, culprit, reference, sequence, expected, theirs }
            }
            Cause::Late { reporter, call: late, awaited, waited } => {
                let missing = match awaited {
                    Awaited::Issue => "never issued it",
                    Awaited::Part => "issued it but never did its part",
                };
                if reporter == rank {
                    return CollectiveError::Timeout { rank, culprit, missing, call: late, waited };
                }
                poisoned(
                    late.to_string(),
                    format!("rank {reporter} waited {waited:?} for rank {culprit}, which {missing}"),
                )
            }
        }
    }
}

/// Compares the calls that all members issued as number `sequence`. The reference is the first
/// member that most others agree with; the culprit is the first that differs from it. `None` if all
/// agree.
pub(crate) fn disagreement(all: &[&Signature], sequence: u64, global_ranks: &[u32]) -> Option<Failure> {
    let (culprit, reference) = odd_one_out(all)?;
    let cause = Cause::Mismatch {
        reference: global_ranks[reference],
        sequence,
        expected: all[reference].describe(all[culprit]),
        theirs: all[culprit].describe(all[reference]),
    };
    Some(Failure { culprit: global_ranks[culprit], cause })
}
