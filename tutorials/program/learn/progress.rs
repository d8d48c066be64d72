//! The reader's predictions, answers and solved exercises, saved in a small file.

use super::question::Chapter;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use trainer::{Failure, Result};

/// The progress: keys such as `predict/4/0` or `quiz/4/2`, and whether the answer was correct.
pub struct Progress {
    file: PathBuf,
    done: Map<String, Value>,
}

/// Returns the path of the progress file: the value of `TUTORIALS_PROGRESS`, or a file in the
/// user's state directory.
pub fn file() -> PathBuf {
    place(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn place(variable: &dyn Fn(&str) -> Option<OsString>) -> PathBuf {
    let state = || {
        let home = || Some(PathBuf::from(variable("HOME")?).join(".local/state"));
        Some(variable("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?.join("zero/progress.json"))
    };
    variable("TUTORIALS_PROGRESS").map(PathBuf::from).or_else(state).unwrap_or_else(in_checkout)
}

/// Returns the path of the progress file of earlier versions, which is also used if the user has no
/// home.
fn in_checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(".progress.json")
}

/// Reads the values saved in `file`. Returns `None` if it does not exist or is damaged. A damaged
/// file is moved aside.
fn read(file: &Path) -> Option<Map<String, Value>> {
    let saved = match std::fs::read(file) {
        Err(e) if [ErrorKind::NotFound, ErrorKind::IsADirectory].contains(&e.kind()) => return None,
        Ok(text) if text.is_empty() => return None,
        text => text.ok().and_then(|text| serde_json::from_slice(&text).ok()),
    };
    if saved.is_none() {
        put_aside(file);
    }
    saved
}

/// Moves an unreadable file aside, so that it is not overwritten.
fn put_aside(file: &Path) {
    let aside = free_name(file);
    let kept = match std::fs::rename(file, &aside) {
        Ok(()) => format!("it is {} now", aside.display()),
        Err(error) => error.to_string(),
    };
    events::complain!("warning: {} cannot be read ({kept}); progress starts again", file.display());
}

/// Returns the first unused name for a damaged file.
fn free_name(file: &Path) -> PathBuf {
    let mut aside = file.with_extension("damaged.json");
    let mut count = 1;
    while aside.exists() {
        count += 1;
        aside = file.with_extension(format!("damaged-{count}.json"));
    }
    aside
}

impl Progress {
    /// Reads the progress file or, if it does not exist, that of an earlier version. Empty if
    /// neither exists.
    pub fn load() -> Self {
        let file = file();
        if file.exists() { Self::at(file) } else { Progress { file, ..Self::at(in_checkout()) } }
    }

    /// Reads the progress from `file`.
    pub fn at(file: PathBuf) -> Self {
        Progress { done: read(&file).unwrap_or_default(), file }
    }

    /// Records that a number was guessed.
    pub fn predicted(&mut self, chapter: u32, index: usize, right: bool) -> Result<()> {
        self.keep(format!("predict/{chapter}/{index}"), right.into())
    }

    /// Records that a question was answered.
    pub fn answered(&mut self, chapter: u32, index: usize, right: bool) -> Result<()> {
        self.keep(format!("quiz/{chapter}/{index}"), right.into())
    }

    /// Records that an exercise was solved. `score` maps each figure to its ratio to the target.
    pub fn solved(&mut self, exercise: &str, score: Value) -> Result<()> {
        self.keep(format!("solved/{exercise}"), score)
    }

    /// Describes how an exercise was solved, if it was.
    pub fn score(&self, exercise: &str) -> Option<String> {
        let Value::Object(figures) = self.done.get(&format!("solved/{exercise}"))? else {
            return Some("solved".into());
        };
        let figure =
            |(what, ratio): (&String, &Value)| format!("{what} {:.2}x", ratio.as_f64().unwrap_or(1.0));
        let words: Vec<String> = ["solved".into()].into_iter().chain(figures.iter().map(figure)).collect();
        Some(words.join(", "))
    }

    /// Records that a lab's fault was found.
    pub fn diagnosed(&mut self, lab: &str) -> Result<()> {
        self.keep(format!("lab/{lab}"), true.into())
    }

    /// Returns the names of the labs whose faults were found.
    pub fn diagnosed_labs(&self) -> Vec<&str> {
        self.done.keys().filter_map(|key| key.strip_prefix("lab/")).collect()
    }

    /// True if a number was guessed before, correctly or not: the reader has seen it after that
    /// guess.
    pub fn is_predicted(&self, chapter: u32, index: usize) -> bool {
        self.done.contains_key(&format!("predict/{chapter}/{index}"))
    }

    /// True if a question has been answered correctly.
    pub fn is_answered(&self, chapter: u32, index: usize) -> bool {
        self.done.get(&format!("quiz/{chapter}/{index}")) == Some(&Value::Bool(true))
    }

    /// Describes the progress in the chapter's quiz.
    pub fn quiz_line(&self, chapter: &Chapter) -> String {
        format!("quiz {} of {}", self.right("quiz", chapter.number), chapter.quiz.len())
    }

    /// Describes the progress in the chapter's predictions.
    pub fn prediction_line(&self, chapter: &Chapter) -> String {
        if chapter.guesses.is_empty() {
            return "nothing to guess".into();
        }
        format!("predicted {} of {}", self.right("predict", chapter.number), chapter.guesses.len())
    }

    fn right(&self, kind: &str, chapter: u32) -> usize {
        let prefix = format!("{kind}/{chapter}/");
        let right =
            |(key, value): &(&String, &Value)| key.starts_with(&prefix) && **value == Value::Bool(true);
        self.done.iter().filter(right).count()
    }

    /// Records that nothing has been done.
    pub fn forget(&mut self) -> Result<()> {
        self.done.clear();
        self.save()
    }

    /// Saves a value in addition to those in the file, which another terminal may have changed.
    fn keep(&mut self, key: String, value: Value) -> Result<()> {
        if let Some(saved) = read(&self.file) {
            self.done = saved;
        }
        self.done.insert(key, value);
        self.save()
    }

    fn save(&self) -> Result<()> {
        let fail =
            |e: &dyn std::fmt::Display| Failure::run(format!("cannot write {}: {e}", self.file.display()));
        let text = serde_json::to_vec_pretty(&self.done).map_err(|e| fail(&e))?;
        crate::file::replace(&self.file, text).map_err(|e| fail(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn progress_lies_in_the_users_directory_for_state() {
        let under = |set: &'static [(&str, &str)]| {
            place(&|name| set.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into()))
        };
        let cases: [(&'static [(&str, &str)], &str); 3] = [
            (&[("HOME", "/home/ada")], "/home/ada/.local/state/zero/progress.json"),
            (&[("HOME", "/home/ada"), ("XDG_STATE_HOME", "/state")], "/state/zero/progress.json"),
            (&[("XDG_STATE_HOME", "/state"), ("TUTORIALS_PROGRESS", "mine.json")], "mine.json"),
        ];
        for (set, file) in cases {
            assert_eq!(under(set), PathBuf::from(file));
        }
        assert_eq!(under(&[]), in_checkout());
    }

    #[test]
    fn a_damaged_file_is_put_aside() {
        for damaged in [b"garbage".as_slice(), &[0xff]] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("progress.json");
            std::fs::write(&file, damaged).unwrap();
            let mut progress = Progress::at(file.clone());
            assert_eq!(progress.score("bucket"), None);
            progress.diagnosed("drift").unwrap();
            let aside = std::fs::read(folder.path().join("progress.damaged.json")).unwrap();
            assert_eq!(aside, damaged);
            assert!(std::fs::read_to_string(file).unwrap().contains("drift"));
        }
    }

    #[test]
    fn a_second_damaged_file_does_not_replace_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("progress.json");
        for damaged in ["first", "second", "third"] {
            std::fs::write(&file, damaged).unwrap();
            Progress::at(file.clone());
        }
        for (name, text) in [("damaged", "first"), ("damaged-2", "second"), ("damaged-3", "third")] {
            let aside = folder.path().join(format!("progress.{name}.json"));
            assert_eq!(std::fs::read_to_string(aside).unwrap(), text);
        }
    }

    #[test]
    fn two_terminals_keep_each_others_progress() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("progress.json");
        let [mut one, mut other] = [(); 2].map(|()| Progress::at(file.clone()));
        one.diagnosed("drift").unwrap();
        other.diagnosed("jolt").unwrap();
        one.answered(4, 0, true).unwrap();
        let saved = Progress::at(file.clone());
        assert_eq!(saved.diagnosed_labs(), ["drift", "jolt"]);
        assert!(saved.is_answered(4, 0));
        // Progress that one terminal forgets is not saved again by the other.
        other.forget().unwrap();
        one.diagnosed("thin").unwrap();
        assert_eq!(Progress::at(file).diagnosed_labs(), ["thin"]);
    }

    #[test]
    fn scores_are_kept_and_older_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("progress.json");
        std::fs::write(&file, r#"{"solved/bucket": true}"#).unwrap();
        let mut progress = Progress::at(file.clone());
        progress.solved("partition", json!({"elements with padding": 1.5})).unwrap();
        progress.diagnosed("drift").unwrap();
        let again = Progress::at(file);
        assert_eq!(again.score("bucket").as_deref(), Some("solved"));
        assert_eq!(again.score("partition").as_deref(), Some("solved, elements with padding 1.50x"));
        assert_eq!(again.score("shard-norm"), None);
    }
}
