//! Errors in the description of a model.

/// A model description that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// No preset has this name.
    #[error("there is no model preset `{name}`{}\npresets: {known}", question(nearest))]
    UnknownPreset {
        /// The requested name.
        name: String,
        /// The preset with the nearest name. `None` if no name is similar.
        nearest: Option<&'static str>,
        /// The names of all presets.
        known: String,
    },
    /// The numbers do not describe a valid model.
    #[error("model `{name}`: {problem}")]
    Invalid {
        /// The model's name.
        name: String,
        /// The invalid numbers, and what they should be.
        problem: String,
    },
    /// The text is not a JSON object.
    #[error("model `{name}`: config.json is not a JSON object: {reason}")]
    NotJson {
        /// The model's name.
        name: String,
        /// The parser's message.
        reason: String,
    },
    /// A required key is absent.
    #[error("model `{name}`: config.json has no `{key}`")]
    Missing {
        /// The model's name.
        name: String,
        /// The key.
        key: String,
    },
    /// The configuration asks for something that this model does not support, or gives a value of
    /// the wrong kind.
    #[error("model `{name}`: config.json has `{key}`: {value}, but this program supports {supported}")]
    Unsupported {
        /// The model's name.
        name: String,
        /// The key, with its path.
        key: String,
        /// Its value as JSON, shortened to one line.
        value: String,
        /// The values that are supported.
        supported: String,
    },
}

fn question(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}
