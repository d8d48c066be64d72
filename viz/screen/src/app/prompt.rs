//! The line in which a person types the number of a step or of a rank.

use super::App;
use crate::input::Keystroke;

const LONGEST: usize = 12;

/// The state of the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The text typed so far.
    pub typed: String,
    /// Why the entered text was rejected; `None` while the person types.
    pub problem: Option<String>,
}

impl App {
    pub(super) fn type_into_prompt(&mut self, key: Keystroke) {
        let Some(mut prompt) = self.prompt.take() else { return };
        let refused = prompt.problem.take().is_some();
        match key {
            Keystroke::Close => return,
            Keystroke::Enter => match self.go_to(&prompt.typed) {
                Ok(()) => return,
                Err(problem) => prompt.problem = Some(problem),
            },
            Keystroke::Erase => _ = prompt.typed.pop(),
            // What was refused is not typed on: another number replaces it, and any other key
            // closes it.
            Keystroke::Character(typed) if refused => match typed {
                ':' => prompt.typed.clear(),
                'r' | 'R' | '0'..='9' => prompt.typed = typed.into(),
                _ => return,
            },
            Keystroke::Character(typed) if prompt.typed.chars().count() < LONGEST => prompt.typed.push(typed),
            Keystroke::Character(_) => {}
        }
        self.prompt = Some(prompt);
    }

    /// Moves to the beginning of the step that `typed` names, or selects the rank whose number
    /// follows an `r`. Does nothing if it is empty.
    fn go_to(&mut self, typed: &str) -> Result<(), String> {
        let typed = typed.trim();
        match typed.strip_prefix(['r', 'R']) {
            _ if typed.is_empty() => Ok(()),
            Some(rank) => self.select_rank(rank.trim()),
            None => self.go_to_step(typed),
        }
    }

    fn select_rank(&mut self, typed: &str) -> Result<(), String> {
        let ranks = self.player().scene().now.ranks.len();
        let last = ranks.saturating_sub(1);
        if typed.is_empty() {
            return Err(format!("type r and the number of a rank, 0 to {last}"));
        }
        let rank = typed.parse().ok().filter(|rank| *rank < ranks);
        self.rank = rank.ok_or_else(|| format!("there is no rank {typed}: ranks are 0 to {last}"))?;
        Ok(())
    }

    fn go_to_step(&mut self, typed: &str) -> Result<(), String> {
        let step =
            typed.parse().map_err(|_| format!("{typed} is not a step: type a number, or r and a rank"))?;
        let step = self.lead().check_step(step)?;
        self.pause_then(|player| player.seek_step(step));
        self.sync_runs();
        Ok(())
    }
}
