//! The contents of a checkpoint's files, and the elements of each file that another number of ranks
//! reads.

use events::say::grouped;
use prediction::{Job, Partition, Stage};
use shell::table::Table;
use std::ops::Range;
use std::path::Path;
use trainer::{Failure, Result};

/// Number of ranks that saved the checkpoint.
const WRITERS: u64 = 4;
/// Number of ranks that read it.
const READERS: u64 = 3;
/// Bytes per element: three states in f32.
const BYTES: u64 = 12;

/// Returns the elements of a unit that rank `rank` of `ranks` owns, without padding.
fn owned(elements: u64, ranks: u64, rank: u64) -> Range<u64> {
    let slice = elements.div_ceil(ranks);
    elements.min(rank * slice)..elements.min((rank + 1) * slice)
}

/// Returns the elements of a unit that `reader` reads from the file of `writer`, counted from the
/// unit's first element in the file.
fn read(elements: u64, writer: u64, reader: u64) -> Range<u64> {
    let (stored, wanted) = (owned(elements, WRITERS, writer), owned(elements, READERS, reader));
    let (start, end) = (stored.start.max(wanted.start), stored.end.min(wanted.end));
    if start < end { start - stored.start..end - stored.start } else { 0..0 }
}

/// Returns the parameters of each unit of the model that the book trains.
fn units() -> Result<Vec<u64>> {
    let config = stages::config("")?;
    let job = Job { wrap: config.wrap, ..Job::new(config.model, Stage::Zero3, WRITERS as usize) };
    Ok(Partition::of(&job).sizes())
}

fn table(unit: &str) -> Table {
    let files = (0..WRITERS).map(|writer| format!("file {writer}"));
    Table::numbers(unit, ["its slice".to_string()].into_iter().chain(files))
}

/// Returns a table of the elements of the first block that each rank reads.
pub(super) fn block() -> Result<Table> {
    // The embedding comes first.
    let elements = units()?[1];
    let mut table = table("block 0, elements");
    let words = |range: Range<u64>| {
        if range.is_empty() {
            "–".to_string()
        } else {
            format!("{}..{}", grouped(range.start), grouped(range.end))
        }
    };
    for reader in 0..READERS {
        let parts = (0..WRITERS).map(|writer| words(read(elements, writer, reader)));
        let slice = words(owned(elements, READERS, reader));
        table.row(format!("rank {reader} of {READERS}"), [slice].into_iter().chain(parts));
    }
    Ok(table)
}

/// Returns the number of bytes of all units that `reader` reads from the file of `writer`.
fn bytes(units: &[u64], writer: u64, reader: u64) -> u64 {
    let part = |elements: &u64| {
        let range = read(*elements, writer, reader);
        BYTES * (range.end - range.start)
    };
    units.iter().map(part).sum()
}

/// Returns a table of the bytes of the whole model that each rank reads.
pub(super) fn whole() -> Result<Table> {
    let units = units()?;
    let mut table = table("the model, bytes");
    let mut row = |name: String, cells: Vec<u64>| {
        table.row(name, [cells.iter().sum()].into_iter().chain(cells).map(grouped));
    };
    for reader in 0..READERS {
        let cells = (0..WRITERS).map(|writer| bytes(&units, writer, reader)).collect();
        row(format!("rank {reader} of {READERS}"), cells);
    }
    let file = |writer| (0..READERS).map(|reader| bytes(&units, writer, reader)).sum();
    row("all".into(), (0..WRITERS).map(file).collect());
    Ok(table)
}

/// A file of a checkpoint.
struct Saved {
    name: String,
    bytes: u64,
    /// The number of bytes in its header.
    header: u64,
}

/// Trains for one step and returns the files that the ranks save.
fn saved() -> Result<Vec<Saved>> {
    let folder = tempfile::tempdir().map_err(|e| Failure::run(format!("table: files: {e}")))?;
    let flags = format!("--gpus {WRITERS} --steps 1 --batch-size 1 --seq-len 8 --headless --checkpoint kept");
    let mut config = stages::config(&flags)?;
    config.output.checkpoint.iter_mut().for_each(|directory| *directory = folder.path().into());
    stages::train(Stage::Zero3, config)?;
    let names = (0..WRITERS).map(|writer| format!("rank-{writer:05}-of-{WRITERS:05}.safetensors"));
    names.map(|name| file(&folder.path().join("step-00000001"), name)).collect()
}

fn file(directory: &Path, name: String) -> Result<Saved> {
    let fail = |what: String| Failure::run(format!("table: files: {name}: {what}"));
    let content = std::fs::read(directory.join(&name)).map_err(|e| fail(e.to_string()))?;
    // The first bytes hold the length of the header that follows.
    let (length, _) = content.split_first_chunk().ok_or_else(|| fail("it has no header".into()))?;
    let header = (length.len() as u64).saturating_add(u64::from_le_bytes(*length));
    Ok(Saved { bytes: content.len() as u64, header, name })
}

/// Returns a table of a checkpoint's files.
pub(super) fn files() -> Result<Table> {
    let mut table = Table::numbers("file", ["bytes", "header", "elements × 12", "blocks"]);
    for Saved { name, bytes, header } in saved()? {
        let cells = [bytes, header, bytes - header, bytes.div_ceil(checkpoint::BLOCK as u64)];
        table.row(format!("`{name}`"), cells.map(grouped));
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_run_have_as_many_bytes_as_the_readers_read() {
        let units = units().unwrap();
        for (writer, file) in saved().unwrap().into_iter().enumerate() {
            let read: u64 = (0..READERS).map(|reader| bytes(&units, writer as u64, reader)).sum();
            assert_eq!(file.bytes - file.header, read, "{}", file.name);
        }
    }
}
