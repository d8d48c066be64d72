//! Explains out-of-memory errors, predicted or real: what needs the memory, and the remedies.

use device::OutOfMemory;
use events::{Class, Place};
use planner::{Job, Moment, Prediction, Remedies, Remedy};
use settings::Failure;
use settings::size::human;

/// Lines of a screen. An error has at most so many.
const SCREEN: usize = 24;

/// Returns the failure of a run whose predicted peak exceeds a device's memory.
pub fn will_not_fit(job: &Job, prediction: &Prediction, capacity: u64) -> Failure {
    let has = format!("its device has {} (--device-memory)", human(capacity));
    Failure::OutOfMemory(with_remedies(foreseen(job, prediction, &has), job, capacity))
}

/// Returns the failure of a run whose ranks together need more than this machine has.
pub fn will_not_fit_the_machine(job: &Job, prediction: &Prediction, ranks: u64, memory: u64) -> Failure {
    let has = format!("{ranks} share this machine's {}", human(memory));
    let remedies = planner::remedies_in_shared_memory(job, memory / ranks);
    Failure::OutOfMemory(on_one_screen(foreseen(job, prediction, &has), &remedies, "a machine that has more"))
}

/// Describes what a rank would need, and what it `has`.
fn foreseen(job: &Job, prediction: &Prediction, has: &str) -> String {
    let (needs, peak) = (human(prediction.peak.total()), peak(prediction));
    format!("out of memory, foreseen: a rank of {} would need {needs}, and {has}\n\n{peak}", job.stage)
}

/// Returns the failure of a rank that ran out of memory in `moment`.
pub fn ran_out(job: &Job, prediction: &Prediction, oom: &OutOfMemory, moment: Moment) -> Failure {
    if oom.place == Place::Host {
        return Failure::OutOfMemory(ran_out_of_main_memory(prediction, oom, moment));
    }
    let happened = format!(
        "rank {} is out of memory in {moment}: it asked for {} of {}\n\n\
         Of its device's {}, {} are in use:\n{}\n{}",
        oom.rank,
        human(oom.requested),
        oom.class,
        human(oom.capacity),
        human(oom.live_total),
        in_use(&oom.live),
        peak(prediction),
    );
    Failure::OutOfMemory(with_remedies(happened, job, oom.capacity))
}

/// Describes a rank that asked for more main memory than it may take.
fn ran_out_of_main_memory(prediction: &Prediction, oom: &OutOfMemory, moment: Moment) -> String {
    let needed = prediction.ranks.iter().map(|rank| rank.place(Place::Host).total_peak).max();
    format!(
        "rank {} is out of main memory in {moment}: it asked for {} of {}\n\n\
         Of its {} (--host-memory), {} are in use:\n{}\n\
         The run needs {}. Give it more, or let less rest there: --offload-optimizer disk, --offload-parameters disk,\n\
         or smaller staging buffers: --offload-buffers 1, --sub-group-size 1000000.",
        oom.rank,
        human(oom.requested),
        oom.class,
        human(oom.capacity),
        human(oom.live_total),
        in_use(&oom.live),
        human(needed.unwrap_or(0)),
    )
}

/// Lists classes as `activations 9.20 MB, parameters 3.67 MB`, the largest first, wrapped.
fn in_use(live: &[u64]) -> String {
    let mut classes: Vec<_> = Class::ALL.iter().zip(live).filter(|(_, bytes)| **bytes > 0).collect();
    classes.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let words = classes.iter().map(|(class, bytes)| format!("{class} {}", human(**bytes)));
    wrapped(&words.collect::<Vec<_>>().join(", "))
}

/// Describes the moment of the peak, and its classes.
fn peak(prediction: &Prediction) -> String {
    let peak = &prediction.peak;
    format!("The run's peak of {} comes in {}:\n{}\n", human(peak.total()), peak.moment, in_use(&peak.live))
}

/// Wraps and indents a list.
fn wrapped(list: &str) -> String {
    let mut lines = vec![String::new()];
    for item in list.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if line.len() + item.len() <= 94 => line.push_str(item),
            _ => lines.push(item.into()),
        }
    }
    lines.iter().map(|line| format!("  {}\n", line.trim_end())).collect()
}

/// Describes what happened, and the planner's remedies with their savings, on one screen.
fn with_remedies(happened: String, job: &Job, capacity: u64) -> String {
    on_one_screen(happened, &planner::remedies(job, capacity), "more --device-memory")
}

/// Puts `happened` and `remedies` on one screen. `otherwise` is the advice if no remedy is enough,
/// beside a smaller model.
fn on_one_screen(happened: String, remedies: &Remedies, otherwise: &str) -> String {
    let (alone, capacity) = (&remedies.alone, remedies.capacity);
    if alone.is_empty() {
        return format!(
            "{happened}Nothing that a flag can change needs less: a smaller --model, or {otherwise}."
        );
    }
    let (heading, advice) = ("What would help, each alone", advice(remedies, otherwise));
    let heading = format!("{heading:<38} {:>9} {:>9}\n", "saves", "peak");
    let room = SCREEN.saturating_sub(happened.lines().count() + 1 + advice.lines().count());
    // As many rows as leave room for the others in short.
    let list = |rows: usize| {
        let (rows, others) = alone.split_at(rows);
        rows.iter().map(|remedy| row(remedy, capacity)).collect::<String>() + &others_in_short(others)
    };
    let fits = |list: &String| list.lines().count() <= room;
    let list = (0..=alone.len()).rev().map(list).find(fits).unwrap_or_else(|| others_in_short(alone));
    format!("{happened}{heading}{list}{advice}")
}

fn row(remedy: &Remedy, capacity: u64) -> String {
    let Remedy { how, costs, total_peak, saves } = remedy;
    let fits = if *total_peak <= capacity { "fits   " } else { "       " };
    format!("  {how:<36} {:>9} {:>9}  {fits}  {costs}\n", human(*saves), human(*total_peak))
}

/// Lists the remedies that save least, and how much.
fn others_in_short(remedies: &[Remedy]) -> String {
    let words = remedies.iter().map(|remedy| format!("{} ({})", remedy.how, human(remedy.saves)));
    let words = words.collect::<Vec<_>>().join(", ");
    if words.is_empty() { words } else { wrapped(&format!("and {words}")) }
}

/// Returns the last lines: what to try.
fn advice(remedies: &Remedies, otherwise: &str) -> String {
    if remedies.alone.iter().any(|remedy| remedy.total_peak <= remedies.capacity) {
        return "Try one that fits.".into();
    }
    match &remedies.together {
        Some((how, peak)) => {
            let together = wrapped(&how.join(", "));
            format!(
                "None is enough alone. Try together, for a peak of {}:\n{}",
                human(*peak),
                together.trim_end()
            )
        }
        None => format!("All of them together are not enough: a smaller --model, or {otherwise}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is said before, each remedy is named with what it saves: a row if there is room, or
    /// in short.
    #[test]
    fn no_remedy_is_cut_off() {
        for count in [1, 9, 14, 22] {
            let remedy = |saves: u64| {
                let how = format!("--flag-number-{saves} {saves}");
                Remedy { how, costs: "nothing", total_peak: 900 - saves, saves }
            };
            let alone: Vec<Remedy> = (1..=count).rev().map(remedy).collect();
            let text =
                on_one_screen("line\n".repeat(10), &Remedies { capacity: 1, alone, together: None }, "more");
            assert!(text.lines().count() <= SCREEN, "{text}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for saves in 1..=count {
                let how = format!("--flag-number-{saves} {saves}");
                let [row, short] = [format!("{how} {saves} B"), format!("{how} ({saves} B)")];
                assert!(words.contains(&row) || words.contains(&short), "{how} is missing in\n{text}");
            }
        }
    }
}
