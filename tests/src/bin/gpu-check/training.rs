//! Every stage on the GPU, against the CPU, the other stages, and itself.

use crate::{Arguments, Finding};
use planner::Stage;
use tests::{STAGES, largest_difference, losses, mispredictions, train};
use trainer::Report;

/// How far losses in f32 may be from the CPU's.
pub(crate) const F32: f64 = 1e-4;

/// How far losses in bf16 may be from the CPU's, relative to them.
pub(crate) const BF16: f64 = 0.02;

/// All runs. One that fails costs what is compared with it, not the rest.
pub(crate) fn check(arguments: &Arguments, bf16: bool) -> Vec<Finding> {
    let worlds = [1, 2, 4].into_iter().filter(|&world| world <= arguments.ranks);
    let wide = bf16.then_some((arguments.ranks, "bf16"));
    let runs = worlds.map(|world| (world, "fp32")).chain(wide);
    let findings = |(world, precision)| {
        let what = format!("{precision}, {world} ranks");
        stages(arguments, world, precision).unwrap_or_else(|reason| vec![Finding::failed(what, &reason)])
    };
    runs.flat_map(findings).collect()
}

fn stages(arguments: &Arguments, world: usize, precision: &str) -> Result<Vec<Finding>, String> {
    let Arguments { model, steps, sequences, seq_len, .. } = arguments;
    let flags = format!(
        "--model {model} --gpus {world} --batch-size {} --seq-len {seq_len} --steps {steps} --precision {precision}",
        sequences / world
    );
    let run = |stage: Stage, device: &str| {
        train(stage, &format!("{flags} --device {device}")).map_err(|failure| format!("{stage}: {failure}"))
    };
    let cpu = run(Stage::Ddp, "cpu")?;
    let reports: Vec<Report> =
        STAGES.into_iter().map(|stage| run(stage, "cuda")).collect::<Result<_, _>>()?;
    let what = |check: &str| format!("{precision}, {world} ranks: {check}");
    let mut findings: Vec<Finding> =
        reports.iter().map(|report| follows(&cpu, report, world, precision)).collect();
    findings.push(Finding {
        what: what("stages agree bit for bit"),
        result: reports[0].weights_blake3[..16].into(),
        holds: reports.iter().all(|report| same(report, &reports[0])),
    });
    let again = run(Stage::Zero3, "cuda")?;
    findings.push(Finding {
        what: what("ZeRO-3 again"),
        result: again.weights_blake3[..16].into(),
        holds: reports.last().is_some_and(|report| same(report, &again)),
    });
    let wrong: Vec<String> = reports.iter().flat_map(mispredictions).collect();
    findings.push(Finding {
        what: what("predicted bytes are measured bytes"),
        result: wrong.first().cloned().unwrap_or_else(|| "in every class and operation".into()),
        holds: wrong.is_empty(),
    });
    Ok(findings)
}

/// How closely a stage's losses follow the CPU's.
fn follows(cpu: &Report, report: &Report, world: usize, precision: &str) -> Finding {
    let apart = largest_difference(&losses(cpu), &losses(report));
    let allowed = if precision == "fp32" { F32 } else { BF16 * losses(cpu)[0] };
    Finding {
        what: format!("{precision}, {world} ranks: {}, losses from the CPU's", report.stage),
        result: format!("{apart:.1e} (at most {allowed:.0e})"),
        holds: apart <= allowed,
    }
}

fn same(a: &Report, b: &Report) -> bool {
    losses(a) == losses(b) && a.weights_blake3 == b.weights_blake3
}
