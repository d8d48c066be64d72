//! Entries of a trace.

use events::Event;
use serde_json::{Value, json};
use std::cmp::Ordering;

/// The track of a rank's passes.
pub(super) const COMPUTE: u32 = 0;
/// The track of a rank's collectives.
pub(super) const COMMUNICATION: u32 = 1;
/// The track of the CPU's work on offloaded states. The tracks of transfers follow.
pub(super) const CPU: u32 = 2;

/// Returns the thread number under which a track of `rank` is shown. Perfetto identifies a thread
/// by its number alone, and treats 0 as the main thread, which has its process's number. So every
/// track has a unique number that no process has.
pub(super) fn thread(rank: u32, track: u32) -> u64 {
    (u64::from(rank) + 1) * 1_000_000 + u64::from(track)
}

/// Returns the entry that names a process or a track, or places it among others.
pub(super) fn metadata(kind: &str, rank: u32, track: u32, arguments: Value) -> Value {
    json!({ "ph": "M", "name": kind, "pid": rank, "tid": thread(rank, track), "args": arguments })
}

/// Returns the order of entries in the file: names first, then by time. Of spans that begin at the
/// same time the longest is first, and an arrow follows the spans that it binds to.
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    let time = |entry: &Value| entry["ts"].as_f64().unwrap_or(f64::NEG_INFINITY);
    let kind = |entry: &Value| match entry["ph"].as_str() {
        Some("X") => 0,
        Some("s") => 2,
        Some("f") => 3,
        _ => 1,
    };
    let length = |entry: &Value| entry["dur"].as_f64().unwrap_or(0.0);
    time(a).total_cmp(&time(b)).then(kind(a).cmp(&kind(b))).then(length(b).total_cmp(&length(a)))
}

pub(super) fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

/// Returns the entry of an instant event, of one process (`p`) or of all (`g`).
pub(super) fn instant(event: &Event, scope: &str, name: String, arguments: Value) -> Value {
    json!({
        "ph": "i", "s": scope, "name": name, "pid": event.rank, "tid": thread(event.rank, COMPUTE),
        "ts": microseconds(event.at), "args": arguments,
    })
}

/// Returns the entry of a span: its name and category, its rank and track, when it began and ended.
pub(super) fn complete(labels: [&str; 2], track: (u32, u32), span: (u64, u64), arguments: Value) -> Value {
    json!({
        "ph": "X", "name": labels[0], "cat": labels[1], "pid": track.0, "tid": thread(track.0, track.1),
        "ts": microseconds(span.0), "dur": microseconds(span.1.saturating_sub(span.0)), "args": arguments,
    })
}
