//! Words of a report, read back: only words that this program writes are accepted.

use crate::float_type::PrecisionName;
use clap::ValueEnum;
use device::meter::Kind;
use events::{Class, Operation, Place, Route};
use model::Checkpointing;
use planner::{Stage, Strategy};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A word of a report.
pub type Label = &'static str;

/// Returns the place of rows that do not name one.
pub fn device() -> Label {
    Place::Device.label()
}

/// Reads a word of a report.
///
/// # Errors
/// If no report has this word.
pub fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Label, D::Error> {
    find(&String::deserialize(deserializer)?)
}

/// Reads a word of a report, or null.
///
/// # Errors
/// If no report has this word.
pub fn known_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Label>, D::Error> {
    Option::<String>::deserialize(deserializer)?.map(|word| find(&word)).transpose()
}

fn find<E: Error>(word: &str) -> Result<Label, E> {
    let classes = Class::ALL.iter().map(|class| class.label());
    let mut all = classes
        .chain(Operation::ALL.iter().map(|operation| operation.label()))
        .chain(Stage::ALL.iter().map(|stage| stage.label()))
        .chain(Checkpointing::ALL.iter().map(|what| what.label()))
        .chain(Strategy::ALL.iter().map(|strategy| strategy.label()))
        .chain(PrecisionName::value_variants().iter().map(|name| name.label()))
        .chain(Kind::ALL.map(Kind::label))
        .chain(Place::ALL.iter().map(|place| place.label()))
        .chain(Route::ALL.iter().map(|route| route.label()));
    all.find(|label| *label == word).ok_or_else(|| E::custom(format!("unknown word {word:?}")))
}

/// Returns the name of a flag's choice.
pub fn word(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
}

/// Reads a number; null in JSON is a number that was not finite.
///
/// # Errors
/// If it is neither.
pub fn finite_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

/// Reads a number; null in JSON is NaN.
///
/// # Errors
/// If it is neither.
pub fn nan_if_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
