//! Explains out-of-memory errors, predicted or real: which classes need the memory, and the
//! remedies.

use device::OutOfMemory;
use events::say::{counted, grouped};
use events::{Class, Place};
use prediction::{Job, Limits, Moment, Prediction, RankPrediction, Remedies, Remedy, Room};
use settings::machine::MainMemory;
use settings::size::human;
use settings::{Failure, Result};

/// Lines of a screen: an error has at most this many.
const SCREEN: usize = 24;

/// Refuses a run whose predicted peak exceeds `limits`.
///
/// # Errors
/// A failure that says where memory is short, for which classes, and which changes would help.
pub fn check(job: &Job, prediction: &Prediction, limits: Limits) -> Result<()> {
    for place in Place::ALL {
        let peak = prediction.ranks[0].place(place).total_peak;
        let Some(capacity) = limits[place.index()].filter(|&capacity| peak > capacity) else { continue };
        let [needs, holds] = told_apart(peak, capacity);
        let has = match place {
            Place::Device => format!(", and its device has {holds} (--device-memory)"),
            _ => format!(" of {}, and it has {holds} (--host-memory)", name(place)),
        };
        let happened = foreseen(job, &needs, &has) + &self::peak(prediction, place);
        return Err(Failure::OutOfMemory(with_remedies(happened, job, Room::of(place, capacity, limits))));
    }
    Ok(())
}

/// The main memory of one machine, and the ranks there.
pub struct Machine<'a> {
    /// The memory that the ranks may use together.
    pub memory: &'a MainMemory,
    /// Number of ranks on the machine.
    pub ranks: usize,
    /// The number of one of these ranks.
    pub rank: usize,
    /// True if the ranks' devices are not part of main memory.
    pub on_gpus: bool,
}

impl Machine<'_> {
    /// Returns the bytes that `rank` needs of main memory.
    fn needs(&self, rank: &RankPrediction) -> u64 {
        let device = if self.on_gpus { 0 } else { rank.memory.total_peak };
        device.saturating_add(rank.host.total_peak)
    }

    /// Returns the bytes that all ranks of the machine need. If other machines have ranks too, it
    /// is not known which ranks are on this one: all but `rank` count as the smallest.
    fn needs_together(&self, prediction: &Prediction) -> u64 {
        let each = || prediction.ranks.iter().map(|rank| self.needs(rank));
        let others = self.ranks.saturating_sub(1) as u64;
        if self.ranks == prediction.ranks.len() {
            each().fold(0, u64::saturating_add)
        } else {
            each()
                .min()
                .unwrap_or(0)
                .saturating_mul(others)
                .saturating_add(prediction.ranks.get(self.rank).map_or(0, |rank| self.needs(rank)))
        }
    }

    /// Describes the memory that the ranks may use.
    fn has(&self) -> String {
        let bytes = human(self.memory.bytes);
        match &self.memory.limit {
            None => format!("it has {bytes}"),
            Some(file) => format!("{} allows {bytes}", file.display()),
        }
    }

    /// Returns the advice if no remedy is enough.
    fn otherwise(&self) -> &'static str {
        match self.memory.limit {
            None => "a machine that has more",
            Some(_) => "a higher limit (docker run --memory, sbatch --mem, resources.limits.memory)",
        }
    }
}

/// Refuses a run whose ranks together need more than their `machine`'s memory. `limits` bound the
/// remedies.
///
/// # Errors
/// A failure that says for which classes memory is short, and which changes would help.
pub fn check_machine(
    job: &Job,
    prediction: &Prediction,
    machine: &Machine<'_>,
    limits: Limits,
) -> Result<()> {
    let needs = machine.needs_together(prediction);
    if needs <= machine.memory.bytes {
        return Ok(());
    }
    let ranks = counted(machine.ranks, "rank", "ranks");
    let most = prediction.ranks.iter().map(|rank| machine.needs(rank)).max().unwrap_or(0);
    let happened = format!(
        "training would run out of memory: this machine's {ranks} of {} would need {}, and {}\n\n\
         A rank needs up to {} of it.\n",
        job.stage,
        human(needs),
        machine.has(),
        human(most)
    );
    let share = machine.memory.bytes / machine.ranks.max(1) as u64;
    let (place, room) = if machine.on_gpus {
        (Place::Host, Room::of(Place::Host, share, limits))
    } else {
        (Place::Device, Room::shared(share, limits))
    };
    let remedies = prediction::remedies(room, job);
    Err(Failure::OutOfMemory(on_one_screen(
        happened + &peak(prediction, place),
        &remedies,
        machine.otherwise(),
    )))
}

/// Says what a rank would need, and what it `has`.
fn foreseen(job: &Job, needs: &str, has: &str) -> String {
    format!("training would run out of memory: a rank of {} would need {needs}{has}\n\n", job.stage)
}

/// Returns both numbers of bytes in words: rounded, unless they would then read alike.
fn told_apart(one: u64, other: u64) -> [String; 2] {
    if human(one) == human(other) {
        [one, other].map(|bytes| format!("{} bytes", grouped(bytes)))
    } else {
        [human(one), human(other)]
    }
}

/// Returns the failure of a rank that ran out of memory in `moment`.
pub fn ran_out(
    job: &Job,
    prediction: &Prediction,
    (oom, moment): (&OutOfMemory, Moment),
    limits: Limits,
) -> Failure {
    let has = if oom.by_system {
        format!(", and the system gives no more\n\nOf its {}", name(oom.place))
    } else {
        format!("\n\nOf its {}'s {}", name(oom.place), human(oom.capacity))
    };
    let classes = if oom.live_total > 0 { format!(":\n{}", in_use(&oom.live)) } else { ".".to_string() };
    let happened = format!(
        "rank {} is out of {} in {moment}: it asked for {} of {}{has}, {} are in use{classes}\n{}",
        oom.rank,
        if oom.place == Place::Device { "memory" } else { name(oom.place) },
        human(oom.requested),
        oom.class,
        human(oom.live_total),
        peak(prediction, oom.place),
    );
    let capacity = if oom.by_system { oom.live_total } else { oom.capacity };
    let room = Room::of(oom.place, capacity, limits);
    Failure::OutOfMemory(if oom.by_system {
        on_one_screen(happened, &prediction::remedies(room, job), SYSTEM)
    } else {
        with_remedies(happened, job, room)
    })
}

/// The advice if the system gives too little memory and no remedy is enough.
const SYSTEM: &str = "a higher limit (ulimit -v, docker run --memory, sbatch --mem)";

/// Returns the name of `place` in messages.
fn name(place: Place) -> &'static str {
    match place {
        Place::Device => "device",
        Place::Host => "main memory",
        Place::Disk => "disk",
    }
}

/// Lists classes as `activations 9.20 MB, parameters 3.67 MB`, the largest first, wrapped.
fn in_use(live: &[u64]) -> String {
    let mut classes: Vec<_> = Class::ALL.iter().zip(live).filter(|(_, bytes)| **bytes > 0).collect();
    classes.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let words = classes.iter().map(|(class, bytes)| format!("{class} {}", human(**bytes)));
    wrapped(&words.collect::<Vec<_>>().join(", "))
}

/// Describes the moment of the device's peak and its classes then, or another place's classes,
/// each at its own peak.
fn peak(prediction: &Prediction, place: Place) -> String {
    if place != Place::Device {
        let memory = prediction.ranks[0].place(place);
        let (total, classes) = (human(memory.total_peak), in_use(&memory.peaks));
        return format!("The run's peak in {} is {total}. Each class at its own:\n{classes}\n", name(place));
    }
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

/// Describes the failure, and the planner's remedies with their savings, on one screen.
fn with_remedies(happened: String, job: &Job, room: Room) -> String {
    let otherwise = match room.place {
        Some(Place::Host) => "more --host-memory",
        Some(Place::Disk) => "a larger disk",
        Some(Place::Device) | None => "more --device-memory",
    };
    on_one_screen(happened, &prediction::remedies(room, job), otherwise)
}

/// Puts `happened` and `remedies` on one screen. `otherwise` is the advice if no remedy is enough,
/// in addition to a smaller model.
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
    // List as many rows as leave room for the other remedies in short form.
    let list = |rows: usize| {
        let (rows, others) = alone.split_at(rows);
        rows.iter().map(|remedy| row(remedy, capacity)).collect::<String>() + &others_in_short(others)
    };
    let fits = |list: &String| list.lines().count() <= room;
    let list = (0..=alone.len()).rev().map(list).find(fits).unwrap_or_else(|| others_in_short(alone));
    format!("{happened}{heading}{list}{advice}")
}

/// Returns a remedy's row. Flags that are longer than their column have a line of their own.
fn row(remedy: &Remedy, capacity: u64) -> String {
    let Remedy { how, costs, total_peak, saves, moves } = remedy;
    let fits = if *total_peak <= capacity { "fits   " } else { "       " };
    let moves = if *moves > 0 { format!("; moves {} a step", human(*moves)) } else { String::new() };
    let how = if how.len() > 36 { format!("{how}\n{:38}", "") } else { format!("{how:<36}") };
    format!("  {how} {:>9} {:>9}  {fits}  {costs}{moves}\n", human(*saves), human(*total_peak))
}

/// Lists the remedies that save least, with the bytes that they save.
fn others_in_short(remedies: &[Remedy]) -> String {
    let words = remedies.iter().map(|remedy| format!("{} ({})", remedy.how, human(remedy.saves)));
    let words = words.collect::<Vec<_>>().join(", ");
    if words.is_empty() { words } else { wrapped(&format!("and {words}")) }
}

/// Returns the last lines: the advice.
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
mod tests;
