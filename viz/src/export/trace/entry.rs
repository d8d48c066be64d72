//! Entries of a trace.

use serde_json::{Value, json};

/// The track of a rank's passes.
pub(super) const COMPUTE: u32 = 0;
/// The track of a rank's collectives. The tracks of its transfers follow.
pub(super) const COMMUNICATION: u32 = 1;

/// Returns the entry that names a process or a track.
pub(super) fn named(kind: &str, rank: u32, track: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": kind, "pid": rank, "tid": track, "args": { "name": name } })
}

pub(super) fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

/// Returns the entry of a span.
pub(super) fn complete(
    name: &str,
    category: &str,
    (rank, track): (u32, u32),
    from: u64,
    to: u64,
    arguments: Value,
) -> Value {
    json!({
        "ph": "X", "name": name, "cat": category, "pid": rank, "tid": track,
        "ts": microseconds(from), "dur": microseconds(to.saturating_sub(from)), "args": arguments,
    })
}
