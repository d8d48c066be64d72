//! Files that this program writes.

use std::io::Result;
use std::path::Path;
use std::sync::Arc;
use storage::{Disk, Publication};

/// Writes a file completely or not at all. Creates its folder if needed.
pub(crate) fn replace(path: &Path, content: Vec<u8>) -> Result<()> {
    std::fs::create_dir_all(storage::parent(path))?;
    Publication::write(&Arc::new(Disk::new(1)), path, content).map_err(|error| error.cause)
}
