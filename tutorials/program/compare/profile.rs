//! A rank's memory over one step, from a recording.

use events::{Class, Place, Recording, RecordingError, What};
use screen::window::MemorySample;
use std::path::Path;

const CLASSES: usize = Class::ALL.len();

/// The memory of rank 0 during the last step of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    /// Live memory after each change, with nanoseconds since the step began. The first sample is
    /// the start.
    pub(crate) samples: Vec<MemorySample>,
    /// Duration of the step in nanoseconds.
    pub(crate) length: u64,
}

impl Profile {
    /// Reads the last complete step of a recording.
    pub(crate) fn read(recording: &Path) -> Result<Self, RecordingError> {
        let recording = Recording::open(recording)?;
        let (mut running, mut finished) = (Profile::default(), Profile::default());
        let (mut live, mut began) = ([0; CLASSES], 0);
        for event in recording.events() {
            let event = event?;
            if event.rank != 0 {
                continue;
            }
            let at = event.at.saturating_sub(began);
            match event.what {
                What::StepStarted { .. } => {
                    began = event.at;
                    running = Profile { samples: vec![MemorySample { at: 0, live }], length: 0 };
                }
                What::Memory { place: Place::Device, class, live: bytes, .. } => {
                    live[class.index()] = bytes;
                    running.samples.push(MemorySample { at, live });
                }
                What::StepFinished { .. } => finished = Profile { length: at, ..running.clone() },
                _ => {}
            }
        }
        Ok(finished)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.samples.iter().map(MemorySample::total).max().unwrap_or(0)
    }

    /// Divides the step into `columns` of equal time. Each shows its moment with the most live
    /// bytes, so that no peak is lost.
    pub(crate) fn columns(&self, columns: usize) -> Vec<[u64; CLASSES]> {
        let mut samples = self.samples.iter().peekable();
        let mut current = MemorySample::default();
        let column = |index: usize| {
            let end = (index as u64 + 1) * self.length / columns as u64;
            let mut most = current;
            while let Some(sample) = samples.next_if(|sample| sample.at <= end) {
                current = *sample;
                if current.total() >= most.total() {
                    most = current;
                }
            }
            most.live
        };
        (0..columns).map(column).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the profile of a step in which activations grow and shrink.
    pub(crate) fn hill() -> Profile {
        let sample = |at: u64, activations: u64, workspace: u64| {
            let mut live = [0; CLASSES];
            live[Class::Parameters.index()] = 20;
            live[Class::Activations.index()] = activations;
            live[Class::Workspace.index()] = workspace;
            MemorySample { at, live }
        };
        let heights =
            [(0, 0, 0), (10, 30, 0), (20, 60, 0), (50, 60, 20), (51, 60, 0), (80, 30, 0), (95, 0, 0)];
        Profile { samples: heights.map(|(at, a, w)| sample(at, a, w)).into(), length: 100 }
    }

    #[test]
    fn columns_keep_peaks_however_short() {
        for columns in [4, 10, 33] {
            let most = hill().columns(columns).iter().map(|live| live.iter().sum::<u64>()).max();
            assert_eq!(most, Some(100), "{columns} columns");
        }
        assert_eq!(hill().peak(), 100);
    }
}
