//! The building blocks of stages: mechanism without policy.
//!
//! * [`partition`]: layers grouped into units, each a flat padded segment of which every rank owns
//!   an equal slice;
//! * [`schedule`]: which units a pass needs, and where it needs them first and last;
//! * [`full`]: full parameters and gradients as they are handed out and handed back, and the views
//!   of a layer in them;
//! * [`buckets`]: units queued for one kind of collective, and the collectives in flight;
//! * [`window`]: units that are gathered or in flight, and how far ahead to gather;
//! * [`mesh`]: groups of neighbours, for hybrid sharding ([`ReplicaSum`]) and secondary shards;
//! * [`gradients`]: sharded gradients, and what a rank does with a reduced slice;
//! * [`optimizer`]: AdamW on any slice of the units: in place, in one call; or paged through
//!   buffers, begun in that call and continued in the next forward, as are all-gathers;
//! * [`placement`]: where model states are stored: on the device, in main memory or on disk;
//! * [`precision`], [`loss_scale`]: element types, and the scale that keeps f16 gradients in range;
//! * [`PassSpan`]: emits the start and the end of a pass over a unit;
//! * [`norm`]: a gradient norm whose bits do not depend on which rank holds which slice;
//! * [`source`]: where initial weights come from.
//!
//! When to reduce, gather and free is policy, which the stage crates decide. This crate does not
//! depend on them.

pub mod buckets;
mod error;
pub mod full;
pub mod gradients;
pub mod loss_scale;
pub mod mesh;
pub mod norm;
pub mod optimizer;
pub mod partition;
mod pass_span;
pub mod placement;
pub mod precision;
mod rank;
mod replicas;
pub mod schedule;
pub mod source;
mod usage;
pub mod window;
mod wrap;

pub use buckets::{BucketOptions, Buckets};
pub use error::Error;
pub use full::{
    FullGradients, FullParameters, LayerGradients, LayerWeights, MicroBatch, StateStorage, Storage,
    UnitBuffers,
};
pub use gradients::{AfterReduce, GradientShards, HostAccumulator};
pub use loss_scale::{LossScale, LossScaler, LossScaling};
pub use mesh::{Mesh, MeshShape};
pub use model::TrainingState;
pub use norm::{global_norm, local_norm};
pub use optimizer::{
    AdamWShard, DeferredUpdateCost, Optimizer, OwnSlice, ScaledUpdate, States, Update, UpdateBuffers,
    UpdatedShardSink, read_extent,
};
pub use partition::{Partition, PersistenceLimits, TensorPart, Unit, UnitId};
pub use pass_span::PassSpan;
pub use placement::OffloadPlacement;
pub use precision::Precision;
pub use rank::Rank;
pub use replicas::ReplicaSum;
pub use schedule::{Schedule, Visits};
pub use source::WeightSource;
pub use usage::Usage;
pub use window::{GatherLimits, GatherWindow};

/// The result of this crate's functions and of the stages.
pub type Result<T> = std::result::Result<T, Error>;
