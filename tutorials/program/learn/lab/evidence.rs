//! What a run leaves behind for a diagnosis: what each rank computed with and contributed, and how long it waited.

use super::case::{Case, RANKS};
use planner::Stage;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use trainer::config::Config;
use trainer::faults::Fault;
use trainer::report::StepRow;
use trainer::{At, Report, Result, Witness};

/// One rank's part in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// Mean loss of its own part of the batch.
    pub loss: f64,
    /// Squares of its own gradients, added up.
    squares: f64,
    /// Stands for the parameters that its forward computed with.
    pub fingerprint: u64,
    /// Seconds that it waited for other ranks.
    pub waiting: f64,
}

impl Part {
    /// Norm of its own gradients, before they are summed over ranks.
    pub fn norm(&self) -> f64 {
        self.squares.sqrt()
    }
}

/// A run, as its ranks saw it.
#[derive(Debug)]
pub struct Evidence {
    /// Every rank's part in every step that it began.
    pub parts: BTreeMap<At, Part>,
    /// The steps that ended, as rank 0 saw them.
    pub steps: Vec<StepRow>,
    /// The report; what it ended with, if it failed.
    pub outcome: std::result::Result<Box<Report>, String>,
}

#[derive(Default)]
struct Looking {
    parts: Mutex<BTreeMap<At, Part>>,
    steps: Mutex<Vec<StepRow>>,
}

impl Looking {
    fn part(&self, at: At, change: impl FnOnce(&mut Part)) {
        change(self.parts.lock().unwrap_or_else(PoisonError::into_inner).entry(at).or_default());
    }
}

impl Witness for Looking {
    fn computes_with(&self, at: At, _unit: usize, pass: events::Pass, values: &[f32]) {
        if pass == events::Pass::Forward {
            let own = fingerprint(values);
            self.part(at, |part| part.fingerprint = part.fingerprint.rotate_left(7) ^ own);
        }
    }

    fn contributes(&self, at: At, _unit: usize, values: &[f32]) {
        let squares: f64 = values.iter().map(|&g| f64::from(g) * f64::from(g)).sum();
        self.part(at, |part| part.squares += squares);
    }

    fn loses(&self, at: At, loss: f64) {
        self.part(at, |part| part.loss = loss);
    }

    fn finishes(&self, at: At, row: &StepRow, waiting: f64) {
        self.part(at, |part| part.waiting = waiting);
        if at.rank == 0 {
            self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(*row);
        }
    }
}

/// A number that other values would hardly have.
fn fingerprint(values: &[f32]) -> u64 {
    let step = |hash: u64, value: &f32| (hash ^ u64::from(value.to_bits())).wrapping_mul(0x100_0000_01b3);
    values.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Evidence {
    /// Runs `stage` with `faults` and records it as `file`.
    ///
    /// # Errors
    /// If the run cannot begin. A run that fails on its way is evidence.
    pub fn of(stage: Stage, faults: &[Fault], file: &Path) -> Result<Self> {
        let config = stages::config(&Case::flags())?;
        let config = Config { faults: faults.to_vec(), record: Some(file.to_path_buf()), ..config };
        let looking = Arc::new(Looking::default());
        let outcome = match stages::train_under(stage, config, looking.clone()) {
            Ok(report) => Ok(Box::new(report)),
            Err(failure) if taken(&looking.parts).is_empty() => return Err(failure),
            Err(failure) => Err(failure.to_string()),
        };
        Ok(Evidence { parts: taken(&looking.parts), steps: taken(&looking.steps), outcome })
    }

    /// A rank's part in a step, if it began it.
    pub fn part(&self, step: u32, rank: usize) -> Option<&Part> {
        self.parts.get(&At { step, rank })
    }

    /// A step's parts in the order of ranks; none if not all ranks began it.
    pub fn ranks(&self, step: u32) -> Option<Vec<&Part>> {
        (0..RANKS).map(|rank| self.part(step, rank)).collect()
    }
}

fn taken<T: Clone>(kept: &Mutex<T>) -> T {
    kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
