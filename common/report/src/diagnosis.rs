//! Explains how a finished run spent its time, and which changes would make it faster.

use crate::account::{Account, Recomputed, computed, training};
use crate::kernel_shares::kernels;
use crate::report::Report;
use crate::rows::TimeRow;
use crate::speedups::speedups;
use events::Route;
use events::say::{counted, time};
use settings::size::human;

/// Minimum share of a step that a listed change saves.
const NOTABLE: f64 = 0.01;
/// Characters of a bar that stands for the whole step.
const BAR: f64 = 30.0;

/// Returns the whole explanation, for a terminal.
pub fn diagnosis(report: &Report) -> String {
    if let Some(error) = &report.error {
        let done = counted(report.steps.len(), "step", "steps");
        return format!("The run failed after {done}; its report has no times to explain.\n{error}\n");
    }
    if report.steps.is_empty() || report.time.is_empty() {
        return "The run has finished no step: there is nothing to explain.\n".into();
    }
    let account = Account::of(report);
    let mut text = heading(report, &account);
    for (name, seconds) in account.rows().into_iter().filter(|row| row.1 >= 0.0005 * account.step) {
        text.push_str(&row(name, seconds, account.step));
    }
    text.push_str(&speed(report, &account));
    text.extend(Recomputed::of(report).map(|recomputed| recomputation(&recomputed)));
    text.push_str(&kernels(report));
    text.push_str(&offload_waits(report));
    text.push_str(&slowest(report, &account));
    text + &speedup_table(report, &account)
}

fn heading(report: &Report, account: &Account) -> String {
    let link =
        report.link.as_ref().map(|link| format!(" · SIMULATED link ({})", link.name)).unwrap_or_default();
    format!(
        "{} · {} · {} · {} of {} × {} tokens{link}\n\
         A step takes {}, the mean of {}. Where a rank's time goes, the mean of all ranks:\n\n",
        report.stage,
        report.model.name,
        counted(report.world_size, "rank", "ranks"),
        counted(report.model.micro_batches, "micro-batch", "micro-batches"),
        report.model.batch_size,
        report.model.sequence_length,
        time(account.step),
        report.steps.len(),
    )
}

fn row(name: &str, seconds: f64, step: f64) -> String {
    let share = seconds / step;
    let bar = "█".repeat((share.min(1.0) * BAR).round() as usize);
    let line = format!("  {name:<24} {:>9}  {:>5.1} %  {bar}", time(seconds), 100.0 * share);
    format!("{}\n", line.trim_end())
}

/// Describes how many operations a rank does per second. With a GPU the phases are the host's, so
/// only the whole step says that.
fn speed(report: &Report, account: &Account) -> String {
    let model = &report.model;
    let tokens = (model.micro_batches * model.batch_size * model.sequence_length) as f64;
    let operations = tokens * report.throughput.flops_per_token as f64 / 1e9;
    let over_step = operations / account.step;
    if report.gpu.is_empty() {
        format!(
            "\nA rank computes forward and backward for {:.0} % of a step, at {:.1} GFLOP/s; over the whole step it does \
             {over_step:.1}.\n",
            100.0 * account.useful() / account.step,
            operations / account.useful(),
        )
    } else {
        format!(
            "\nThese are the host's seconds: it queues the GPU's work, and waits only where it needs a result.\n\
             Over the whole step a rank does {over_step:.1} GFLOP/s.\n"
        )
    }
}

fn recomputation(recomputed: &Recomputed) -> String {
    format!(
        "Computed again, of forward and backward: {:.1} % of the FLOPs predicted ({}), {:.1} % of the time measured ({}).\n",
        100.0 * recomputed.of_operations,
        recomputed.operations(),
        100.0 * recomputed.of_seconds,
        time(recomputed.seconds),
    )
}

/// Describes for which routes between places a rank waits, and for how much of a step.
fn offload_waits(report: &Report) -> String {
    let words = Route::ALL.iter().filter_map(|&route| {
        let (bytes, seconds) = report.moved_and_waited(route);
        let (waited, moved) = (time(seconds), human(bytes as u64));
        (seconds > 0.0).then(|| format!("  {route:<12} {waited:>9} of a step waiting, {moved} moved\n"))
    });
    let words: String = words.collect();
    if words.is_empty() { words } else { format!("\nOffload transfers of one rank (mean):\n{words}") }
}

/// Describes the rank that other ranks wait for; empty if none is clearly slower.
fn slowest(report: &Report, account: &Account) -> String {
    let rows = &report.time;
    let computed = |row: &TimeRow| computed(report, row);
    let Some(slow) = rows.iter().max_by(|a, b| computed(a).total_cmp(&computed(b))) else {
        return String::new();
    };
    let others = rows.iter().filter(|row| row.rank != slow.rank);
    let mean = others.clone().map(computed).sum::<f64>() / (rows.len() - 1).max(1) as f64;
    if rows.len() < 2 || computed(slow) < 1.05 * mean || account.peers < NOTABLE * account.step {
        return String::new();
    }
    let steps = report.steps.len() as f64;
    let waited =
        others.map(|row| training(&row.clocks.for_peers)).sum::<f64>() / (rows.len() - 1) as f64 / steps;
    format!(
        "Rank {} computes for {}, {:.0} % longer than the others' mean; they wait {} of a step for their peers.\n",
        slow.rank,
        time(computed(slow) / steps),
        100.0 * (computed(slow) / mean - 1.0),
        time(waited),
    )
}

fn speedup_table(report: &Report, account: &Account) -> String {
    let mut speedups = speedups(report);
    speedups.retain(|speedup| speedup.seconds >= NOTABLE * account.step);
    let unknown = match report.communication {
        Some(_) => "",
        None => "Remedies for traffic are unknown: the report is older than the settings in it.\n",
    };
    if speedups.is_empty() {
        return format!("\nNo change of flags, link or offload would save 1 % of a step.\n{unknown}");
    }
    let mut text = String::from("\nWhat would help, each alone, at most (of a step)\n");
    for speedup in speedups {
        let share = 100.0 * speedup.seconds / account.step;
        text.push_str(&format!(
            "  {:>9}  {share:>5.1} %  {}: {}\n",
            time(speedup.seconds),
            speedup.how,
            speedup.why
        ));
    }
    text + unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::waiting;

    /// Returns a run of two ranks, of which the second computes longer, on a link that takes most
    /// of the step.
    fn slow_link() -> Report {
        waiting("--gpus 2 --link 1ms,20MB/s --checkpoint-activations block")
    }

    #[test]
    fn a_run_on_a_slow_link() {
        insta::assert_snapshot!(diagnosis(&slow_link()));
    }

    #[test]
    fn a_run_without_steps_has_nothing_to_explain() {
        let mut report = slow_link();
        report.steps.clear();
        assert!(diagnosis(&report).contains("no step"));
    }
}
