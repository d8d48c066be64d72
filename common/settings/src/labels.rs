//! Words of a report, read back: each is one of those that this program writes.

use crate::float_type;
use clap::ValueEnum;
use device::DType;
use device::meter::Kind;
use events::{Class, Operation};
use model::Checkpointing;
use planner::{Stage, Strategy};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A word that reports use.
pub type Label = &'static str;

/// Reads a word that some report has.
///
/// # Errors
/// If no report has such a word.
pub fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Label, D::Error> {
    find(&String::deserialize(deserializer)?)
}

/// As [`known`], where a report may have nothing.
///
/// # Errors
/// If no report has such a word.
pub fn known_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Label>, D::Error> {
    Option::<String>::deserialize(deserializer)?.map(|word| find(&word)).transpose()
}

fn find<E: Error>(word: &str) -> Result<Label, E> {
    let classes = Class::ALL.iter().map(|class| class.label());
    let operations = Operation::ALL.iter().map(|operation| operation.label());
    let stages = Stage::ALL.iter().map(|stage| stage.label());
    let checkpointing = Checkpointing::ALL.iter().map(|what| what.label());
    let types = [DType::F32, DType::Bf16, DType::F16].map(float_type::name);
    let strategies = Strategy::ALL.iter().map(|strategy| strategy.label());
    let kinds = Kind::ALL.map(Kind::label);
    let mut all = classes
        .chain(operations)
        .chain(stages)
        .chain(checkpointing)
        .chain(strategies)
        .chain(types)
        .chain(kinds);
    all.find(|label| *label == word).ok_or_else(|| E::custom(format!("unknown word {word:?}")))
}

/// Reads the word of a flag's choice, if there is one.
///
/// # Errors
/// If the flag has no such choice.
pub fn choice<'de, T: ValueEnum, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let Some(word) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    T::from_str(&word, false).map(Some).map_err(|_| D::Error::custom(format!("unknown word {word:?}")))
}

/// As [`choice`], where there must be one.
///
/// # Errors
/// As [`choice`].
pub fn chosen<'de, T: ValueEnum, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    choice(deserializer)?.ok_or_else(|| D::Error::custom("a word is missing"))
}

/// Reads a number; JSON has null where it was not finite.
///
/// # Errors
/// If it is neither.
pub fn finite_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}
