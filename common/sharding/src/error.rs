//! Errors of a stage.

use collectives::CollectiveError;
use device::{DeviceError, OutOfMemory};

/// A stage failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// On this rank's device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Between ranks.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// Between the rank's places: a disk could not be read or written, or a simulated link needs
    /// longer than the rank's peers wait.
    #[error("{0}")]
    Offload(offload::Error),
    /// Initial weights could not be read.
    #[error("initial weights: {0}")]
    Weights(String),
    /// The gradient has no finite norm.
    #[error("the gradient norm is {norm} in step {step}: {remedy}", remedy = finite_gradients(*.updates))]
    NonFinite {
        /// NaN or infinity.
        norm: f64,
        /// The training step, counted from 0; skipped steps count.
        step: u32,
        /// Number of updates finished before; skipped steps have none.
        updates: u32,
    },
    /// Gradients overflow f16 however little the loss is scaled.
    #[error(
        "gradients overflow fp16 although the loss scale is at its minimum, {scale}; steps skipped: {skipped}. \
         Lower --lr, train in --precision bf16, or give a lower --min-loss-scale"
    )]
    LossScaleAtMinimum {
        /// The scale.
        scale: f64,
        /// Steps skipped so far.
        skipped: u32,
    },
    /// A unit was handed out twice or handed back without having been handed out: a bug in a stage.
    #[error("unit {unit}: missing {what} (handed out twice, or never gathered); this is a bug in the stage")]
    Missing {
        /// The unit.
        unit: usize,
        /// The buffer that is missing, as a noun.
        what: &'static str,
    },
    /// A buffer that no stage hands out is not where the unit's update, fetch or gather expects
    /// it: a bug in the code that manages the buffer.
    #[error("unit {unit}: no {what}; this is a bug in this program")]
    NoBuffer {
        /// The unit.
        unit: usize,
        /// The buffer that was expected, as a noun.
        what: &'static str,
    },
}

/// Returns the remedy for a gradient that is not finite after this number of updates. Before the
/// first one, the learning rate has changed no weight.
fn finite_gradients(updates: u32) -> &'static str {
    match updates {
        0 => "no weight has been updated yet, so check the initial weights and the data",
        _ => "lower --lr, or raise --warmup-steps",
    }
}

impl From<offload::Error> for Error {
    fn from(error: offload::Error) -> Self {
        match error {
            offload::Error::Device(error) => Error::Device(error),
            offload::Error::Group(error) => Error::Collective(error),
            error => Error::Offload(error),
        }
    }
}

impl Error {
    /// Returns the out-of-memory account; `None` for any other error.
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            Error::Device(DeviceError::OutOfMemory(oom)) => Some(oom),
            _ => None,
        }
    }
}
