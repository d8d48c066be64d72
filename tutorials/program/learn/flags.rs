//! Flags of runs that more than one question or table uses. Each run is executed once.

/// Four ranks, five steps.
pub(crate) const FIVE: &str = "--gpus 4 --steps 5 --headless";
/// Four ranks, two short steps.
pub(crate) const TWO: &str = "--gpus 4 --steps 2 --batch-size 2 --headless";
/// Four ranks, two steps of four micro-batches.
pub(crate) const ACCUMULATED: &str = "--gpus 4 --steps 2 --batch-size 2 --grad-accum 4 --headless";
/// ZeRO-1 with the textbook's reduction.
pub(crate) const TEXTBOOK: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --grad-sync all-reduce";
/// The whole model is one unit.
pub(crate) const ONE_UNIT: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --wrap model";
/// The whole model fits into one bucket.
pub(crate) const ONE_BUCKET: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --reduce-bucket 1000000";
/// 16-bit weights and gradients with fp32 masters: the recipe `mixed`.
pub(crate) const BF16: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --precision bf16";
/// The recipe `mixed` on eight ranks.
pub(crate) const BF16_OF_EIGHT: &str = "--gpus 8 --steps 2 --batch-size 2 --headless --precision bf16";
