//! Every stage over NCCL, against the same over copies.

use crate::parts::{Outcome, Part};
use crate::training::{apart, flags};
use crate::{Arguments, Finding};
use planner::Stage;
use tests::{STAGES, train};
use trainer::Failure;

/// A part per number of ranks and precision.
pub(crate) fn parts(arguments: &Arguments, bf16: bool) -> Vec<Part<'_>> {
    let worlds = [2, 4].into_iter().filter(|&world| world <= arguments.ranks);
    let wide = bf16.then_some((arguments.ranks, "bf16")).filter(|&(world, _)| world > 1);
    let part = |(world, precision)| {
        let what = format!("{precision}, {world} ranks over NCCL");
        Part::new(what.clone(), move || Ok::<_, String>(stages(arguments, &what, world, precision)))
    };
    worlds.map(|world| (world, "fp32")).chain(wide).map(part).collect()
}

/// Seconds that a rank waits for its peers: short enough that a rank that hangs is named before the
/// part's time is over.
const TIMEOUT: u32 = 20;

/// Compares all stages, up to the first that fails: if one times out, the next would too. Returns
/// one line with the reason if NCCL is missing or cannot connect as many ranks.
fn stages(arguments: &Arguments, what: &str, world: usize, precision: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for stage in STAGES {
        match compare(arguments, stage, world, precision) {
            Ok(finding) => findings.push(finding),
            Err(failure) => {
                let reason = failure.to_string();
                findings.push(match failure.code() {
                    // Nothing has run: this machine has no NCCL for these ranks.
                    2 => Finding::unchecked(what.into(), &reason),
                    _ => Finding::failed(format!("{what}: {stage}"), &reason),
                });
                break;
            }
        }
    }
    findings
}

fn compare(arguments: &Arguments, stage: Stage, world: usize, precision: &str) -> Result<Finding, Failure> {
    let flags = format!("{} --device cuda --timeout {TIMEOUT}", flags(arguments, world, precision));
    let nccl = train(stage, &format!("{flags} --collectives nccl"))?;
    let copies = train(stage, &flags)?;
    let (distance, near) = apart(precision, &copies, &nccl);
    let wrong = nccl.mispredictions();
    Ok(Finding {
        what: format!("{precision}, {world} ranks: {stage}, losses from copies'"),
        result: wrong.first().cloned().unwrap_or(distance),
        outcome: Outcome::from(near && wrong.is_empty()),
    })
}
