//! # Chapter 6: ZeRO-3 gathers
//!
//! Goal: a unit's all-gather is issued, neither twice nor too late. The rest of the stage is
//! `zero3/src/lib.rs`, as it is.
//!
//! Check: `cargo run -p tutorials -- check zero3-gather`; hints: `--hints 1`, `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

include!(concat!(env!("OUT_DIR"), "/zero3-gather.rs"));

impl Zero3 {
    /// Issues `unit`'s all-gather, unless the window already holds the unit or is waiting for it.
    /// Full sharding is enough: the group is `self.rank.shard_group()`, the shard
    /// `self.parameters.get(unit)?`.
    fn gather(&mut self, unit: UnitId, pass: Pass) -> Result<()> {
        // Your code here.
        Ok(())
    }
}
