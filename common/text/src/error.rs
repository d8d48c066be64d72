//! Errors of converting text to tokens and back.

/// A failed conversion. Its message fits on one screen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TextError {
    /// The user's input is wrong, or this program cannot read it.
    #[error("{0}")]
    Input(String),
    /// The tokenizer failed.
    #[error("{0}")]
    Tokenizer(String),
}

impl TextError {
    pub(crate) fn input(message: impl ToString) -> Self {
        TextError::Input(message.to_string())
    }
}

/// The result of converting text to tokens or back.
pub type Result<T> = std::result::Result<T, TextError>;
