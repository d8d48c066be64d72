//! The states that a checkpoint holds of each parameter.

/// A state of each parameter that a run needs to resume, in f32. Its tensors have the parameters'
/// shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingState {
    /// The master weight, or the parameter itself if that is f32.
    Weight,
    /// AdamW's decaying mean of the gradients.
    Momentum,
    /// AdamW's decaying mean of the squared gradients.
    Variance,
}

impl TrainingState {
    /// All states, in the order of their numbers.
    pub const ALL: [TrainingState; 3] =
        [TrainingState::Weight, TrainingState::Momentum, TrainingState::Variance];
}
