//! Sums of the bytes that ranks have sent.

use events::{Operation, RankSnapshot, Sent};

/// Returns the sum of `parts` by operation.
pub(super) fn sums(parts: impl Iterator<Item = Sent>) -> Sent {
    parts.fold(Sent::default(), |mut sum, part| {
        sum.by_operation
            .iter_mut()
            .zip(part.by_operation)
            .for_each(|(sum, part)| *sum = sum.saturating_add(part));
        sum
    })
}

/// Returns what `rank` has sent in the running step, or in the last one between steps.
pub(super) fn of_step(rank: &RankSnapshot) -> Sent {
    if rank.in_step { rank.sent_this_step() } else { rank.sent_last_step.clone() }
}

/// Returns the bytes of model data in `sent`: all but scalars.
pub(super) fn data(sent: &Sent) -> u64 {
    sent.total().saturating_sub(sent.by_operation[Operation::Scalars.index()])
}
