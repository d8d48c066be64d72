//! Checkpoints of a run: the weight and the optimizer states of each parameter, in f32. All ranks
//! write them in parallel, and any number of ranks can read them.
//!
//! A checkpoint is a directory, `step-00000100`, with one file per rank that wrote it ([`shard`])
//! and a [`manifest`] with the hash of every block. It appears whole or not at all: all files are
//! written and flushed in a directory with a temporary name, then the manifest; then that directory
//! is renamed and its parent flushed. A run resumes from the newest directory whose manifest and
//! blocks are intact; no pointer file names it. A run holds the [`lock`] of the directory of its
//! checkpoints.

pub mod blocks;
mod directory;
pub mod lock;
pub mod manifest;
mod reader;
pub mod shard;
mod writer;

pub use directory::Checkpoints;
pub use lock::RunLock;
pub use manifest::{FORMAT, FileRecord, Manifest};
pub use reader::OpenCheckpoint;
pub use shard::{ElementRange, ShardLayout};
pub use writer::ShardWriter;
