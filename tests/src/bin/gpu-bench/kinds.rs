//! GPU time of a step by kind of kernel, and how close each kind comes to its limit.

use crate::{Arguments, WARMUP};
use device::meter::Kind;
use report::KernelRow;
use tests::train_as;
use trainer::Report;

/// Kinds limited by arithmetic; the others are limited by memory.
const ARITHMETIC: [Kind; 2] = [Kind::Matmul, Kind::Attention];

/// Runs our first stage with metering and prints the table. `peak` is the GPU's peak in TFLOP/s,
/// `copies` its copy bandwidth in bytes per second.
pub(crate) fn table(
    arguments: &Arguments,
    micro_batch: usize,
    (peak, copies): (f64, f64),
) -> Result<(), String> {
    let stage = arguments.stages[0];
    let mut config = arguments.run(micro_batch, arguments.steps).map_err(|f| f.to_string())?;
    config.metered = true;
    let report = train_as(stage, config).map_err(|failure| failure.to_string())?;
    events::say!(
        "Where a step of {stage} goes, micro-batch {micro_batch}: the time of each kernel on the compute stream, measured by \
         events around it, which make the step slower. The limit of products and attention is {peak} TFLOP/s (attention \
         counts what the causal mask leaves), that of all others what the GPU's copies reach, each operand read or written once.\n"
    );
    print(&report, peak * 1e12, copies);
    Ok(())
}

fn print(report: &Report, peak: f64, copies: f64) {
    let counted =
        report.steps.iter().skip(if report.steps.len() > WARMUP as usize { WARMUP as usize } else { 0 });
    let (steps, seconds) = counted.fold((0.0, 0.0), |(n, seconds), row| (n + 1.0, seconds + row.seconds));
    events::say!("| kernels | of the step | ms per step | calls per step | TFLOP/s | GB/s | of its limit |");
    events::say!("|---|--:|--:|--:|--:|--:|--:|");
    let used = report.kernels.iter().filter(|row| row.rank == 0 && row.calls > 0);
    let mut computing = 0.0;
    for row in used {
        computing += if row.kind == Kind::Collectives { 0.0 } else { row.seconds };
        events::say!("{}", line(row, steps, seconds, peak, copies));
    }
    let idle = (seconds - computing).max(0.0);
    events::say!(
        "| none: waits for the host and for others | {:.1} % | {:.2} | | | | |\n",
        100.0 * idle / seconds,
        1e3 * idle / steps
    );
    if let Some(row) = report.gpu.first() {
        events::say!(
            "Launches and copies per step, all of them: {:.0}.\n",
            row.launches as f64 / report.steps.len() as f64
        );
    }
}

fn line(row: &KernelRow, steps: f64, seconds: f64, peak: f64, copies: f64) -> String {
    let rate = |amount: u64| amount as f64 / row.seconds.max(1e-12);
    let (arithmetic, flops) = (ARITHMETIC.contains(&row.kind), rate(row.flops));
    let share = if arithmetic { flops / peak } else { rate(row.bytes) / copies };
    let beside = if row.kind == Kind::Collectives { ", on their own stream" } else { "" };
    format!(
        "| {}{beside} | {:.1} % | {:.2} | {:.0} | {} | {:.0} | {:.0} % |",
        row.kind,
        100.0 * row.seconds / seconds,
        1e3 * row.seconds / steps,
        row.calls as f64 / steps,
        if arithmetic { format!("{:.0}", flops / 1e12) } else { String::new() },
        rate(row.bytes) / 1e9,
        100.0 * share,
    )
}
