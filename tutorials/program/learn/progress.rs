//! What a reader has predicted, answered and solved, kept in a small file.

use super::chapters;
use super::question::Chapter;
use clap::Args;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use trainer::{Failure, Result};

/// Whether to begin again.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Forget everything
    #[arg(long)]
    reset: bool,
}

/// Prints the progress.
///
/// # Errors
/// If the file cannot be removed when asked to.
pub fn run(arguments: &Arguments) -> Result<()> {
    let file = file();
    if arguments.reset && file.exists() {
        std::fs::remove_file(&file)
            .map_err(|e| Failure::run(format!("cannot remove {}: {e}", file.display())))?;
    }
    let progress = Progress::load();
    for chapter in chapters::ALL {
        events::say!(
            "chapter {:>2}   {}   {}",
            chapter.number,
            progress.prediction_line(chapter),
            progress.quiz_line(chapter)
        );
    }
    events::say!("exercises    solved {}", progress.exercises().join(", "));
    events::say!("\nkept in {}", file.display());
    Ok(())
}

/// What is done: `predict/4/0` or `quiz/4/2`, and whether it was right.
pub struct Progress {
    file: PathBuf,
    done: Map<String, Value>,
}

fn file() -> PathBuf {
    std::env::var_os("TUTORIALS_PROGRESS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".progress.json"), PathBuf::from)
}

impl Progress {
    /// What the file says; nothing if there is none.
    pub fn load() -> Self {
        Self::at(file())
    }

    /// What is kept in `file`.
    pub fn at(file: PathBuf) -> Self {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        Progress { done: serde_json::from_str(&text).unwrap_or_default(), file }
    }

    /// A number was guessed.
    pub fn predicted(&mut self, chapter: u32, index: usize, right: bool) -> Result<()> {
        self.note(format!("predict/{chapter}/{index}"), right)
    }

    /// A question was answered.
    pub fn answered(&mut self, chapter: u32, index: usize, right: bool) -> Result<()> {
        self.note(format!("quiz/{chapter}/{index}"), right)
    }

    /// An exercise was solved.
    pub fn solved(&mut self, exercise: &str) -> Result<()> {
        self.note(format!("solved/{exercise}"), true)
    }

    /// Names of the exercises that are solved.
    fn exercises(&self) -> Vec<&str> {
        self.done.keys().filter_map(|key| key.strip_prefix("solved/")).collect()
    }

    /// Whether a question was answered rightly before.
    pub fn is_answered(&self, chapter: u32, index: usize) -> bool {
        self.done.get(&format!("quiz/{chapter}/{index}")) == Some(&Value::Bool(true))
    }

    /// How far the chapter's quiz is.
    pub fn quiz_line(&self, chapter: &Chapter) -> String {
        format!("quiz {} of {}", self.right("quiz", chapter.number), chapter.quiz.len())
    }

    fn prediction_line(&self, chapter: &Chapter) -> String {
        if chapter.guesses.is_empty() {
            return "nothing to guess".into();
        }
        format!("predicted {} of {}", self.right("predict", chapter.number), chapter.guesses.len())
    }

    fn right(&self, kind: &str, chapter: u32) -> usize {
        let prefix = format!("{kind}/{chapter}/");
        self.done
            .iter()
            .filter(|(key, value)| key.starts_with(&prefix) && **value == Value::Bool(true))
            .count()
    }

    /// Writes the file whole or not at all.
    fn note(&mut self, key: String, right: bool) -> Result<()> {
        self.done.insert(key, Value::Bool(right));
        let fail =
            |e: &dyn std::fmt::Display| Failure::run(format!("cannot write {}: {e}", self.file.display()));
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let mut fresh = tempfile::NamedTempFile::new_in(folder).map_err(|e| fail(&e))?;
        let text = serde_json::to_vec_pretty(&self.done).map_err(|e| fail(&e))?;
        std::io::Write::write_all(&mut fresh, &text).map_err(|e| fail(&e))?;
        fresh.persist(&self.file).map(drop).map_err(|e| fail(&e))
    }
}
