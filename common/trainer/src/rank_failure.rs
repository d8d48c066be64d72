//! Explains a rank's error to the user.

use crate::plan::{Plan, limits};
use crate::rank_error::RankError;
use collectives::CollectiveError;
use prediction::Moment;
use report::memory::ran_out;
use settings::Failure;
use settings::planned::job;

/// Returns a rank's error as the program prints it.
pub(crate) fn rank_failure(plan: &Plan, rank: usize, error: &RankError) -> Failure {
    // Errors in setup and in steps carry their moment already.
    match &error.clone().at(Moment::Gathering) {
        RankError::OutOfMemory(oom, moment) => {
            let job = job(plan.stage.id, &plan.config);
            ran_out(&job, &plan.prediction, (oom, *moment), limits(&plan.config))
        }
        RankError::Stage(sharding::Error::Collective(
            error @ CollectiveError::Timeout { culprit, waited, .. },
        )) => {
            let seconds = waited.as_secs();
            Failure::run(format!("{error}\n\n{}", advice_on_timeout(*culprit, seconds)))
        }
        // These name the ranks that they are about.
        error @ (RankError::Stage(sharding::Error::Collective(_)) | RankError::OtherWeights { .. }) => {
            Failure::run(error.to_string())
        }
        error => Failure::run(format!("rank {rank}: {error}")),
    }
}

/// Returns advice about a rank that others waited for.
fn advice_on_timeout(culprit: u32, seconds: u64) -> String {
    format!(
        "Check rank {culprit}: it hangs, has exited, or issued different collectives than the others.\n\
         If it is only slow, give it more time: --timeout {} (now {seconds}).",
        2 * seconds
    )
}
