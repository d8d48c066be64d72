//! The evidence for a diagnosis: a run's recording, which holds each rank's own part of every step.

use super::case::{Case, RANKS};
use events::{Event, LocalMetrics, Recording, RecordingError, StepRecord, What};
use prediction::Stage;
use settings::fault::Fault;
use std::collections::BTreeMap;
use std::path::Path;
use trainer::{At, Failure, Report, Result};

/// A run as its ranks recorded it.
#[derive(Debug)]
pub struct Evidence {
    /// Each rank's part of every step whose passes it finished.
    pub parts: BTreeMap<At, LocalMetrics>,
    /// The steps that ended.
    pub steps: Vec<StepRecord>,
    /// The report, or the error that ended the run.
    pub outcome: std::result::Result<Box<Report>, String>,
}

impl Evidence {
    /// Runs `stage` with `faults` and records it to `file`.
    ///
    /// # Errors
    /// If the run cannot start. A run that fails later is evidence.
    pub fn of(stage: Stage, faults: &[Fault], file: &Path) -> Result<Self> {
        let mut config = stages::config(&Case::flags())?;
        (config.faults, config.output.record) = (faults.to_vec(), Some(file.to_path_buf()));
        // An earlier run's recording must not count as evidence.
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

    /// Returns a rank's part of a step. `None` if the rank did not get that far.
    pub fn part(&self, step: u32, rank: usize) -> Option<&LocalMetrics> {
        self.parts.get(&At { step, rank })
    }

    /// Returns a step's parts in the order of ranks. `None` if a rank did not get that far.
    pub fn ranks(&self, step: u32) -> Option<Vec<&LocalMetrics>> {
        (0..RANKS).map(|rank| self.part(step, rank)).collect()
    }
}

fn parts(recording: &Recording) -> std::result::Result<BTreeMap<At, LocalMetrics>, RecordingError> {
    recording.events().filter_map(|event| event.map(part).transpose()).collect()
}

fn part(event: Event) -> Option<(At, LocalMetrics)> {
    let What::Contributed(part) = event.what else { return None };
    Some((At { step: part.step, rank: event.rank as usize }, part))
}
