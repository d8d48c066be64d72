//! A rank's computing time by kind of kernel, and how near products come to their limit.

use crate::kernels::UNTIMED;
use crate::report::Report;
use device::meter::Kind;
use events::say::time;

/// The time of kernels of one kind in a step of one rank, the mean of all ranks.
pub struct KernelShare {
    /// The kind.
    pub kind: Kind,
    /// Seconds.
    pub seconds: f64,
    /// Their share of all kernels' time.
    pub of_kernels: f64,
    /// GFLOP/s of products and attention; `None` for other kinds.
    pub gflops: Option<f64>,
    /// The share of the registers' limit that is reached; `None` if the limit was not measured.
    pub of_limit: Option<f64>,
}

impl KernelShare {
    /// Returns the kinds that `report`'s ranks used, the longest first.
    pub fn all(report: &Report) -> Vec<Self> {
        let all: f64 = report.kernels.iter().map(|row| row.seconds).sum();
        let steps = report.steps.len();
        let each = (report.world_size * if steps > UNTIMED { steps - UNTIMED } else { steps }) as f64;
        let share = |kind: Kind| {
            let rows = report.kernels.iter().filter(|row| row.kind == kind);
            let (seconds, flops) =
                rows.fold((0.0, 0), |(seconds, flops), row| (seconds + row.seconds, flops + row.flops));
            let gflops = (flops > 0).then(|| flops as f64 / seconds / 1e9);
            let limit = report.limit.as_ref().and_then(|limit| limit.of(kind));
            let of_limit = gflops.zip(limit).map(|(gflops, limit)| gflops / limit / report.threads as f64);
            KernelShare { kind, seconds: seconds / each, of_kernels: seconds / all, gflops, of_limit }
        };
        let mut shares: Vec<_> = Kind::ALL.map(share).into_iter().filter(|row| row.seconds > 0.0).collect();
        shares.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        shares
    }
}

/// Describes a rank's computing time by kind of kernel; empty if kernels were not timed.
pub(crate) fn kernels(report: &Report) -> String {
    let shares = KernelShare::all(report);
    if shares.is_empty() {
        return String::new();
    }
    let limit = report.limit.as_ref().map_or(String::new(), |limit| {
        let each = |gflops: f64| gflops / limit.threads as f64;
        let products = if limit.products_gflops == limit.f32_gflops {
            String::new()
        } else {
            format!(", {:.1} in bf16", each(limit.products_gflops))
        };
        let f32 = each(limit.f32_gflops);
        format!(" (limit: what a core multiplies in registers, {f32:.1} GFLOP/s{products})")
    });
    let mut text = format!("\nKernels, of one rank's step{limit}:\n");
    for KernelShare { kind, seconds, of_kernels, gflops, of_limit } in &shares {
        let (seconds, share) = (time(*seconds), 100.0 * of_kernels);
        let mut line = format!("  {kind:<24} {seconds:>9}  {share:>5.1} %");
        line.extend(gflops.map(|gflops| format!("  {gflops:>7.1} GFLOP/s")));
        line.extend(of_limit.map(|share| format!("  {:>3.0} % of the limit", 100.0 * share)));
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{KernelRow, LimitRow};
    use crate::samples::one_step;

    fn row(rank: usize, kind: Kind, seconds: f64, flops: u64) -> KernelRow {
        KernelRow { rank, kind, calls: 4, seconds, flops, bytes: 0 }
    }

    #[test]
    fn products_and_attention_stand_beside_their_limits() {
        let mut report = one_step("--gpus 2 --precision autocast --threads 2");
        assert_eq!(kernels(&report), "");
        report.kernels = [0, 1]
            .into_iter()
            .flat_map(|rank| {
                [
                    row(rank, Kind::Attention, 0.5, 10_000_000_000),
                    row(rank, Kind::Matmul, 1.25 + 0.5 * rank as f64, 120_000_000_000),
                    row(rank, Kind::Swiglu, 0.25, 0),
                    row(rank, Kind::AdamW, 0.0, 0),
                ]
            })
            .collect();
        report.limit = Some(LimitRow { threads: 4, products_gflops: 200.0, f32_gflops: 100.0 });
        insta::assert_snapshot!(kernels(&report));
    }
}
