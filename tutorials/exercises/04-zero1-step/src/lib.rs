//! # Chapter 4: ZeRO-1's update
//!
//! Goal: every rank updates its slice of each unit; then every rank has the full parameters again.
//! The remainder of the stage is `zero1/src/lib.rs`, unchanged.
//!
//! Check: `cargo run -p tutorials -- check zero1-step`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

include!(concat!(env!("OUT_DIR"), "/zero1-step.rs"));

impl Zero1 {
    /// Implements the stage's `update`; `update` also clips the gradients. For each of
    /// `self.partition.units`, `self.optimizer.update_unit(&self.rank, unit, update, &mut
    /// self.parameters, &self.gradients)` updates this rank's slice. `self.gathers` queues units
    /// for the all-gather.
    fn written_update(&mut self, update: ScaledUpdate) -> Result<()> {
        // Your code here.
        Ok(())
    }
}
