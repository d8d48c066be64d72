//! # Chapter 5: ZeRO-2 takes in gradients
//!
//! Goal: of each full buffer that comes back summed, this rank keeps its slice, and lets the rest go. The rest of the stage
//! is `zero2/src/lib.rs`, as it is.
//!
//! Check: `cargo run -p tutorials -- check zero2-accumulate`; a hint: `--hints 1`, another: `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

include!(concat!(env!("OUT_DIR"), "/zero2-accumulate.rs"));

impl Zero2 {
    /// `units` have come back from their reduce-scatter: in each full buffer this rank's slice is the sum over ranks.
    /// `self.gradients.own(unit, &self.rank)` says where that slice lies, `self.gradients.shard_mut(unit)?` is this rank's
    /// shard, to which micro-batches add up.
    fn accumulate(&mut self, units: Vec<(UnitId, Buffer)>) -> Result<()> {
        // Your code here.
        Ok(())
    }
}
