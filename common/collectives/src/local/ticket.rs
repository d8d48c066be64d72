//! Who meets whom in which collective, and why a meeting fails.

use crate::CollectiveError;
use events::Operation;
use std::time::Duration;

/// What a rank hands in.
pub(crate) trait Contribution {
    /// What its rank wants to do.
    fn operation(&self) -> Operation;
    /// Whether two ranks that hand in `self` and `other` mean the same collective.
    fn agrees(&self, other: &Self) -> bool;
    /// `self` in words, for a message about how it differs from `other`.
    fn describe(&self, other: &Self) -> String;
}

/// Who meets. Members are numbered within the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// All members.
    Group,
    /// A sender and a receiver.
    Pair { from: usize, to: usize },
}

/// One member's place in one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) lane: Lane,
    /// Number of the slot within its lane.
    pub(crate) sequence: u64,
    /// The member.
    pub(crate) member: usize,
}

impl Lane {
    /// How many meet, in a group of `members`.
    pub(crate) fn parties(self, members: usize) -> usize {
        match self {
            Lane::Group => members,
            Lane::Pair { .. } => 2,
        }
    }

    /// The member behind a party of a slot.
    pub(crate) fn member(self, party: usize) -> usize {
        match (self, party) {
            (Lane::Group, party) => party,
            (Lane::Pair { from, .. }, 0) => from,
            (Lane::Pair { to, .. }, _) => to,
        }
    }
}

impl Ticket {
    /// Its member's index within the slot.
    pub(crate) fn party(&self) -> usize {
        match self.lane {
            Lane::Group => self.member,
            Lane::Pair { from, .. } => usize::from(self.member != from),
        }
    }
}

/// Why a group failed. The first failure stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The rank to blame, as the world numbers it; of [`Cause::Unknown`] the one that reports.
    pub(crate) culprit: u32,
    pub(crate) cause: Cause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The culprit gave up.
    Poisoned { during: String, reason: String },
    /// Something failed through nobody knows whom.
    Unknown { during: String, reason: String },
    /// `reporter` waited in vain for the culprit: to issue, or (`issued`) to do its part.
    Late { reporter: u32, operation: Operation, sequence: u64, issued: bool, waited: Duration },
    /// The culprit left the group before it issued what others wait for.
    Departed,
    /// The culprit issued something other than `reference` did.
    Mismatch { reference: u32, sequence: u64, expected: String, theirs: String },
}

impl Failure {
    /// What member `reporter` of a group of ranks `names` says that member `culprit` did; none where it cannot tell.
    pub(crate) fn new(
        names: &[u32],
        reporter: usize,
        culprit: Option<usize>,
        during: String,
        reason: String,
    ) -> Self {
        match culprit {
            Some(culprit) => Failure { culprit: names[culprit], cause: Cause::Poisoned { during, reason } },
            None => Failure { culprit: names[reporter], cause: Cause::Unknown { during, reason } },
        }
    }

    /// The error of `rank`, which notices in collective `sequence`.
    pub(crate) fn seen_by(self, rank: u32, operation: Operation, sequence: u64) -> CollectiveError {
        let culprit = self.culprit;
        let poisoned =
            |during, reason| CollectiveError::Poisoned { rank, culprit, during, reason, operation, sequence };
        match self.cause {
            Cause::Poisoned { during, reason } => poisoned(during, reason),
            Cause::Unknown { during, reason } => {
                CollectiveError::Unknown { rank, reporter: culprit, during, reason, operation, sequence }
            }
            Cause::Departed => {
                poisoned("its end".into(), "it left the group while others still counted on it".into())
            }
            Cause::Mismatch { reference, sequence, expected, theirs } => {
                CollectiveError::Mismatch { rank, culprit, reference, sequence, expected, theirs }
            }
            Cause::Late { reporter, operation, sequence, issued, waited } => {
                let missing = if issued { "issued it but never did its part" } else { "never issued it" };
                if reporter == rank {
                    return CollectiveError::Timeout { rank, culprit, missing, operation, sequence, waited };
                }
                poisoned(
                    format!("{operation} #{sequence}"),
                    format!("rank {reporter} waited {waited:?} for it, but it {missing}"),
                )
            }
        }
    }
}

/// How the first contribution that differs from what most parties hand in differs, if one does. The first party's counts
/// where no other has more on its side.
pub(crate) fn disagreement<C: Contribution>(all: &[C], ticket: &Ticket, names: &[u32]) -> Option<Failure> {
    let alike = |one: &C| all.iter().filter(|other| other.agrees(one)).count();
    if alike(&all[0]) == all.len() {
        return None;
    }
    let most = all.iter().map(alike).max();
    let standard = all.iter().position(|one| Some(alike(one)) == most)?;
    let reference = &all[standard];
    let party = all.iter().position(|other| !other.agrees(reference))?;
    let cause = Cause::Mismatch {
        reference: names[ticket.lane.member(standard)],
        sequence: ticket.sequence,
        expected: reference.describe(&all[party]),
        theirs: all[party].describe(reference),
    };
    Some(Failure { culprit: names[ticket.lane.member(party)], cause })
}
