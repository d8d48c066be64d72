//! # Chapter 6: ZeRO-3 gathers
//!
//! Goal: a unit's all-gather is issued, neither twice nor too late. The remainder of the stage is
//! `zero3/src/lib.rs`, unchanged.
//!
//! Check: `cargo run -p tutorials -- check zero3-gather`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

include!(concat!(env!("OUT_DIR"), "/zero3-gather.rs"));

impl Zero3 {
    /// Issues `unit`'s all-gather, unless the window already holds the unit or is waiting for it.
    /// Supporting full sharding is enough: the group is `self.rank.shard_group()`, and the shard is
    /// `self.parameters.get(unit)?`.
    fn gather(&mut self, unit: UnitId, pass: Pass) -> Result<()> {
        // Your code here.
        Ok(())
    }
}
