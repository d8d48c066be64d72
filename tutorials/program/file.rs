//! Files that this program writes.

use std::io::{Result, Write};
use std::path::Path;

/// Writes a file completely or not at all. Creates its folder if there is none.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let folder = storage::parent(path);
    std::fs::create_dir_all(folder)?;
    let mut fresh = tempfile::NamedTempFile::new_in(folder)?;
    fresh.write_all(content)?;
    fresh.persist(path).map(drop).map_err(|failed| failed.error)
}
