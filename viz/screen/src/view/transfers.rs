//! The transfers between the ranks' devices, main memory and disks.

use super::paint::Paint;
use crate::fit::columns;
use crate::player::Scene;
use crate::theme::{DIM, bold, class_colour, ink};
use crate::{places, words};
use events::{Route, TransferFlight, amount};

/// Returns the rows that the line of transfers takes: none if nothing is offloaded.
pub(super) fn rows(scene: &Scene) -> u16 {
    u16::from(!places::used(&scene.header).is_empty())
}

/// Returns the transfer to show, and whether it is in flight: the oldest one of the first rank that
/// has any in flight, else the one that finished last.
fn shown(scene: &Scene) -> Option<(TransferFlight, bool)> {
    let ranks = &scene.now.ranks;
    let flying = ranks.iter().find_map(|rank| rank.transfers.flights.first());
    let landed =
        || ranks.iter().filter_map(|rank| rank.transfers.last).max_by_key(|last| last.event.sequence);
    flying.map(|flight| (*flight, true)).or_else(|| landed().map(|flight| (flight, false)))
}

/// Draws the transfers between places: one transfer in words, and the bytes in flight on every
/// route.
pub(super) fn line(scene: &Scene, paint: &mut Paint<'_>) {
    let Some((TransferFlight { event, .. }, flying)) = shown(scene) else {
        paint.text(0, 0, "no transfer between places yet", ink(DIM));
        return;
    };
    let style = if flying { bold(class_colour(event.class)) } else { bold(DIM) };
    let mark = if flying { places::arrow(event.route) } else { "✓" };
    let text = format!("{mark} {} ", places::cargo(&scene.header, &event));
    let mut x = paint.text(0, 0, text, style);
    let bytes = words::bytes(event.bytes);
    x = paint.text(x, 0, format!(" {bytes} {}", event.route), ink(DIM));
    let routes = Route::ALL.into_iter().filter_map(|route| {
        let flights = scene.now.ranks.iter().flat_map(|rank| &rank.transfers.flights);
        let flights = flights.filter(|flight| flight.event.route == route);
        let bytes = amount::total(flights.map(|flight| flight.event.bytes));
        (bytes > 0).then(|| format!("{} {route} {}", places::arrow(route), words::short_bytes(bytes)))
    });
    let all: Vec<String> = routes.collect();
    let all = format!("   all ranks: {}", all.join("  "));
    if flying && x + columns(&all) <= paint.width() {
        paint.text(x, 0, all, ink(DIM));
    }
}
