//! A rank's local contribution to a step, before the sum over ranks. `--contributions` emits it as
//! an event for diagnosis: after the sum every rank has the same gradient, which hides a fault on
//! one rank.

use device::DType;
use device::floats::sum_of_squares;
use events::{LocalMetrics, Pass};
use settings::{Config, Failure, Result};

/// A rank's local contribution to the current step.
#[derive(Default)]
pub(crate) struct LocalContribution {
    parameters: blake3::Hasher,
    squares: f64,
    /// Seconds that the rank had waited for peers before the step.
    waited_before: f64,
}

impl LocalContribution {
    /// Returns an empty contribution to a step that begins after the rank has waited `waited`
    /// seconds for peers.
    pub(crate) fn begin(waited: f64) -> Self {
        LocalContribution { waited_before: waited, ..LocalContribution::default() }
    }

    /// Adds the full parameters of a unit for a pass.
    pub(crate) fn add_parameters(&mut self, pass: Pass, values: &[f32]) {
        if pass == Pass::Forward {
            self.parameters.update(bytemuck::cast_slice(values));
        }
    }

    /// Adds the rank's local gradients of a unit.
    pub(crate) fn add_gradients(&mut self, values: &[f32]) {
        self.squares += sum_of_squares(values);
    }

    /// Returns the contribution to `step` after the update, given the rank's mean loss and the
    /// total seconds that it has waited for peers.
    pub(crate) fn finish(&self, step: u32, loss: f64, waited: f64) -> LocalMetrics {
        let parameters = u64::from_be_bytes(self.parameters.finalize().as_bytes().as_chunks().0[0]);
        let waited = waited - self.waited_before;
        LocalMetrics { step, loss, grad_norm: self.squares.sqrt(), parameters, waited }
    }
}

/// Refuses runs whose ranks' contributions cannot be measured.
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
        "with several micro-batches, some stages pass on accumulated gradients: leave --grad-accum at 1"
    } else {
        return Ok(());
    };
    Err(Failure::usage(format!("--contributions: {why}")))
}
