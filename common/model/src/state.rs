//! The states of a parameter that a checkpoint holds.

/// A state of each parameter that a run needs to resume, f32. Its tensors have the parameters'
/// shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingState {
    /// Its master weight; the parameter itself where that is f32.
    Weight,
    /// AdamW's decaying mean of its gradients.
    Momentum,
    /// AdamW's decaying mean of their squares.
    Variance,
}

impl TrainingState {
    /// Every one, in the order of their numbers.
    pub const ALL: [TrainingState; 3] =
        [TrainingState::Weight, TrainingState::Momentum, TrainingState::Variance];
}
