//! Compares every stage, and groups of neighbours, over NCCL with the same over copies.

use crate::parts::{Outcome, Part};
use crate::training::{apart, flags};
use crate::{Arguments, Finding};
use prediction::Stage;
use tests::{STAGES, train};
use trainer::Failure;

/// Returns a part per number of ranks and precision.
pub(crate) fn parts(arguments: &Arguments, bf16: bool) -> Vec<Part<'_>> {
    let worlds = [2, 4].into_iter().filter(|&world| world <= arguments.ranks);
    let wide = bf16.then_some((arguments.ranks, "bf16")).filter(|&(world, _)| world > 1);
    let part = |(world, precision)| {
        let what = format!("{precision}, {world} ranks over NCCL");
        Part::new(what.clone(), move || {
            Ok::<_, String>(compare_all(
                arguments,
                &what,
                &STAGES.map(|stage| (stage, "")),
                (world, precision),
            ))
        })
    };
    let groups = (arguments.ranks > 2).then(|| {
        let what = format!("fp32, {} ranks over NCCL, in groups of 2", arguments.ranks);
        Part::new(what.clone(), move || {
            Ok::<_, String>(compare_all(arguments, &what, &GROUPS, (arguments.ranks, "fp32")))
        })
    });
    worlds.map(|world| (world, "fp32")).chain(wide).map(part).chain(groups).collect()
}

/// Cases that split communicators.
const GROUPS: [(Stage, &str); 2] = [
    (Stage::Zero3, "--strategy hybrid-shard --shard-group-size 2"),
    (Stage::Zero3, "--secondary-shard-size 2"),
];

/// Seconds that a rank waits for its peers. A rank that hangs is then named before the part's time
/// limit.
const TIMEOUT: u32 = 20;

/// Compares all `cases` of a stage and further flags, up to the first that fails: if one times out,
/// the next would too. Returns a single line with the reason if NCCL is missing or cannot connect
/// the ranks.
fn compare_all(
    arguments: &Arguments,
    what: &str,
    cases: &[(Stage, &str)],
    (world, precision): (usize, &str),
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for &(stage, more) in cases {
        match compare(arguments, (stage, more), (world, precision)) {
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

fn compare(
    arguments: &Arguments,
    (stage, more): (Stage, &str),
    (world, precision): (usize, &str),
) -> Result<Finding, Failure> {
    let flags = flags(arguments, world, precision);
    let flags = format!("{flags} --device cuda --timeout {TIMEOUT} {more}");
    let nccl = train(stage, &format!("{flags} --collectives nccl"))?;
    let copies = train(stage, &flags)?;
    let (distance, near) = apart(precision, &copies, &nccl);
    let wrong = nccl.mispredictions();
    Ok(Finding {
        what: format!("{precision}, {world} ranks: {stage}{}, losses from copies'", short(more)),
        result: wrong.first().cloned().unwrap_or(distance),
        outcome: Outcome::from(near && wrong.is_empty()),
    })
}

/// Returns a short name of `flags`, for a table row.
fn short(flags: &str) -> String {
    let name = flags.split_whitespace().find(|word| *word != "--strategy");
    name.map_or(String::new(), |name| format!(", {}", name.trim_start_matches("--")))
}
