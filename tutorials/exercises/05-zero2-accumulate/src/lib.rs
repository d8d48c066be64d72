//! # Chapter 5: ZeRO-2 accumulates gradients
//!
//! Goal: this rank keeps its slice of each summed buffer and frees the buffer. The remainder of the
//! stage is `zero2/src/lib.rs`, unchanged.
//!
//! Check: `cargo run -p tutorials -- check zero2-accumulate`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

use device::Buffer;

include!(concat!(env!("OUT_DIR"), "/zero2-accumulate.rs"));

impl Zero2 {
    /// Accumulates gradients over micro-batches. The `units` have been reduce-scattered: in each
    /// full buffer this rank's slice is the sum over ranks. `self.gradients.own(unit, &self.rank)`
    /// returns the range of that slice, and `self.gradients.shard_mut(unit)?` the shard to add it
    /// to.
    fn accumulate(&mut self, units: Vec<(UnitId, Buffer)>) -> Result<()> {
        // Your code here.
        Ok(())
    }
}
