//! Failures that end a program: a message of at most one screen, and an exit code.

/// The failure that ends the program.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub enum Failure {
    /// The command line, or a file that it names, is wrong: exit code 2.
    Usage(String),
    /// The run failed: exit code 1.
    Run(String),
    /// The run needs more memory than there is, as predicted or as observed: exit code 1.
    OutOfMemory(String),
}

impl Failure {
    /// Returns a usage failure.
    pub fn usage(message: impl ToString) -> Self {
        Failure::Usage(message.to_string())
    }

    /// Returns a failure of the run.
    pub fn run(message: impl ToString) -> Self {
        Failure::Run(message.to_string())
    }

    /// Returns the failure with another problem of the same run, on a line of its own.
    pub fn with(self, problem: impl ToString) -> Self {
        let add = |message: String| message + "\n" + &problem.to_string();
        match self {
            Failure::Usage(message) => Failure::Usage(add(message)),
            Failure::Run(message) => Failure::Run(add(message)),
            Failure::OutOfMemory(message) => Failure::OutOfMemory(add(message)),
        }
    }

    /// Returns the exit code: 2 for usage, 1 for a failed run.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Run(_) | Failure::OutOfMemory(_) => 1,
        }
    }
}

impl From<text::TextError> for Failure {
    fn from(error: text::TextError) -> Self {
        match error {
            text::TextError::Input(message) => Failure::Usage(message),
            text::TextError::Tokenizer(message) => Failure::Run(message),
        }
    }
}

/// The result of a function whose error ends the program.
pub type Result<T> = std::result::Result<T, Failure>;
