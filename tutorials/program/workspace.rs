//! The workspace that the book is about.

use std::path::{Path, PathBuf};

/// Returns the workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}
