//! The tables of a comparison, with a column per stage.

use super::steps::Steps;
use super::{Comparison, Outcome, Run};
use events::say::{grouped, time};
use events::{Class, Operation, Place};
use prediction::Stage;
use report::{Account, Report};
use settings::size::human;
use shell::table::Table;

pub(super) fn all(comparison: &Comparison) -> Vec<Table> {
    let mut tables = memory(comparison);
    if comparison.outcomes.iter().all(|outcome| outcome.run().is_none()) {
        return tables;
    }
    tables.push(costs(comparison));
    if !comparison.scaling.is_empty() {
        let base = comparison.config.world_size;
        tables.push(sweep(comparison, &comparison.scaling, Some(base), "tokens/s by ranks", speed));
        tables.push(sweep(comparison, &comparison.scaling, Some(base), "peak per rank by ranks", |r| {
            human(peak(r))
        }));
    }
    if !comparison.buckets.is_empty() {
        let title = |what: &str| format!("{what} by bucket");
        let buckets = &comparison.buckets;
        tables.push(sweep(comparison, buckets, None, &title("step"), step));
        tables.push(sweep(comparison, buckets, None, &title("exposed"), |r| time(exposed(r))));
        tables.push(sweep(comparison, buckets, None, &title("collectives"), |r| grouped(calls(r))));
        tables.push(sweep(comparison, buckets, None, &title("peak per rank"), |r| human(peak(r))));
    }
    tables
}

fn stages(comparison: &Comparison) -> impl Iterator<Item = Stage> + '_ {
    comparison.outcomes.iter().map(|outcome| outcome.stage)
}

/// Returns a cell per stage that ran, and a dash for the others.
fn cells(comparison: &Comparison, cell: impl Fn(&Report) -> String) -> Vec<String> {
    let outcomes = comparison.outcomes.iter();
    outcomes.map(|o| o.run().map_or("-".into(), |run| cell(&run.report))).collect()
}

/// Returns tables of the device's memory and, if used, of main memory and disk.
fn memory(comparison: &Comparison) -> Vec<Table> {
    let mut device = place(comparison, Place::Device, "peak bytes, largest rank");
    let verdict = comparison.outcomes.iter().map(|outcome| match outcome.run() {
        Some(run) if run.report.predictions_hold() => "yes",
        Some(_) => "NO",
        None => "too large",
    });
    device.row("as predicted, to the byte", verdict);
    let used = |place: Place| {
        let mut runs = comparison.outcomes.iter().filter_map(Outcome::run);
        comparison.config.offload.placement().any()
            && runs.any(|run| run.report.peak(place).is_some_and(|peak| peak > 0))
    };
    let beyond = [(Place::Host, "main memory, largest rank"), (Place::Disk, "disk, largest rank")];
    let beyond = beyond.into_iter().filter(|(at, _)| used(*at));
    std::iter::once(device).chain(beyond.map(|(at, title)| place(comparison, at, title))).collect()
}

/// Returns the peaks in one place, by class and in total.
fn place(comparison: &Comparison, place: Place, title: &str) -> Table {
    let mut table = Table::numbers(title, stages(comparison));
    let of_class = |report: &Report, class: Class| {
        let rows = report.memory.iter().filter(|r| r.place == place && r.class == class);
        rows.map(|row| row.peak_bytes).max().unwrap_or(0)
    };
    let used = |class: &&Class| {
        comparison.outcomes.iter().filter_map(Outcome::run).any(|run| of_class(&run.report, **class) > 0)
    };
    let show = |bytes: u64| if bytes == 0 { "-".into() } else { human(bytes) };
    for class in Class::ALL.iter().filter(used) {
        table.row(class.label(), cells(comparison, |report| show(of_class(report, *class))));
    }
    let total = comparison.outcomes.iter().map(|outcome| match &outcome.ran {
        Ok((run, _)) => show(run.report.peak(place).unwrap_or(0)),
        Err(needed) if place == Place::Device => human(*needed),
        Err(_) => show(0),
    });
    table.row("= at any one time", total);
    table
}

fn costs(comparison: &Comparison) -> Table {
    let mut table = Table::numbers("per step", stages(comparison));
    let mut row = |name: &str, cells: Vec<String>| table.row(name, cells);
    let of = |cell: &dyn Fn(&Report) -> String| cells(comparison, cell);
    let part = |part: fn(&Account) -> f64| of(&|report| time(part(&Account::of(report))));
    row("sent by a rank", of(&|report| human(sent(report) / report.steps.len().max(1) as u64)));
    row("collectives", of(&|report| grouped(calls(report))));
    let offloads = comparison.config.offload.placement().any();
    if offloads {
        row("moved between its places", stages(comparison).map(|stage| moved(comparison, stage)).collect());
    }
    row("time, median", of(&|report| time(Steps::of(report).seconds.median)));
    row("  spread of steps", of(&|report| format!("±{}", percent(Steps::of(report).seconds.width()))));
    row("tokens/s, median", of(&|report| grouped(tokens_per_second(report) as u64)));
    row("time, mean of all steps", part(|a| a.step));
    row("  computing", part(|a| a.forward + a.backward + a.recompute + a.optimizer));
    row("  exposed communication", of(&|report| time(exposed(report))));
    if comparison.config.link.is_some() {
        row("    of it for the link", part(|a| a.link));
    }
    row("  waiting for ranks", part(|a| a.peers));
    row("  waiting for a core", part(|a| a.without_core));
    if offloads {
        row("  waiting for transfers", part(|a| a.places));
    }
    let first = comparison.outcomes.iter().find_map(Outcome::run);
    row("first loss", of(&|report| loss(report.steps.first().map(|step| step.loss))));
    row("last loss", of(&|report| loss(report.steps.last().map(|step| step.loss))));
    let against = |report: &Report| first.map_or(String::new(), |first| equality(first, report));
    row("losses and weights", of(&against));
    table
}

/// Returns a table with a row per setting of a sweep. `base` is the setting of the main runs, which
/// also get a row.
fn sweep(
    comparison: &Comparison,
    runs: &[(usize, Run)],
    base: Option<usize>,
    title: &str,
    cell: impl Fn(&Report) -> String,
) -> Table {
    let mut table = Table::numbers(title, stages(comparison));
    let mut settings: Vec<Option<usize>> = runs.iter().map(|run| Some(run.0)).chain([base]).collect();
    settings.sort_unstable();
    settings.dedup();
    for setting in settings {
        let name = setting.map_or("default".into(), |setting| grouped(setting as u64));
        let main = setting == base;
        let of = |outcome: &Outcome| {
            let swept = runs.iter().find(|(at, run)| Some(*at) == setting && run.stage == outcome.stage);
            let run = if main { outcome.run() } else { swept.map(|swept| &swept.1) };
            run.map_or("-".into(), |run| cell(&run.report))
        };
        table.row(name, comparison.outcomes.iter().map(of).collect::<Vec<_>>());
    }
    table
}

/// Returns the peak device memory of the largest rank, in bytes.
pub(super) fn peak(report: &Report) -> u64 {
    report.peak(Place::Device).unwrap_or(0)
}

/// Returns the predicted bytes that a rank moves per step between device, main memory and disk. A
/// dash if no prediction is possible.
fn moved(comparison: &Comparison, stage: Stage) -> String {
    let predicted = settings::planned::predict(stage, &comparison.config);
    predicted.map_or("-".into(), |(_, run)| human(run.ranks[0].transfers.step.total_bytes()))
}

fn sent(report: &Report) -> u64 {
    report.traffic.iter().filter(|row| row.rank == 0).map(|row| row.bytes_sent).sum()
}

/// Returns the number of collectives per step that move data.
fn calls(report: &Report) -> u64 {
    let rows = report.traffic.iter().filter(|row| row.rank == 0 && row.operation != Operation::Scalars);
    rows.map(|row| row.calls).sum::<u64>() / report.steps.len().max(1) as u64
}

/// Returns the tokens per second of the median step.
pub(super) fn tokens_per_second(report: &Report) -> f64 {
    Steps::of(report).speed(report).median
}

fn step(report: &Report) -> String {
    let seconds = Steps::of(report).seconds;
    format!("{} ±{}", time(seconds.median), percent(seconds.width()))
}

fn percent(share: f64) -> String {
    let digits = usize::from(share < 0.01);
    format!("{:.digits$} %", 100.0 * share)
}

fn speed(report: &Report) -> String {
    let speed = Steps::of(report).speed(report);
    format!("{} ±{}", grouped(speed.median as u64), percent(speed.width()))
}

fn exposed(report: &Report) -> f64 {
    Account::of(report).exposed
}

fn loss(loss: Option<f64>) -> String {
    loss.map_or("-".into(), |loss| format!("{loss:.6}"))
}

/// Describes how a run's losses and weights compare with the first stage's.
fn equality(first: &Run, report: &Report) -> String {
    let reference = &first.report;
    if report.stage == reference.stage {
        return "reference".into();
    }
    let pairs = reference.steps.iter().zip(&report.steps);
    let apart = pairs.map(|(a, b)| (a.loss - b.loss).abs()).fold(0.0, f64::max);
    match (apart == 0.0, reference.weights_blake3 == report.weights_blake3) {
        (true, true) => "same bits".into(),
        (true, false) => "same losses".into(),
        _ => format!("≤ {apart:.0e} apart"),
    }
}
