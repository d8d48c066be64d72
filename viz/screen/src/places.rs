//! Places other than the devices: which of them a run uses, and how the screen names them.

use crate::{theme, words};
use events::{Class, Place, RankSnapshot, Route, RunHeader, TransferEvent, TransferFlight};

/// Returns the places that a run uses in addition to its devices; none if nothing is offloaded.
pub fn used(header: &RunHeader) -> &'static [Place] {
    let resting = &header.offload.resting;
    match resting.iter().any(|(_, place)| *place == Place::Disk) {
        true => &[Place::Host, Place::Disk],
        // States stored on disk are staged in main memory.
        false if resting.is_empty() => &[],
        false => &[Place::Host],
    }
}

/// True if the CPU updates the parameters, because the optimizer's states are offloaded.
pub fn updates_on_cpu(header: &RunHeader) -> bool {
    header.offload.place(Class::Optimizer) != Place::Device
}

/// Returns a place's name in a sentence.
pub const fn name(place: Place) -> &'static str {
    match place {
        Place::Device => "the device",
        Place::Host => "main memory",
        Place::Disk => "disk",
    }
}

/// Returns a place with its preposition, as in `in main memory`.
pub const fn within(place: Place) -> &'static str {
    match place {
        Place::Device => "on the device",
        Place::Host => "in main memory",
        Place::Disk => "on disk",
    }
}

/// Returns the letter of a place, which tells it apart without colours.
pub const fn letter(place: Place) -> &'static str {
    match place {
        Place::Device => "g",
        Place::Host => "h",
        Place::Disk => "d",
    }
}

/// Returns the direction of a route: down is away from the device.
pub const fn arrow(route: Route) -> &'static str {
    if route.leaves() { "↓" } else { "↑" }
}

/// Returns which states are offloaded and where they are stored, from the longest form to the
/// shortest; nothing if all states are kept on the devices.
pub fn placement(header: &RunHeader) -> Vec<String> {
    let list = |separator: &str, words: &dyn Fn(Class, Place) -> String| {
        let parts = header.offload.resting.iter().map(|(class, place)| words(*class, *place));
        parts.collect::<Vec<_>>().join(separator)
    };
    let beyond = Place::ALL.iter().filter_map(|&place| {
        let here = header.offload.resting.iter().filter(|(_, rests)| *rests == place);
        let classes: Vec<String> = here.map(|(class, _)| class.to_string()).collect();
        (!classes.is_empty()).then(|| format!("{} {}", classes.join(", "), within(place)))
    });
    let mut forms = vec![
        beyond.collect::<Vec<_>>().join("; "),
        list(" ", &|class, place| format!("{}:{}", theme::shortest_name(class), letter(place))),
        list(" ", &|class, place| format!("{}{}", theme::class_glyph(class), letter(place))),
    ];
    forms.retain(|form| !form.is_empty());
    forms
}

/// Returns the name of the unit that a transfer belongs to; for activations, of the block.
pub fn unit(header: &RunHeader, event: &TransferEvent) -> String {
    match event.class {
        Class::Activations => format!("block {}", event.unit),
        _ => words::unit(header, event.unit).into(),
    }
}

/// Returns the name of the buffer that a transfer moves: `parameters of block 2`.
pub fn cargo(header: &RunHeader, event: &TransferEvent) -> String {
    let states = if event.class == Class::Optimizer { " states" } else { "" };
    format!("{}{states} of {}", event.class, unit(header, event))
}

/// Returns a rank's oldest transfer in flight among those that `wanted` accepts; `None` if there is
/// none.
pub fn flight(rank: &RankSnapshot, wanted: impl Fn(&TransferEvent) -> bool) -> Option<&TransferFlight> {
    rank.transfers.flights.iter().find(|flight| wanted(&flight.event))
}
