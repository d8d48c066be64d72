//! Transfers between places.

use crate::export::trace::entry::{CPU, complete, metadata, microseconds};
use events::{Event, Progress, Route, RunHeader, TransferEvent};
use screen::places;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Maximum number of tracks per route.
const TRACKS: usize = 16;

/// A transfer that has finished.
pub(super) struct TransferEntry {
    pub(super) rank: u32,
    pub(super) sequence: u64,
    route: Route,
    /// From when to when its bytes moved.
    pub(super) moved: (u64, u64),
    name: String,
    arguments: Value,
}

impl TransferEntry {
    /// Returns the entry of a transfer that `event` finishes.
    pub(super) fn of(header: &RunHeader, event: &Event, transfer: &TransferEvent) -> Option<Self> {
        (transfer.progress == Progress::Finished).then(|| TransferEntry {
            rank: event.rank,
            sequence: transfer.sequence,
            route: transfer.route,
            moved: event.span(transfer.began, transfer.ended),
            name: places::cargo(header, transfer),
            arguments: json!({
                "sequence": transfer.sequence, "bytes": transfer.bytes,
                "waited_us": microseconds(transfer.exposed),
            }),
        })
    }
}

/// Returns the entries of transfers, and the names of their tracks. Those on one route may overlap,
/// which spans of one track may not: each is put on the first free track.
pub(super) fn tracks(mut transfers: Vec<TransferEntry>) -> Vec<Value> {
    transfers.sort_by_key(|transfer| transfer.moved);
    let mut free: HashMap<(u32, Route), Vec<u64>> = HashMap::new();
    let mut entries = Vec::new();
    for TransferEntry { rank, route, moved, name, arguments, .. } in transfers {
        let free = free.entry((rank, route)).or_default();
        let place = free.iter().position(|&end| end <= moved.0).unwrap_or(free.len().min(TRACKS - 1));
        let track = CPU + 1 + (route.index() * TRACKS + place) as u32;
        if place == free.len() {
            free.push(0);
            entries.push(metadata("thread_name", rank, track, json!({ "name": route.label() })));
        }
        free[place] = moved.1;
        entries.push(complete([&name, route.label()], (rank, track), moved, arguments));
    }
    entries
}
