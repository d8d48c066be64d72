//! The book's exercises. Each is a crate under `tutorials/exercises` with a function body to write.
//! Their tasks and hints are in `exercises.json`.

use serde::Deserialize;
use std::sync::LazyLock;
use trainer::{Failure, Result};

/// An exercise.
#[derive(Deserialize)]
pub struct Exercise {
    /// The name of the exercise and of its crate.
    pub name: String,
    /// The chapter that contains it.
    pub chapter: u32,
    /// The task.
    pub task: String,
    /// Hints, from vague to almost the answer.
    pub hints: [String; 2],
}

/// The exercises, in the book's order.
pub static ALL: LazyLock<Vec<Exercise>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("exercises.json"))
        .expect("it is part of the program, and a test reads it")
});

impl Exercise {
    /// Finds an exercise by its name or its folder's name.
    ///
    /// # Errors
    /// A usage failure that lists all names, if none matches.
    pub fn of(name: &str) -> Result<&'static Exercise> {
        ALL.iter().find(|exercise| exercise.name == name || exercise.folder() == name).ok_or_else(|| {
            let names = ALL.iter().map(|exercise| exercise.name.as_str()).collect::<Vec<_>>().join(", ");
            Failure::usage(format!("there is no exercise {name:?}; choose one of {names}"))
        })
    }

    /// Returns the name of the exercise's folder.
    pub fn folder(&self) -> String {
        format!("{:02}-{}", self.chapter, self.name)
    }

    /// Returns the path of the exercise's starter.
    pub fn file(&self) -> String {
        format!("tutorials/exercises/{}/src/lib.rs", self.folder())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_knows_every_exercise_and_every_exercise_is_there() {
        let root = crate::workspace::root();
        let folders = std::fs::read_dir(root.join("tutorials/exercises")).unwrap();
        let folders: Vec<_> =
            folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(folders.len(), ALL.len() + 1, "and what checks them: {folders:?}");
        for exercise in ALL.iter() {
            assert!(root.join(exercise.file()).exists(), "{}", exercise.file());
            let chapter = crate::book::pages().unwrap().into_iter().nth(exercise.chapter as usize).unwrap();
            let command = format!("-- check {}`", exercise.name);
            assert!(std::fs::read_to_string(chapter).unwrap().contains(&command), "{command}");
        }
    }
}
