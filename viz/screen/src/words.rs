//! Formats numbers and names for the screen.

use events::header::UnitHeader;
use events::say::{self, scaled};
pub use events::say::{bytes, digits, grouped};
use events::{Pass, RunHeader, UnitSet};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The maximum number of runs of neighbours that units are named by.
const RUNS_NAMED: usize = 2;

/// Formats bytes in at most four columns: `4.7M`, `919k`.
pub fn short_bytes(bytes: u64) -> String {
    let (value, unit) = scaled(bytes);
    match unit {
        "" => format!("{bytes}B"),
        _ if value < 9.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

/// Formats round bytes for a scale: `5M`, `2.5G`.
pub fn round_bytes(bytes: u64) -> String {
    short_bytes(bytes).replacen(".0", "", 1)
}

/// Formats a count, with a decimal unit if it is large: `9,901`, `20.5k`, `6.74B`.
pub fn count(value: f64) -> String {
    match value {
        v if v >= 999_500_000.0 => format!("{}B", digits(v / 1e9)),
        v if v >= 999_500.0 => format!("{}M", digits(v / 1e6)),
        v if v >= 9_995.0 => format!("{}k", digits(v / 1e3)),
        v => grouped(v.max(0.0).round() as u64),
    }
}

/// Formats nanoseconds: `3.42 ms`, `128 µs`, `1.20 s`, `0.05 µs`.
pub fn time(nanoseconds: u64) -> String {
    match nanoseconds {
        0 => "0".into(),
        1..1000 => format!("{:.2} µs", nanoseconds as f64 / 1e3),
        _ => say::nanoseconds(nanoseconds as f64),
    }
}

/// Formats an age: `7 s`, `12 min`, `3 h 20 min`.
pub fn age(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=59 => format!("{seconds} s"),
        seconds @ 60..=3599 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats round nanoseconds for a scale: `5 ms`, `200 µs`, `1.5 s`.
pub fn round_time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        n if n >= 1e9 => (n / 1e9, "s"),
        n if n >= 1e6 => (n / 1e6, "ms"),
        n => (n / 1e3, "µs"),
    };
    format!("{} {unit}", (value * 1000.0).round() / 1000.0)
}

/// Formats the share of `part` in `whole`: `37 %`, `0.4 %`. It is 0 if `whole` is.
pub fn percent(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { part / whole * 100.0 } else { 0.0 };
    if share > 0.0 && share < 9.95 { format!("{share:.1} %") } else { format!("{share:.0} %") }
}

/// Returns the smallest round number (1, 2 or 5 times a power of ten) from `value` on, for scales.
pub fn round_step(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let multiples = [1.0, 2.0, 5.0, 10.0].map(|multiple| multiple * power);
    multiples.into_iter().find(|&multiple| multiple >= value * 0.999).unwrap_or(10.0 * power)
}

/// True if a simulated link delays the run's communication, or its transfers between places.
pub fn simulated(header: &RunHeader) -> bool {
    header.device.contains("simulated")
}

/// True if a simulated link delays the run's transfers between places.
pub fn simulated_transfers(header: &RunHeader) -> bool {
    header.device.contains("simulated link to ")
}

/// True if a simulated link delays the run's communication.
pub fn simulated_communication(header: &RunHeader) -> bool {
    header.device.contains("simulated link (")
}

/// Returns the name of a unit.
pub fn unit(header: &RunHeader, unit: u16) -> &str {
    header.units.get(usize::from(unit)).map_or("?", |unit: &UnitHeader| unit.name.as_str())
}

/// Returns the names of units: `block 2`, `block 2 to head` or, if others lie between them,
/// `embeddings, block 2 to block 3 and 2 more`.
pub fn units(header: &RunHeader, units: &UnitSet) -> String {
    let run = |run: RangeInclusive<u16>| match (unit(header, *run.start()), unit(header, *run.end())) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first} to {last}"),
    };
    let named = units.runs().take(RUNS_NAMED).map(run).collect::<Vec<_>>().join(", ");
    match units.runs().skip(RUNS_NAMED).map(|run| run.len()).sum::<usize>() {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Returns the name of a pass on the screen.
pub fn pass(pass: Pass) -> &'static str {
    match pass {
        Pass::Step => "update",
        other => other.label(),
    }
}
