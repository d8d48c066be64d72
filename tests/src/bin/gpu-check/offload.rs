//! Compares stages that keep states in main memory or on disk with stages that keep everything on
//! the GPU.

use crate::parts::{Outcome, Part};
use crate::training::{flags, same};
use crate::{Arguments, Finding};
use prediction::Stage;
use tests::train;
use trainer::Report;

/// Placements beyond the GPU, with the stages that are checked with them.
const CASES: [(Stage, &str); 6] = [
    (Stage::Ddp, "--offload-optimizer cpu"),
    (Stage::Zero1, "--offload-optimizer disk"),
    (Stage::Zero2, "--offload-optimizer cpu --sub-group-size 5000"),
    (Stage::Zero3, "--offload-optimizer cpu --offload-parameters cpu"),
    (Stage::Zero3, "--offload-optimizer disk --offload-parameters disk"),
    (Stage::Zero3, "--offload-parameters cpu --checkpoint-activations block --offload-activations cpu"),
];

/// Returns a part per case and precision.
pub(crate) fn parts(arguments: &Arguments, bf16: bool) -> Vec<Part<'_>> {
    let precisions = ["fp32"].into_iter().chain(bf16.then_some("bf16"));
    let cases = precisions.flat_map(|precision| CASES.map(|(stage, case)| (precision, stage, case)));
    let part = |(precision, stage, case): (&'static str, Stage, &'static str)| {
        let what = format!("{precision}, {stage}: {}", case.replace("--offload-", ""));
        Part::new(what.clone(), move || check(arguments, &what, precision, (stage, case)))
    };
    cases.map(part).collect()
}

/// Trains with and without offload. Both must learn the same, and the bytes moved must match the
/// prediction.
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
