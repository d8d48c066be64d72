//! Weights in and out: safetensors in the Hugging Face layout, written atomically.
//!
//! * [`Writer`] takes a model's tensors one at a time, in any order, and leaves a directory that Transformers loads:
//!   `model.safetensors`, `config.json` and, for byte-level models, a tokenizer. Nothing appears under its final name
//!   before all of it is on the disk.
//! * [`Reader`] opens such a directory (one file or many shards), validates it whole, and then reads any slice of any
//!   tensor, so that a rank reads only the elements that it owns.
//! * [`tokenizer`] is the byte-level tokenizer: a token's id is the byte's value.
//! * [`atomic`] replaces files so that each is seen either old or new, never half-written.
//!
//! The file format: <https://github.com/huggingface/safetensors#format>. All of it is little-endian.

pub mod atomic;
mod elements;
mod error;
mod index;
mod positioned;
mod reader;
mod source;
pub mod tokenizer;
mod writer;

pub use error::CheckpointError;
pub use reader::Reader;
pub use writer::Writer;

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, CheckpointError>;

/// The weights of a model that is kept in one file.
const WEIGHTS: &str = "model.safetensors";
/// Which file holds which tensor, for a model that is kept in several.
const INDEX: &str = "model.safetensors.index.json";
/// The architecture.
const CONFIG: &str = "config.json";
