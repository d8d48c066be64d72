//! The key of the streams view.

use super::super::legend::{self, Entry};
use super::super::paint::Paint;
use super::{LABELS, waiting};
use crate::player::Scene;
use crate::theme::{
    DIM, FAINT, Theme, WAITING, ink, operation_colour, operation_glyph, pass_colour, pass_glyph,
};
use crate::{places, words};
use events::{Operation, Pass};

/// Draws the symbols of passes, operations and waiting times. Adds those of scalars, of transfers
/// and of idle streams if there is room.
pub(super) fn draw(scene: &Scene, paint: &mut Paint<'_>) {
    let indent = if paint.width() >= 100 { LABELS } else { 0 };
    let mut paint = paint.part(indent, 0, paint.width(), 1);
    let (theme, room) = (paint.theme(), paint.width());
    let long = entries(scene, theme, Operation::label);
    let mut key = if legend::length(&long, 1) <= room { long } else { entries(scene, theme, short) };
    let idle = vec![Entry::new("·", ink(FAINT), "idle", 0)];
    for more in [scalars(scene, theme), moves(scene), idle] {
        if legend::length(&key, 2) + 2 + legend::length(&more, 2) <= room {
            key.extend(more);
        }
    }
    let gap = if legend::length(&key, 2) <= room { 2 } else { 1 };
    legend::draw(key, gap, &mut paint);
}

/// Returns the entries of the passes and operations seen so far. On a narrow screen, the entry of
/// collectives that move no data yet is left out first, the entry of waiting times last.
fn entries(scene: &Scene, theme: Theme, name: fn(Operation) -> &'static str) -> Vec<Entry> {
    let pass = |p: Pass| Entry::new(symbol(theme, pass_glyph(p)), ink(pass_colour(p)), words::pass(p), 3);
    let passes = [Pass::Forward, Pass::Recompute, Pass::Backward, Pass::Add, Pass::Step].into_iter();
    let often = |p| !matches!(p, Pass::Recompute | Pass::Add);
    let passes = passes.filter(|&p| often(p) || seen(scene, p)).map(pass);
    let operations = [Operation::AllGather, Operation::ReduceScatter, Operation::AllReduce].into_iter();
    let operations = operations.filter(|&o| used(scene, o)).map(|o| operation(theme, o, name(o)));
    let issued = Entry::new("╌", ink(FAINT), "issued", 1);
    let waits = Entry::new(waiting(theme), ink(WAITING), "waits", 4);
    passes.chain(operations).chain([issued, waits]).collect()
}

fn scalars(scene: &Scene, theme: Theme) -> Vec<Entry> {
    let scalars = Operation::Scalars;
    Some(scalars).filter(|&o| used(scene, o)).map(|o| operation(theme, o, o.label())).into_iter().collect()
}

fn moves(scene: &Scene) -> Vec<Entry> {
    let moves = [("↑", "to the device"), ("↓", "away from it")].into_iter();
    let offloads = !places::used(&scene.header).is_empty();
    moves.filter(|_| offloads).map(|(arrow, label)| Entry::new(arrow, ink(DIM), label, 0)).collect()
}

fn operation(theme: Theme, operation: Operation, label: &str) -> Entry {
    Entry::new(symbol(theme, operation_glyph(operation)), ink(operation_colour(operation)), label, 2)
}

/// Returns an operation's name for a narrow screen.
fn short(operation: Operation) -> &'static str {
    match operation {
        Operation::AllGather => "gather",
        Operation::ReduceScatter => "reduce",
        other => other.label(),
    }
}

/// Returns the symbol of a pass or an operation: a filled cell if the terminal shows colours, else
/// its letter.
fn symbol(theme: Theme, glyph: &'static str) -> &'static str {
    if theme.colours() { "█" } else { glyph }
}

/// True if the lanes show the operation. A single rank sends nothing in it.
fn used(scene: &Scene, operation: Operation) -> bool {
    let sent = scene.now.ranks.iter().any(|rank| rank.sent.by_operation[operation.index()] > 0);
    let mut drawn = scene.window.lanes.iter().flat_map(|lane| &lane.collectives);
    sent || drawn.any(|collective| collective.event.operation == operation)
}

fn seen(scene: &Scene, pass: Pass) -> bool {
    scene.window.lanes.iter().any(|lane| lane.spans.iter().any(|span| span.pass == pass))
}
