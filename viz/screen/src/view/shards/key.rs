//! The meaning of the symbols and the share that a rank keeps between steps, in rows below the
//! cells or in a column next to them.

use super::cell::{UnitSlice, second_copy, slots};
use super::{NAMES, class_style, nothing, place_style, room};
use crate::fit::{fitted, fitting_or_cut};
use crate::places;
use crate::player::Scene;
use crate::theme::{self, DIM, class_colour, ink};
use crate::view::paint::Paint;
use events::{Class, Place};
use ratatui::style::{Color, Style};

/// The width of the key next to the cells.
pub(super) const WIDTH: u16 = 22;

/// The key of one line of a cell: its class, the share that a rank keeps, and the meaning of the
/// symbols that occur.
struct KeyLine {
    class: Class,
    kept: String,
    symbols: Vec<Symbol>,
}

/// A symbol of the key with its style, and its meaning.
type Symbol = ((&'static str, Style), String);

fn lines(scene: &Scene) -> [KeyLine; 3] {
    let sharded = scene.header.sharded;
    let line = |class, is_sharded: bool, symbols| {
        let kept = if is_sharded { format!("1/{}", slots(scene)) } else { "all".into() };
        KeyLine { class, kept, symbols }
    };
    [
        line(Class::Parameters, sharded.parameters, of_parameters(scene)),
        line(Class::Gradients, sharded.gradients, of_gradients(scene)),
        line(Class::Optimizer, sharded.optimizer, of_optimizer(scene)),
    ]
}

fn of_parameters(scene: &Scene) -> Vec<Symbol> {
    let sharded = scene.header.sharded;
    let gathered = class_style(Class::GatheredParameters);
    let mut symbols = vec![kept(scene, Class::Parameters, "kept")];
    if UnitSlice::secondary(scene, 0).is_some() {
        symbols.push((second_copy(), "secondary (hpZ)".into()));
    }
    if sharded.parameters {
        symbols.push((gathered, "gathered".into()));
    }
    if sharded.optimizer {
        symbols.push((("›", gathered.1), "in flight".into()));
    }
    symbols.extend(travels(scene, Class::Parameters));
    symbols
}

fn of_gradients(scene: &Scene) -> Vec<Symbol> {
    let summed = class_style(Class::Gradients);
    let sharded = scene.header.sharded.gradients;
    let own = if sharded { class_style(Class::CommunicationBuckets) } else { ("△", summed.1) };
    let sums = match scene.header.offload.place(Class::Gradients) {
        Place::Device => (summed, "summed over ranks".into()),
        _ => kept(scene, Class::Gradients, "sums"),
    };
    vec![
        (room(), "allocated".into()),
        (own, "local, not summed".into()),
        (("›", own.1), "being summed".into()),
        sums,
    ]
}

fn of_optimizer(scene: &Scene) -> Vec<Symbol> {
    let mut symbols = vec![kept(scene, Class::Optimizer, "states kept")];
    symbols.extend(scene.header.sharded.optimizer.then(|| (nothing(), "not held".into())));
    symbols.extend(travels(scene, Class::Optimizer));
    symbols
}

/// Returns the symbol of the bytes of `class` that a rank keeps, and their place if that is not its
/// device.
fn kept(scene: &Scene, class: Class, what: &str) -> Symbol {
    let place = scene.header.offload.place(class);
    let within = if place == Place::Device { String::new() } else { format!(" {}", places::within(place)) };
    (place_style(class, place), format!("{what}{within}"))
}

/// Returns the symbol of a transfer; `None` if `class` is not offloaded.
fn travels(scene: &Scene, class: Class) -> Option<Symbol> {
    let away = scene.header.offload.place(class) != Place::Device;
    away.then(|| (("↑", ink(class_colour(class))), "↓ travels".into()))
}

/// Draws the key in four rows.
pub(super) fn below(scene: &Scene, paint: &mut Paint<'_>) {
    for (y, KeyLine { class, symbols, .. }) in (0u16..).zip(lines(scene)) {
        paint.text(0, y, class.label(), ink(DIM));
        let mut x = NAMES;
        for ((symbol, style), meaning) in symbols {
            x = paint.text(x, y, symbol, style);
            x = paint.text(x + 1, y, meaning, ink(DIM)) + 3;
        }
    }
    let text = fitted(&owned(scene), paint.width());
    paint.text(0, 3, text, ink(DIM));
}

/// Draws the key in a column.
pub(super) fn beside(scene: &Scene, paint: &mut Paint<'_>) {
    let mut y = 1;
    for KeyLine { class, kept, symbols } in lines(scene) {
        paint.text(0, y, class.label(), ink(Color::Reset));
        paint.right(WIDTH, y, format!("{kept} kept"), ink(Color::Reset));
        for ((symbol, style), meaning) in symbols {
            y += 1;
            paint.text(0, y, symbol, style);
            let short = meaning.replace(" kept in ", ", ");
            paint.text(2, y, fitting_or_cut(&[meaning, short], WIDTH - 2), ink(DIM));
        }
        y += 2;
    }
}

fn owned(scene: &Scene) -> String {
    let slots = slots(scene);
    let groups = scene.now.ranks.len() / slots;
    if groups > 1 {
        return format!(
            "Between steps each rank keeps 1/{slots} of all model states; {groups} groups hold the same."
        );
    }
    if let Some(second) = UnitSlice::secondary(scene, 0) {
        let of = second.of();
        return format!(
            "Between steps each rank keeps 1/{slots} of all model states, and 1/{of} of the parameters again."
        );
    }
    let [parameters, gradients, optimizer] = lines(scene).map(|line| line.kept);
    let offload = &scene.header.offload;
    if !offload.resting.is_empty() {
        let states =
            [(parameters, Class::Parameters), (gradients, Class::Gradients), (optimizer, Class::Optimizer)];
        let kept = states.map(|(share, class)| {
            format!("{share} of {} {}", theme::shortest_name(class), places::within(offload.place(class)))
        });
        return format!("Between steps: {}.", kept.join(", "));
    }
    format!(
        "Between steps each rank keeps {parameters} of the parameters, {gradients} of the gradients and {optimizer} of \
         the optimizer states."
    )
}
