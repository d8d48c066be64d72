//! The cost of an answer, compared with the planner's target.

use serde_json::{Value, json};
use std::fmt;
use std::path::Path;

/// A figure of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The counted unit.
    pub what: &'static str,
    /// The answer's cost.
    pub own: u64,
    /// The cost that is sufficient.
    pub target: u64,
}

/// A correct answer: its effect and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score {
    /// The effect, in words.
    pub does: String,
    /// The figures. Empty if there is nothing to count.
    pub figures: Vec<Figure>,
}

impl Figure {
    /// Returns a figure that counts `what`, starting from zero.
    pub fn of(what: &'static str) -> Self {
        Figure { what, own: 0, target: 0 }
    }

    /// Adds to the answer's cost and to the target.
    pub fn add(&mut self, own: u64, target: u64) {
        self.own += own;
        self.target += target;
    }

    /// Returns `own` divided by `target`; 1 if they are equal, including both 0.
    fn ratio(&self) -> f64 {
        if self.own == self.target { 1.0 } else { self.own as f64 / self.target.max(1) as f64 }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure { what, own, target } = self;
        write!(f, "{what:<24} {own:>12}   {:.2}x of the target, {target}", self.ratio())
    }
}

impl Score {
    /// Returns the score of a correct answer that has nothing to count.
    pub fn right(does: impl Into<String>) -> Self {
        Score { does: does.into(), figures: Vec::new() }
    }

    /// Adds a figure.
    pub fn with(mut self, figure: Figure) -> Self {
        self.figures.push(figure);
        self
    }

    /// Adds the result of another check, with its figures.
    pub fn and(mut self, more: Score) -> Self {
        self.does = format!("{}; {}", self.does, more.does);
        self.figures.extend(more.figures);
        self
    }

    /// True if no figure exceeds its target.
    pub fn is_best(&self) -> bool {
        self.figures.iter().all(|figure| figure.own <= figure.target)
    }

    /// Writes the ratios of the figures, which are saved in the reader's progress.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, file: &Path) -> std::io::Result<()> {
        let figures = self.figures.iter().map(|figure| (figure.what.to_string(), json!(figure.ratio())));
        std::fs::write(file, Value::Object(figures.collect()).to_string())
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.does)?;
        self.figures.iter().try_for_each(|figure| write!(f, "\n  {figure}"))
    }
}
