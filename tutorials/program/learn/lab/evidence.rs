//! What a run leaves behind for a diagnosis: its recording, in which each rank tells of its own part in every step.

use super::case::{Case, RANKS};
use events::{Event, LocalMetrics, Recording, RecordingError, StepRecord, What};
use planner::Stage;
use settings::Config;
use settings::fault::Fault;
use std::collections::BTreeMap;
use std::path::Path;
use trainer::{At, Failure, Report, Result};

/// A run, as its ranks saw it.
#[derive(Debug)]
pub struct Evidence {
    /// Every rank's part in every step whose passes it has finished.
    pub parts: BTreeMap<At, LocalMetrics>,
    /// The steps that ended.
    pub steps: Vec<StepRecord>,
    /// The report; what it ended with, if it failed.
    pub outcome: std::result::Result<Box<Report>, String>,
}

impl Evidence {
    /// Runs `stage` with `faults` and records it as `file`.
    ///
    /// # Errors
    /// If the run cannot begin. A run that fails on its way is evidence.
    pub fn of(stage: Stage, faults: &[Fault], file: &Path) -> Result<Self> {
        let config = stages::config(&Case::flags())?;
        let config = Config { faults: faults.to_vec(), record: Some(file.to_path_buf()), ..config };
        // What an earlier run has left there is no evidence of this one.
        let _ = std::fs::remove_file(file);
        let outcome = stages::train(stage, config);
        let read = |e: RecordingError| Failure::run(e.to_string());
        let (parts, steps) = match (&outcome, Recording::open(file)) {
            (_, Ok(recording)) => {
                (parts(&recording).map_err(read)?, recording.final_state().map_err(read)?.history.steps)
            }
            (Ok(_), Err(error)) => return Err(read(error)),
            (Err(_), Err(_)) => Default::default(),
        };
        match outcome {
            Err(failure) if parts.is_empty() => Err(failure),
            outcome => {
                Ok(Evidence { parts, steps, outcome: outcome.map(Box::new).map_err(|e| e.to_string()) })
            }
        }
    }

    /// A rank's part in a step, if it got so far.
    pub fn part(&self, step: u32, rank: usize) -> Option<&LocalMetrics> {
        self.parts.get(&At { step, rank })
    }

    /// A step's parts in the order of ranks; none if not all ranks got so far.
    pub fn ranks(&self, step: u32) -> Option<Vec<&LocalMetrics>> {
        (0..RANKS).map(|rank| self.part(step, rank)).collect()
    }
}

/// What the ranks have told.
fn parts(recording: &Recording) -> std::result::Result<BTreeMap<At, LocalMetrics>, RecordingError> {
    recording.events().filter_map(|event| event.map(part).transpose()).collect()
}

fn part(event: Event) -> Option<(At, LocalMetrics)> {
    let What::Contributed(part) = event.what else { return None };
    Some((At { step: part.step, rank: event.rank as usize }, part))
}
