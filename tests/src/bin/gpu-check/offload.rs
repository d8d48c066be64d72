//! Stages whose states rest in main memory or on disk, against the same with everything on the GPU.

use crate::parts::{Outcome, Part};
use crate::training::{flags, same};
use crate::{Arguments, Finding};
use planner::Stage;
use tests::train;
use trainer::Report;

/// What may rest beyond the GPU, by the stages that are checked with it.
const CASES: [(Stage, &str); 6] = [
    (Stage::Ddp, "--offload-optimizer cpu"),
    (Stage::Zero1, "--offload-optimizer disk"),
    (Stage::Zero2, "--offload-optimizer cpu --sub-group-size 5000"),
    (Stage::Zero3, "--offload-optimizer cpu --offload-parameters cpu"),
    (Stage::Zero3, "--offload-optimizer disk --offload-parameters disk"),
    (Stage::Zero3, "--offload-parameters cpu --checkpoint-activations block --offload-activations cpu"),
];

/// A part per case and precision.
pub(crate) fn parts(arguments: &Arguments, bf16: bool) -> Vec<Part<'_>> {
    let precisions = ["fp32"].into_iter().chain(bf16.then_some("bf16"));
    let cases = precisions.flat_map(|precision| CASES.map(|(stage, case)| (precision, stage, case)));
    let part = |(precision, stage, case): (&'static str, Stage, &'static str)| {
        let what = format!("{precision}, {stage}: {}", case.replace("--offload-", ""));
        Part::new(what.clone(), move || check(arguments, &what, precision, (stage, case)))
    };
    cases.map(part).collect()
}

/// Trains with and without: the same is learnt, and what moves is what was predicted.
fn check(
    arguments: &Arguments,
    what: &str,
    precision: &str,
    (stage, case): (Stage, &str),
) -> Result<Vec<Finding>, String> {
    let run = |more: &str| -> Result<Report, String> {
        let flags = flags(arguments, arguments.ranks.min(2), precision);
        train(stage, &format!("{flags} --device cuda {more}"))
            .map_err(|failure| format!("{stage} {more}: {failure}"))
    };
    let (plain, away) = (run("")?, run(case)?);
    let moved: u64 = away.transfers.iter().map(|row| row.bytes).sum();
    let wrong = away.mispredictions();
    let learnt = Finding {
        what: format!("{what}, bits"),
        result: away.weights_blake3[..16].into(),
        outcome: Outcome::from(same(&plain, &away)),
    };
    let predicted = Finding {
        what: format!("{what}, bytes"),
        result: wrong.first().cloned().unwrap_or_else(|| format!("as predicted, {moved} moved by all ranks")),
        outcome: Outcome::from(wrong.is_empty() && moved > 0),
    };
    Ok(vec![learnt, predicted])
}
