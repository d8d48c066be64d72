//! Failures in words: what happened, and what would help.

use crate::error::Failure;
use crate::plan;
use crate::run::{Plan, RankError};
use crate::size::human;
use device::OutOfMemory;
use events::Class;
use planner::{Job, Prediction, Stage};

/// The plan says that memory will not do.
pub(crate) fn will_not_fit(job: &Job, prediction: &Prediction, capacity: u64) -> Failure {
    let (rank, worst) =
        match prediction.ranks.iter().enumerate().max_by_key(|(_, rank)| rank.memory.total_peak) {
            Some((rank, worst)) => (rank, worst),
            None => return Failure::run("nothing to run on"),
        };
    Failure::run(format!(
        "out of memory, foreseen: {} would need {} on rank {rank}, whose device has {} (--device-memory)\n\n\
         Predicted peaks by class:\n{}\n{}",
        job.stage,
        human(worst.memory.total_peak),
        human(capacity),
        classes(&worst.memory.peaks()),
        remedies(job, capacity),
    ))
}

/// A rank's error, as the program will print it.
pub(crate) fn rank_failure(stage: Stage, plan: &Plan, rank: usize, error: &RankError) -> Failure {
    match error {
        RankError::Stage(error) => match error.out_of_memory() {
            Some(oom) => Failure::run(ran_out(&plan::job(stage, &plan.config), oom)),
            None => Failure::run(format!("rank {rank}: {error}")),
        },
        RankError::Other(message) => Failure::run(format!("rank {rank}: {message}")),
    }
}

fn ran_out(job: &Job, oom: &OutOfMemory) -> String {
    format!(
        "rank {} is out of memory: it asked for {} of {} on a device of {}, of which {} are in use\n\n\
         Live by class:\n{}\n{}",
        oom.rank,
        human(oom.requested),
        oom.class,
        human(oom.capacity),
        human(oom.live_total),
        classes(&oom.live),
        remedies(job, oom.capacity),
    )
}

fn classes(bytes: &[u64]) -> String {
    let rows = Class::ALL.iter().zip(bytes).filter(|(_, bytes)| **bytes > 0);
    rows.map(|(class, bytes)| format!("  {class:<22} {:>9}\n", human(*bytes))).collect()
}

/// Which stage, and which micro-batch, would fit.
fn remedies(job: &Job, capacity: u64) -> String {
    let Ok(fit) = planner::explain_fit(job, capacity) else { return String::new() };
    let mut text = format!(
        "What fits in {} with this model on {} ranks:\n  {:<8} {:>10}   largest --batch-size\n",
        human(capacity),
        job.world_size,
        "stage",
        "peak"
    );
    for stage in &fit.stages {
        let batch = match stage.largest_batch {
            Some(batch) => batch.to_string(),
            None => "none fits".into(),
        };
        let verdict = if stage.fits { "fits" } else { "too large" };
        text.push_str(&format!(
            "  {:<8} {:>10}   {batch:<10} {verdict}\n",
            stage.stage,
            human(stage.total_peak)
        ));
    }
    let helps = fit.stages.iter().find(|stage| stage.fits);
    let own = fit.stages.iter().find(|stage| stage.stage == job.stage).and_then(|stage| stage.largest_batch);
    text.push_str(&match (helps, own) {
        (Some(stage), _) => format!("Try: cargo run -p {} with the same flags.", stage.stage.package()),
        (None, Some(batch)) => format!("Try: --batch-size {batch}, with --grad-accum to make up for it."),
        (None, None) => {
            "Try: more ranks (--gpus), a shorter --seq-len, a smaller --model, or more --device-memory."
                .into()
        }
    });
    text
}
