//! Reads and writes weights and checkpoints: safetensors in the Hugging Face layout, written
//! atomically.
//!
//! * [`Writer`] takes a model's tensors one at a time, in any order, and leaves a directory that
//!   Transformers loads: `model.safetensors` (or shards and their index), `config.json` and a
//!   tokenizer. [`ModelFiles`] are the small files that are saved with the weights. The new
//!   directory replaces the old one atomically.
//! * [`Reader`] opens such a directory (one file or many shards), validates all of it, and then
//!   reads any slice of any tensor, so that a rank reads only the elements that it owns.
//! * [`state`] holds a run's checkpoints, which any stage can resume on any number of ranks: one
//!   file per rank, a manifest with the hash of every block, and the lock of their directory.
//!
//! ```no_run
//! use checkpoint::{Format, Reader, Writer};
//! use model::Layout;
//!
//! // A rank loads its half of the final norm, and nothing else.
//! let reader = Reader::open("some-model")?;
//! let config = reader.config()?;
//! let layout = Layout::new(&config);
//! reader.check(&layout)?;
//! let mut tensors = layout.tensors.iter();
//! let norm = tensors.position(|tensor| tensor.name == "model.norm.weight").unwrap_or(0);
//! let mut shard = vec![0.0; config.width / 2];
//! reader.read(&layout.tensors[norm], 0..config.width / 2, &mut shard)?;
//!
//! // One rank saves gathered tensors, one by one.
//! let mut writer = Writer::create("trained", &config, &layout, Format::default())?;
//! for (id, tensor) in layout.tensors.iter().enumerate() {
//!     writer.write(id, &vec![0.0; tensor.elements()])?;
//! }
//! writer.finish()?;
//! # checkpoint::Result::Ok(())
//! ```
//!
//! The file format is documented at <https://github.com/huggingface/safetensors#format>. All
//! numbers in it are little-endian.

mod elements;
mod error;
mod file_reader;
mod file_writer;
mod header;
mod index;
mod model_files;
mod names;
mod reader;
mod replacement;
pub mod state;
mod tensor_files;
mod writer;

use names::CONFIG;

pub use elements::{ElementType, not_finite};
pub use error::CheckpointError;
pub use model_files::ModelFiles;
pub use reader::Reader;
pub use state::blocks::BLOCK;
pub use state::lock::LockOptions;
pub use state::{
    Checkpoints, ElementRange, FileRecord, Manifest, OpenCheckpoint, RunLock, ShardLayout, ShardWriter,
};
pub use writer::{Destination, Format, Writer};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, CheckpointError>;
