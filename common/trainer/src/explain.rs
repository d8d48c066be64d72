//! A rank's error in words.

use crate::plan::{Plan, limits};
use crate::rank_error::RankError;
use collectives::CollectiveError;
use planner::Moment;
use report::memory::ran_out;
use settings::Failure;
use settings::prediction::job;

/// Returns a rank's error as the program prints it.
pub(crate) fn rank_failure(plan: &Plan, rank: usize, error: &RankError) -> Failure {
    // Ranks name the moment of what fails in setup and in steps.
    match &error.clone().at(Moment::Gathering) {
        RankError::OutOfMemory(oom, moment) => {
            let job = job(plan.stage.plan, &plan.config);
            ran_out(&job, &plan.prediction, (oom, *moment), limits(&plan.config))
        }
        RankError::Stage(sharding::Error::Collective(
            error @ CollectiveError::Timeout { culprit, waited, .. },
        )) => {
            let seconds = waited.as_secs();
            Failure::run(format!("{error}\n\n{}", advice_on_timeout(*culprit, seconds)))
        }
        error => Failure::run(format!("rank {rank}: {error}")),
    }
}

/// Says what to do about a rank that others waited for.
fn advice_on_timeout(culprit: u32, seconds: u64) -> String {
    format!(
        "Look at rank {culprit}: it hangs, is gone, or takes another way through the program than the others.\n\
         If it is only slow, give it more time: --timeout {} (now {seconds}).",
        2 * seconds
    )
}
