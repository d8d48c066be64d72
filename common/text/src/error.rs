//! Why text has no tokens, or tokens no text.

/// What is wrong, in a message of at most one screen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TextError {
    /// What the user gave is wrong, or this program cannot read it.
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

/// The result of what turns text into tokens or back.
pub type Result<T> = std::result::Result<T, TextError>;
