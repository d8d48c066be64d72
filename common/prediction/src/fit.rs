//! The largest micro-batch that fits.

use crate::job::Job;
use crate::placement::Limits;
use crate::predict::{Requirements, requirements};

/// Returns the maximum number of sequences per micro-batch with which `job` stays within `limits`;
/// `None` if even one exceeds them.
pub fn largest_batch_within(job: &Job, limits: Limits) -> Option<usize> {
    let fits = |needs: Requirements| {
        let mut places = needs.peaks.into_iter().zip(limits);
        places.all(|(peak, limit)| limit.is_none_or(|limit| peak <= limit))
    };
    largest_batch(job, |job| requirements(job).is_ok_and(fits))
}

/// Returns the maximum number of sequences per micro-batch with which `job` still `fits`. A rank's
/// peak grows with the micro-batch, so bisection finds the number.
pub(crate) fn largest_batch(job: &Job, fits: impl Fn(&Job) -> bool) -> Option<usize> {
    let fits = |batch_size: usize| fits(&Job { batch_size, ..job.clone() });
    let mut too_large = 1;
    while fits(too_large) {
        too_large *= 2;
    }
    let mut largest = too_large / 2;
    while too_large - largest > 1 {
        let middle = largest + (too_large - largest) / 2;
        if fits(middle) { largest = middle } else { too_large = middle }
    }
    (largest > 0).then_some(largest)
}
