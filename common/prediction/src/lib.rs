//! Predicts a run before it starts: bytes per rank and bytes on the wire.
//!
//! It answers two questions.
//!
//! * *What would a model of Ψ parameters need?* [`recipe`] has the bytes per parameter and the
//!   formulas of the ZeRO paper (Rajbhandari et al., 2020, section 3 and table 1).
//! * *What will this run need, to the byte?* [`predict()`] walks a run's timeline (gather, forward,
//!   backward, reduce, step) with a [symbolic ledger](ledger) and counts what each rank sends. A
//!   run's own ledger and counters must agree with it in every class and operation; a difference is
//!   a mistake in one of the two. This crate shares no code with the crates that shard, gather and
//!   reduce, so that a mistake cannot hide on both sides.
//!
//! [`scripts`] returns what a rank does on that walk, in program order, for `timeline` to give it
//! times. [`largest_batch_within`] answers the inverse question: how large may a micro-batch be
//! under a capacity?
//!
//! Sizes are in bytes unless a name says otherwise; GB = 10⁹ bytes.

mod activations;
pub mod closed;
mod counts;
mod fit;
mod gather;
mod gathering;
mod header;
pub mod invalid;
pub mod job;
pub mod ledger;
mod moment;
mod offload;
pub mod partition;
mod phases;
pub mod placement;
mod predict;
mod rank;
pub mod recipe;
mod reduce;
mod regather;
mod remedies;
mod script;
mod stage;
mod strategy;
mod theory;
pub mod traffic;
pub mod transfers;
mod walk;

pub use fit::largest_batch_within;
pub use gathering::{BackwardPrefetch, Gathering};
pub use header::header;
pub use invalid::InvalidJob;
pub use job::Job;
pub use ledger::Memory;
pub use moment::{Moment, Peak};
pub use partition::{Partition, Unit};
pub use phases::{PerPhase, RunCounts};
pub use placement::{
    Limits, MIN_STREAM_PIECES, Placement, STREAM_BUFFER, STREAM_BUFFERS, SUB_GROUP, Saving, place_word,
};
pub use predict::{
    Prediction, RankPrediction, Requirements, first_step, peaks_without_updates, predict, requirements,
    scripts,
};
pub use recipe::{ModelStates, Recipe};
pub use remedies::{Remedies, Remedy, Room, change, remedies};
pub use script::{Action, After, Begins, CpuTask, CpuWork, Issued, Moved};
pub use stage::Stage;
pub use strategy::Strategy;
pub use traffic::{Algorithm, Among, Traffic};
pub use transfers::Transfers;
