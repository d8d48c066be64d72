//! Shows a save change by change, and what a reader finds if it is interrupted there.

use checkpoint::{Checkpoints, ElementRange, Manifest, ShardLayout, ShardWriter};
use model::{Layout, ModelConfig, TrainingState};
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use storage::{Change, Disk};
use trainer::{Failure, Result};

/// Number of ranks that save.
const RANKS: usize = 2;
/// Steps after which the ranks save.
const STEPS: [u32; 2] = [2, 4];
/// The directory of the checkpoints.
const KEPT: &str = "kept";

/// The changes that the file system keeps.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// Every change, as after the death of a process.
    All,
    /// Flushed changes.
    Flushed,
    /// Flushed changes, and all names.
    Names,
}

/// Returns a drawing of the second of two saves. It shows each change, and the checkpoint that is
/// found after it if the process dies or the machine loses power at that point.
pub(super) fn lines() -> Result<Vec<String>> {
    drawing().map_err(|e| Failure::run(format!("table: commit: {e}")))
}

fn drawing() -> std::result::Result<Vec<String>, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let kept = Checkpoints::new(&folder.path().join(KEPT), Arc::new(Disk::journaled(1)));
    save(&kept, STEPS[0])?;
    let before = kept.disk().journal().len();
    save(&kept, STEPS[1])?;
    let journal = kept.disk().journal();
    let heads = [["a reader finds, if", ""], ["a rank dies here", "power fails here"]];
    let mut lines: Vec<String> =
        ["```text".into()].into_iter().chain(heads.map(|heads| row("", heads))).collect();
    for at in before..journal.len() {
        let Some(words) = words(&journal[at], journal.get(at + 1)) else { continue };
        let found = |fate| found(&journal[..=at], folder.path(), fate);
        let (killed, mut lost) =
            (found(Fate::All)?, vec![found(Fate::Flushed)?, found(Fate::Names)?, found(Fate::All)?]);
        lost.dedup();
        lines.push(row(&words, [&killed, &lost.join(" or ")]));
    }
    lines.push("```".into());
    Ok(lines)
}

fn row(what: &str, [killed, lost]: [&str; 2]) -> String {
    format!("{what:<55} {killed:<20} {lost}").trim_end().into()
}

/// Saves zeros from all ranks, one after another.
fn save(kept: &Checkpoints, steps: u32) -> checkpoint::Result<()> {
    let (layout, partial) = (layout(), kept.partial(steps, 1));
    kept.disk().create_directory(kept.directory())?;
    kept.disk().create_directory(&partial)?;
    let files = (0..RANKS).map(|rank| {
        let range = |(tensor, spec): (usize, &model::TensorSpec)| {
            let part = spec.elements() / RANKS;
            ElementRange { tensor, range: rank * part..(rank + 1) * part }
        };
        let shard = ShardLayout::new(&layout, &[layout.tensors.iter().enumerate().map(range).collect()]);
        let name = format!("rank-{rank:05}-of-{RANKS:05}.safetensors");
        let writer = ShardWriter::create(kept.disk(), &partial, &name, &shard)?;
        writer.write_all(vec![0u8; shard.data_bytes()], shard.data_bytes()).1
    });
    let manifest = Manifest {
        progress: json!({}),
        identity: json!({}),
        record: json!({}),
        block_bytes: checkpoint::BLOCK as u64,
        files: files.collect::<checkpoint::Result<_>>()?,
        model_files: Vec::new(),
    };
    kept.publish(&partial, steps, &manifest)?;
    Ok(())
}

/// Returns the tensors of a small model, each of an even number of elements.
fn layout() -> Layout {
    let config =
        ModelConfig { vocabulary: 16, width: 8, layers: 1, heads: 2, kv_heads: 2, ..ModelConfig::tiny() };
    Layout::new(&ModelConfig { head_dim: 4, feed_forward: 8, ..config })
}

/// Returns a change in words. `None` if the next change continues it.
fn words(change: &Change, next: Option<&Change>) -> Option<String> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let writes =
        |path: &Path| next.is_some_and(|next| matches!(next, Change::Write(next, ..) if next == path));
    Some(match change {
        Change::Create(path) | Change::Write(path, ..) if writes(path) => return None,
        Change::CreateDirectory(path) if name(path) == KEPT => return None,
        Change::CreateDirectory(path) => format!("create {}/", name(path)),
        Change::Create(path) | Change::Write(path, ..) => format!("write    {}", name(path)),
        Change::Flush(path) => format!("flush    {}", name(path)),
        Change::FlushDirectory(path) => format!("flush  {}/", name(path)),
        Change::Rename(from, to) => format!("rename {}/ to {}/", name(from), name(to)),
        Change::Exchange(one, other) => format!("exchange {}/ and {}/", name(one), name(other)),
        Change::Link(from, to) => format!("link {} as {}", name(from), name(to)),
        Change::Remove(path) => format!("remove {}", name(path)),
    })
}

/// Returns the steps of the newest intact checkpoint that remains of `changes` below `root`.
fn found(
    changes: &[Change],
    root: &Path,
    fate: Fate,
) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let left = tempfile::tempdir()?;
    fs::create_dir(left.path().join(KEPT))?;
    for (at, change) in changes.iter().enumerate() {
        if fate == Fate::All || is_kept(change, &changes[at..], fate) {
            make(change, &|path| left.path().join(path.strip_prefix(root).unwrap_or(path)))?;
        }
    }
    let kept = Checkpoints::new(&left.path().join(KEPT), Arc::new(Disk::new(1)));
    let newest = kept.names()?.into_iter().find(|name| is_intact(&kept, name).is_ok());
    Ok(newest.unwrap_or("none".into()))
}

/// True if the file system keeps `change`, the first of `later`, when power is lost after them.
fn is_kept(change: &Change, later: &[Change], fate: Fate) -> bool {
    let flushed = |path: &Path| later.iter().any(|later| matches!(later, Change::Flush(of) if of == path));
    let listed = |path: &Path| {
        let parent = path.parent();
        later.iter().any(|later| matches!(later, Change::FlushDirectory(of) if Some(of.as_path()) == parent))
    };
    match change {
        Change::Write(path, ..) => flushed(path),
        Change::Create(path)
        | Change::CreateDirectory(path)
        | Change::Remove(path)
        | Change::Exchange(_, path)
        | Change::Link(_, path)
        | Change::Rename(_, path) => fate == Fate::Names || listed(path),
        Change::Flush(_) | Change::FlushDirectory(_) => true,
    }
}

/// Repeats a change elsewhere, unless its target has been lost.
fn make(change: &Change, elsewhere: &dyn Fn(&Path) -> std::path::PathBuf) -> io::Result<()> {
    let made = match change {
        Change::Create(path) => fs::File::create(elsewhere(path)).map(drop),
        Change::Write(path, offset, bytes) => OpenOptions::new()
            .write(true)
            .open(elsewhere(path))
            .and_then(|file| file.write_all_at(bytes, *offset)),
        Change::CreateDirectory(path) => fs::create_dir_all(elsewhere(path)),
        Change::Rename(from, to) => fs::rename(elsewhere(from), elsewhere(to)),
        Change::Link(from, to) => fs::hard_link(elsewhere(from), elsewhere(to)),
        // Only saves of weights exchange names with an existing directory.
        Change::Exchange(..) => Err(io::ErrorKind::Unsupported.into()),
        Change::Remove(path) => fs::remove_dir_all(elsewhere(path)),
        Change::Flush(_) | Change::FlushDirectory(_) => Ok(()),
    };
    made.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Reads all of the checkpoint `name`.
fn is_intact(kept: &Checkpoints, name: &str) -> checkpoint::Result<()> {
    let layout = layout();
    let opened = kept.open(name, kept.manifest(name)?, &layout)?;
    for state in TrainingState::ALL {
        for (tensor, spec) in layout.tensors.iter().enumerate() {
            opened.verify(state, tensor, &(0..spec.elements()))?;
        }
    }
    Ok(())
}
