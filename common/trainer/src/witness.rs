//! A test's view of what each rank computes with and contributes.

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

/// How far a rank is on its way through a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// It verifies the checkpoint that it resumes; of ranks that are processes.
    Resuming,
    /// It begins a phase.
    Begins(Phase),
    /// It is about to copy its part of a checkpoint, or to stream it.
    Copying,
    /// Its part of a checkpoint is being written.
    Checkpointing,
    /// It has gathered a tensor of the final weights, which rank 0 hashes and writes next.
    Gathered(usize),
    /// It is about to share what it has measured; of ranks that are processes.
    Sharing,
    /// All ranks have shared what they have measured.
    Shared,
}

/// Sees what ranks compute with and what each contributes before anything is summed. Called on the
/// ranks' own threads, in each rank's program order. Parameters and gradients must be fp32.
pub trait Witness: Send + Sync {
    /// The rank has come to `milestone`. Before the first step, `at` has step 0.
    fn reaches(&self, _at: At, _milestone: Milestone) {}

    /// The rank counts its memory in `ledger`, from its setup until it has ended.
    fn counts(&self, _rank: usize, _ledger: &Ledger) {}

    /// The rank is about to compute with the full parameters of `unit`, padding included.
    fn computes_with(&self, _at: At, _unit: UnitId, _pass: Pass, _values: &[f32]) {}

    /// The rank hands over its own gradients of `unit`, padding included.
    fn contributes(&self, _at: At, _unit: UnitId, _values: &[f32]) {}

    /// A save of a checkpoint after `steps` steps has ended or was skipped; `failed` says why there
    /// is none.
    fn saved(&self, _rank: usize, _steps: u32, _failed: Option<&str>) {}
}
