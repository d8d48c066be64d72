//! How reports write choices and numbers, and read them back.

use clap::ValueEnum;
use serde::{Deserialize, Deserializer};

/// A choice as its label: `#[serde(with = "labels::label")]`. Only labels of its type are read.
pub mod label {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Display;
    use std::str::FromStr;

    /// Writes the label.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<T: Display, S: Serializer>(choice: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(choice)
    }

    /// Reads a label.
    ///
    /// # Errors
    /// The labels to choose from, if it is none of them.
    pub fn deserialize<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        parsed(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }

    pub(super) fn parsed<T: FromStr<Err = String>>(label: &str) -> Result<T, String> {
        label.parse().map_err(|choices| format!("unknown word {label:?}: {choices}"))
    }
}

/// As [`label`], of a choice that may be null.
pub mod label_or_null {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Display;
    use std::str::FromStr;

    /// Writes the label, or null.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<T: Display, S: Serializer>(
        choice: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match choice {
            Some(choice) => serializer.collect_str(choice),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a label, or null.
    ///
    /// # Errors
    /// As [`label::deserialize`](super::label::deserialize)'s.
    pub fn deserialize<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let label = Option::<String>::deserialize(deserializer)?;
        label.map(|label| super::label::parsed(&label).map_err(D::Error::custom)).transpose()
    }
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
