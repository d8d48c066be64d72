//! What a rank itself adds to a step, before anything is summed over ranks: told as an event to whoever diagnoses
//! (`--contributions`). After the sum every rank has the same gradient, and a fault on one of them shows nowhere.

use crate::source;
use device::DType;
use events::{LocalMetrics, Pass};
use settings::Config;
use settings::{Failure, Result};

/// The part of a rank in the step that is under way.
#[derive(Default)]
pub(crate) struct Own {
    parameters: blake3::Hasher,
    squares: f64,
}

impl Own {
    /// Takes in the full parameters of a unit for a pass.
    pub(crate) fn computes_with(&mut self, pass: Pass, values: &[f32]) {
        if pass == Pass::Forward {
            source::hash(&mut self.parameters, values);
        }
    }

    /// Takes in the rank's own gradients of a unit.
    pub(crate) fn contributes(&mut self, values: &[f32]) {
        self.squares += values.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
    }

    /// The part in `step`, whose passes are over.
    pub(crate) fn part(&self, step: u32, loss: f64, waited: f64) -> LocalMetrics {
        let mut first = [0; 8];
        first.copy_from_slice(&self.parameters.finalize().as_bytes()[..8]);
        let parameters = u64::from_be_bytes(first);
        LocalMetrics { step, loss, grad_norm: self.squares.sqrt(), parameters, waited }
    }
}

/// Refuses runs whose ranks' parts cannot be told.
///
/// # Errors
/// A usage failure that names the flag to change.
pub(crate) fn check(config: &Config) -> Result<()> {
    if !config.contributions {
        return Ok(());
    }
    let types = config.precision;
    let why = if types.parameters != DType::F32 || types.gradients != DType::F32 {
        "it reads parameters and gradients as fp32: leave --precision and --grad-dtype at fp32"
    } else if config.micro_batches > 1 {
        "stages hand over several micro-batches in different pieces: leave --grad-accum at 1"
    } else {
        return Ok(());
    };
    Err(Failure::usage(format!("--contributions: {why}")))
}
