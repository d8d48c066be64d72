//! A Llama-style transformer (Touvron et al., 2023) with hand-written forward and backward passes.
//!
//! * [`config`]: the architecture's numbers: presets and Hugging Face `config.json`.
//! * [`layout`]: its tensors, in Hugging Face's names and order, grouped in layers.
//!
//! The model knows layers and tensors. Which tensors travel together (units), and who holds which slice, is decided
//! elsewhere: a layer asks [`Weights`] for its weights and [`Gradients`] for the places to write gradients to.

pub mod config;
pub mod layout;
mod tensors;

pub use config::ModelConfig;
pub use layout::{Layer, LayerKind, Layout, TensorId, TensorSpec};
pub use tensors::{Gradients, Weights};
