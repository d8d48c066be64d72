//! A test's view of the parameters and gradients of each rank.

use device::Ledger;
use events::Pass;
use settings::fault::Phase;
use sharding::UnitId;

/// A rank in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The step, from 0.
    pub step: u32,
    /// The rank.
    pub rank: usize,
}

/// A point that a rank reaches in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// The rank verifies the checkpoint that it resumes; reported by ranks that are processes.
    Resuming,
    /// The rank begins a phase.
    Begins(Phase),
    /// The rank is about to copy or stream its states to a checkpoint.
    Copying,
    /// The rank's file of a checkpoint is being written.
    Checkpointing,
    /// The rank has gathered a tensor of the final weights, which rank 0 hashes and writes next.
    Gathered(usize),
    /// The rank is about to share its measurements; reported by ranks that are processes.
    Sharing,
    /// All ranks have shared their measurements.
    Shared,
}

/// Observes the parameters with which ranks compute, and each rank's gradients before the sum over
/// ranks. Called on the ranks' own threads, in each rank's program order. Parameters and gradients
/// must be fp32.
pub trait Witness: Send + Sync {
    /// Called when the rank has reached `milestone`. Before the first step, `at` has step 0.
    fn on_milestone(&self, _at: At, _milestone: Milestone) {}

    /// Called in the rank's setup with the ledger that counts its memory until the rank ends.
    fn on_ledger(&self, _rank: usize, _ledger: &Ledger) {}

    /// Called before the rank computes with the full parameters of `unit`, padding included.
    fn on_parameters(&self, _at: At, _unit: UnitId, _pass: Pass, _values: &[f32]) {}

    /// Called when the rank hands its local gradients of `unit`, padding included, to the stage.
    fn on_gradients(&self, _at: At, _unit: UnitId, _values: &[f32]) {}

    /// Called when a save of a checkpoint after `steps` steps has ended or was skipped. `failed` is
    /// `None` if the checkpoint is saved, and says why not otherwise.
    fn on_checkpoint(&self, _rank: usize, _steps: u32, _failed: Option<&str>) {}
}
