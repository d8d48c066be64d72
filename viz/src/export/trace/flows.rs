//! Arrows between ranks: from the last rank to issue a collective, for which the others waited, to
//! each of them.

use super::entry::{COMMUNICATION, microseconds, thread};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One rank's part in a collective.
pub(super) struct Part {
    pub(super) rank: u32,
    /// When the rank issued it.
    pub(super) issued: u64,
    /// Its entry in the trace.
    pub(super) entry: usize,
}

/// The parts of every collective, by group and sequence number.
pub(super) type Parts = BTreeMap<(u16, u64), Vec<Part>>;

/// Returns the arrows of all collectives. An arrow begins and ends within the entries of its ranks.
pub(super) fn arrows(parts: &Parts, entries: &[Value]) -> Vec<Value> {
    parts.iter().enumerate().flat_map(|(number, (_, parts))| of_one(number, parts, entries)).collect()
}

fn of_one(number: usize, parts: &[Part], entries: &[Value]) -> Vec<Value> {
    let span = |part: &Part| {
        let of = |key: &str| entries[part.entry][key].as_f64().unwrap_or(0.0);
        (of("ts"), of("ts") + of("dur"))
    };
    let Some(last) = parts.iter().max_by_key(|part| part.issued) else { return Vec::new() };
    let from = span(last).0.max(microseconds(last.issued)).min(span(last).1);
    let later = parts.iter().filter(|part| part.rank != last.rank && span(part).1 >= from);
    let end = |(arrow, part): (usize, &Part)| {
        // The id must be a number: Perfetto drops other arrows.
        let id = (number as u64) << 32 | arrow as u64;
        [entry("s", id, last.rank, from), entry("f", id, part.rank, span(part).0.max(from))]
    };
    later.enumerate().flat_map(end).collect()
}

fn entry(kind: &str, id: u64, rank: u32, at: f64) -> Value {
    json!({
        "ph": kind, "id": id, "bp": "e", "name": "last to issue", "cat": "last to issue",
        "pid": rank, "tid": thread(rank, COMMUNICATION), "ts": at,
    })
}
