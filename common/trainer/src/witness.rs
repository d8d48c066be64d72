//! A test's view of what each rank computes with and contributes.

use device::Ledger;
use events::Pass;
use sharding::UnitId;

/// A rank in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The step, from 0.
    pub step: u32,
    /// The rank.
    pub rank: usize,
}

/// Sees what ranks that are threads compute with and what each contributes before anything is
/// summed. Called on the ranks' own threads, in each rank's program order. Parameters and gradients
/// must be fp32.
pub trait Witness: Send + Sync {
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
