//! A Llama-style transformer (Touvron et al., 2023) with hand-written forward and backward passes.
//! Mistral, Qwen2 and Qwen3 are supported with small differences.
//!
//! * [`config`]: the numbers of the architecture; presets by name; Hugging Face's `config.json`.
//! * [`layout`]: the model's tensors, in Hugging Face's names and order, grouped in layers.
//! * [`init`]: seeded initial weights, for any slice of any tensor.
//! * [`embedding`], [`block`], [`head`]: the layers. The forward and the backward of an operation
//!   are neighbours, and each module states which buffers it allocates and frees, in order.
//!
//! The model knows layers and tensors. It does not know which tensors form a unit, or which rank
//! holds which slice: a layer asks [`Weights`] for its weights and [`Gradients`] for the places in
//! which to write gradients.
//!
//! # Memory
//!
//! The layers' tables are a contract: the planner predicts the ledger's peaks from them to the
//! byte. They use R for the rows of a micro-batch (batch · tokens), d for the width, H = heads ·
//! head_dim, K = kv_heads · head_dim, f for the feed-forward width, V for the vocabulary and e for
//! the bytes of an element of the weights' type, which is also the activations' type. Statistics
//! (inverse root mean squares, logarithms of sums, losses) are f32: 4 bytes. The buffers that
//! forward keeps for backward are activations, and backward's own buffers are workspace. The caller
//! chooses how much forward keeps ([`Keep`]); buffers that backward computes again are activations,
//! as in forward.

pub mod block;
pub mod config;
mod context;
pub mod embedding;
mod error;
mod flops;
pub mod head;
pub mod init;
mod keep;
pub mod layout;
mod linear;
mod norm;
mod state;
mod tensors;
mod wrap;

pub use block::{CompleteBlock, SavedBlock};
pub use config::{Family, ModelConfig, RopeScaling};
pub use context::{Batch, Model};
pub use error::ModelError;
pub use head::{Losses, SavedHead};
pub use keep::{Checkpointing, Keep};
pub use layout::{Layer, LayerKind, Layout, TensorId, TensorSpec};
pub use state::TrainingState;
pub use tensors::{Gradients, Weights};
pub use wrap::Wrap;
