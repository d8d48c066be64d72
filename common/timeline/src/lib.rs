//! When a predicted step does what.
//!
//! [`prediction::scripts`] says what a rank does, in order. This crate gives each action its time:
//! operations and bytes over the rates that a [GPU](Gpu) reaches, collectives over the links that
//! they cross, on streams that overlap as a run's do. How much of a data sheet's rates training
//! reaches is [calibrated](calibration) on published step times.

pub mod calibration;
mod clock;
mod cost;
mod efficiency;
mod estimate;
mod hardware;
mod play;
mod published;
mod rings;
mod stream;
mod work;

pub use clock::{Clock, StepTime};
pub use cost::Costs;
pub use efficiency::{Calibration, Efficiency, Software};
pub use estimate::{Estimate, estimate};
pub use hardware::{
    A100, A100_40, Cluster, GPUS, Generation, Gpu, H100, H200, Machine, RTX_4090, RTX_PRO_6000,
};
pub use play::{PredictedRun, is_recordable, play};
pub use published::{Published, SOURCES};
pub use stream::Span;
