//! The meaning of the symbols and the share that a rank keeps between steps, in rows below the
//! cells or in a column beside them.

use super::cell::{UnitSlice, second_copy, slots};
use super::{NAMES, class_style, nothing, place_style, room};
use crate::places;
use crate::player::Scene;
use crate::theme::{self, DIM, class_colour, ink};
use crate::view::paint::{Paint, fitted};
use events::{Class, Place};
use ratatui::style::{Color, Style};

/// The width of the key beside the cells.
pub(super) const WIDTH: u16 = 22;

/// The key of one line of a cell: its class, the share that a rank keeps, and the meaning of the
/// symbols that occur.
struct KeyLine {
    class: Class,
    kept: String,
    symbols: Vec<(&'static str, Style, String)>,
}

fn lines(scene: &Scene) -> [KeyLine; 3] {
    let sharded = scene.header.sharded;
    let share = |yes: bool| if yes { format!("1/{}", slots(scene)) } else { "all".into() };
    let entry = |(symbol, style): (&'static str, Style), meaning: &str| (symbol, style, meaning.to_string());
    let gathered = class_style(Class::GatheredParameters);
    let summed = class_style(Class::Gradients);
    let own = if sharded.gradients { class_style(Class::CommunicationBuckets) } else { ("△", summed.1) };
    let header = &scene.header;
    let kept = |class: Class, what: &str| {
        let place = header.offload.place(class);
        let link = if place == Place::Device { String::new() } else { format!(" {}", places::within(place)) };
        let (symbol, style) = place_style(class, place);
        (symbol, style, format!("{what}{link}"))
    };
    let travels = |class: Class| {
        let away = header.offload.place(class) != Place::Device;
        away.then(|| entry(("↑", ink(class_colour(class))), "↓ travels"))
    };
    let mut parameters = vec![kept(Class::Parameters, "kept")];
    if UnitSlice::secondary(scene, 0).is_some() {
        parameters.push(entry(second_copy(), "secondary (hpZ)"));
    }
    if sharded.parameters {
        parameters.push(entry(gathered, "gathered"));
    }
    if sharded.optimizer {
        parameters.push(entry(("›", gathered.1), "in flight"));
    }
    parameters.extend(travels(Class::Parameters));
    let summed = match header.offload.place(Class::Gradients) {
        Place::Device => entry(summed, "summed over ranks"),
        _ => kept(Class::Gradients, "sums"),
    };
    let gradients = vec![
        entry(room(), "allocated"),
        entry(own, "local, not summed"),
        entry(("›", own.1), "being summed"),
        summed,
    ];
    let mut optimizer = vec![kept(Class::Optimizer, "states kept")];
    if sharded.optimizer {
        optimizer.push(entry(nothing(), "not held"));
    }
    optimizer.extend(travels(Class::Optimizer));
    [
        KeyLine { class: Class::Parameters, kept: share(sharded.parameters), symbols: parameters },
        KeyLine { class: Class::Gradients, kept: share(sharded.gradients), symbols: gradients },
        KeyLine { class: Class::Optimizer, kept: share(sharded.optimizer), symbols: optimizer },
    ]
}

/// Draws the key in four rows.
pub(super) fn below(scene: &Scene, paint: &mut Paint<'_>) {
    for (y, KeyLine { class, symbols, .. }) in (0u16..).zip(lines(scene)) {
        paint.text(0, y, class.label(), ink(DIM));
        let mut x = NAMES;
        for (symbol, style, meaning) in symbols {
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
        for (symbol, style, meaning) in symbols {
            y += 1;
            paint.text(0, y, symbol, style);
            paint.text(2, y, meaning, ink(DIM));
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
