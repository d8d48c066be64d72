//! Why nothing was measured.

/// Why nothing was measured.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line makes no sense.
    Usage(String),
    /// The measurement failed.
    Run(String),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Run(error.to_string())
    }
}
