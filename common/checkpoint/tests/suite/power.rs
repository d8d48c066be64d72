//! Power is lost at any moment of a save. Whatever the file system keeps of unflushed data, a
//! reader finds a complete old or a complete new checkpoint.

use crate::common::{SplitMix, assert_reads_back, cases, config, values};
use crate::sharded::{assert_holds, checkpoints, newest, save};
use checkpoint::{Destination, Format, ModelFiles, Reader, Writer};
use model::{Layout, ModelConfig};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::{Change, Disk};

/// Number of a file or directory, independent of its name.
type Node = usize;

/// A file or directory: data that has reached the disk, and data that may have.
#[derive(Clone, Default)]
struct Content {
    is_directory: bool,
    bytes: Vec<u8>,
    written: Vec<(u64, Vec<u8>)>,
    entries: BTreeMap<String, Node>,
    renamed: Vec<EntryChange>,
}

/// A change to a directory's entries that has not been flushed.
#[derive(Clone)]
struct EntryChange {
    gone: Option<String>,
    new: Vec<(String, Node)>,
}

/// A file system under `root` that guarantees nothing but flushed data.
struct Volume {
    nodes: Vec<Content>,
    /// The names that a program sees.
    seen: BTreeMap<PathBuf, Node>,
}

impl Volume {
    fn new(root: &Path) -> Self {
        Volume { nodes: vec![Content::default()], seen: BTreeMap::from([(root.into(), 0)]) }
    }

    /// Returns a state that `changes` may have left.
    fn after(root: &Path, changes: &[Change]) -> Self {
        let mut volume = Volume::new(root);
        changes.iter().for_each(|change| volume.apply(change));
        volume
    }

    /// Returns the directory that contains `path`, and the name of `path` in it.
    fn place(&self, path: &Path) -> (Node, String) {
        let name = path.file_name().unwrap().to_str().unwrap();
        (self.seen[path.parent().unwrap()], name.into())
    }

    fn add(&mut self, path: &Path, is_directory: bool) {
        if self.seen.contains_key(path) {
            return;
        }
        let (parent, name) = self.place(path);
        let node = self.nodes.len();
        self.nodes.push(Content { is_directory, ..Content::default() });
        self.seen.insert(path.into(), node);
        self.nodes[parent].renamed.push(EntryChange { gone: None, new: vec![(name, node)] });
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Create(path) => self.add(path, false),
            Change::CreateDirectory(path) => {
                let new: Vec<_> = path.ancestors().take_while(|one| !self.seen.contains_key(*one)).collect();
                new.into_iter().rev().for_each(|one| self.add(one, true));
            }
            Change::Write(path, offset, bytes) => {
                let node = self.seen[path];
                self.nodes[node].written.push((*offset, bytes.clone()));
            }
            Change::Flush(path) => {
                let node = &mut self.nodes[self.seen[path]];
                for (offset, bytes) in std::mem::take(&mut node.written) {
                    overwrite(&mut node.bytes, offset, &bytes);
                }
            }
            Change::FlushDirectory(path) => {
                let node = &mut self.nodes[self.seen[path]];
                for change in std::mem::take(&mut node.renamed) {
                    change.apply(&mut node.entries);
                }
            }
            Change::Rename(from, to) => {
                let ((parent, old), (_, new)) = (self.place(from), self.place(to));
                let node = self.seen[from];
                self.nodes[parent].renamed.push(EntryChange { gone: Some(old), new: vec![(new, node)] });
                self.move_seen(from, Some(to));
            }
            Change::Exchange(new, old) => {
                let ((parent, one), (_, other)) = (self.place(new), self.place(old));
                let nodes = [(one, self.seen[old]), (other, self.seen[new])];
                self.nodes[parent].renamed.push(EntryChange { gone: None, new: nodes.into() });
                let aside = new.with_extension("aside");
                self.move_seen(new, Some(&aside));
                self.move_seen(old, Some(new));
                self.move_seen(&aside, Some(old));
            }
            Change::Link(from, to) => {
                let (node, (parent, name)) = (self.seen[from], self.place(to));
                self.seen.insert(to.clone(), node);
                self.nodes[parent].renamed.push(EntryChange { gone: None, new: vec![(name, node)] });
            }
            Change::Remove(path) => {
                let (parent, name) = self.place(path);
                self.nodes[parent].renamed.push(EntryChange { gone: Some(name), new: Vec::new() });
                self.move_seen(path, None);
            }
        }
    }

    /// Renames everything that is seen below `from`, or forgets it.
    fn move_seen(&mut self, from: &Path, to: Option<&Path>) {
        let below: Vec<PathBuf> = self.seen.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in below {
            let node = self.seen.remove(&path).unwrap();
            if let Some(to) = to {
                let rest = path.strip_prefix(from).unwrap();
                let new = if rest.as_os_str().is_empty() { to.into() } else { to.join(rest) };
                self.seen.insert(new, node);
            }
        }
    }

    /// Builds in `folder` a state that a loss of power may leave. `keeps` decides for each
    /// unflushed change whether it has reached the disk.
    fn after_loss(&self, folder: &Path, keeps: &mut impl FnMut() -> Kept) {
        self.build(0, folder, keeps);
    }

    fn build(&self, node: Node, path: &Path, keeps: &mut impl FnMut() -> Kept) {
        let mut entries = self.nodes[node].entries.clone();
        for change in &self.nodes[node].renamed {
            if keeps() != Kept::Nothing {
                change.apply(&mut entries);
            }
        }
        for (name, child) in entries {
            let path = path.join(name);
            if self.nodes[child].is_directory {
                fs::create_dir(&path).unwrap();
                self.build(child, &path, keeps);
            } else {
                fs::write(&path, self.file_after_loss(child, keeps)).unwrap();
            }
        }
    }

    fn file_after_loss(&self, node: Node, keeps: &mut impl FnMut() -> Kept) -> Vec<u8> {
        let mut bytes = self.nodes[node].bytes.clone();
        for (offset, written) in &self.nodes[node].written {
            match keeps() {
                Kept::All => overwrite(&mut bytes, *offset, written),
                Kept::Torn => overwrite(&mut bytes, *offset, &written[..written.len() / 2]),
                Kept::Nothing => {}
            }
        }
        bytes
    }
}

/// The part of a change that survives.
#[derive(Clone, Copy, PartialEq)]
enum Kept {
    All,
    Torn,
    Nothing,
}

impl EntryChange {
    fn apply(&self, entries: &mut BTreeMap<String, Node>) {
        self.gone.iter().for_each(|name| {
            entries.remove(name);
        });
        entries.extend(self.new.clone());
    }
}

fn overwrite(bytes: &mut Vec<u8>, offset: u64, written: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + written.len());
    bytes.resize(bytes.len().max(end), 0);
    bytes[start..end].copy_from_slice(written);
}

/// Saves three checkpoints, each of which removes an earlier one. Power is lost after every change.
#[test]
fn power_may_be_lost_at_any_moment_of_a_save() {
    let folder = tempfile::tempdir().unwrap();
    let kept = checkpoints(folder.path(), Disk::journaled(1));
    // Number of changes requested when each save returned.
    let saved: Vec<(usize, u32)> = [(2, 2u32), (1, 4), (2, 6), (1, 8)]
        .into_iter()
        .map(|(ranks, steps)| {
            save(&kept, ranks, steps).unwrap();
            (kept.disk().journal().len(), steps)
        })
        .collect();
    let journal = kept.disk().journal();
    assert!(journal.len() > 40, "{}", journal.len());
    let mut volume = Volume::new(folder.path());
    // The directory of checkpoints existed before.
    volume.apply(&Change::CreateDirectory(kept.directory().into()));
    volume.apply(&Change::FlushDirectory(folder.path().into()));
    let mut random = SplitMix(5);
    for (done, change) in journal.iter().enumerate() {
        volume.apply(change);
        let promised = saved.iter().rev().find(|(at, _)| *at <= done + 1).map(|(_, steps)| *steps);
        let some = (0..cases(2)).map(|_| None);
        for fate in [Some(Kept::Nothing), Some(Kept::All), Some(Kept::Torn)].into_iter().chain(some) {
            let left = tempfile::tempdir().unwrap();
            let mut keeps =
                || fate.unwrap_or_else(|| [Kept::All, Kept::Torn, Kept::Nothing][random.below(3)]);
            volume.after_loss(left.path(), &mut keeps);
            let found = newest(&checkpoints(left.path(), Disk::new(1)));
            let steps =
                found.as_ref().map(|found| found.manifest().progress["steps"].as_u64().unwrap() as u32);
            assert!(steps >= promised, "after {change:?}: {steps:?} is found, {promised:?} was saved");
            found
                .iter()
                .for_each(|found| assert_holds(found, steps.unwrap(), |elements| 0..elements.min(64)));
        }
    }
}

/// A save creates its target directory and the parents. Once it has returned, no loss of power
/// removes them.
#[test]
fn a_save_stays_in_directories_that_it_has_created() {
    for below in ["out", "a/out", "a/b/c/out"] {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(Disk::journaled(1));
        save_weights(&disk, &folder.path().join(below), &ModelConfig { vocabulary: 20, ..config() });
        let left = tempfile::tempdir().unwrap();
        Volume::after(folder.path(), &disk.journal()).after_loss(left.path(), &mut || Kept::Nothing);
        assert_eq!(found_vocabulary(&left.path().join(below)), 20, "{below}");
    }
}

/// The directory of a run's checkpoints may also be new.
#[test]
fn a_checkpoint_stays_in_directories_that_its_run_has_created() {
    let [folder, left] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let kept = checkpoints(&folder.path().join("a/b"), Disk::journaled(1));
    save(&kept, 2, 6).unwrap();
    Volume::after(folder.path(), &kept.disk().journal()).after_loss(left.path(), &mut || Kept::Nothing);
    let found = newest(&checkpoints(&left.path().join("a/b"), Disk::new(1))).unwrap();
    assert_holds(&found, 6, |elements| 0..elements.min(64));
}

/// Saves two models in turn, four times, next to a file that belongs to neither. Power is lost
/// after every change.
#[test]
fn power_may_be_lost_at_any_moment_of_a_save_of_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (out, disk) = (folder.path().join("out"), Arc::new(Disk::journaled(1)));
    fs::create_dir(&out).unwrap();
    fs::write(out.join("notes.txt"), "mine").unwrap();
    let mut volume = Volume::new(folder.path());
    for change in [
        Change::CreateDirectory(out.clone()),
        Change::FlushDirectory(folder.path().into()),
        Change::Create(out.join("notes.txt")),
        Change::Write(out.join("notes.txt"), 0, b"mine".to_vec()),
        Change::Flush(out.join("notes.txt")),
        Change::FlushDirectory(out.clone()),
    ] {
        volume.apply(&change);
    }
    let vocabularies = [19, 256, 20, 21];
    let saved = vocabularies.map(|vocabulary| {
        save_weights(&disk, &out, &ModelConfig { vocabulary, layers: 1, ..config() });
        (disk.journal().len(), vocabulary)
    });
    let mut random = SplitMix(6);
    for (done, change) in disk.journal().iter().enumerate() {
        volume.apply(change);
        let promised = saved.iter().rposition(|(at, _)| *at <= done + 1);
        let some = (0..cases(4)).map(|_| None);
        for fate in [Some(Kept::Nothing), Some(Kept::All), Some(Kept::Torn)].into_iter().chain(some) {
            let left = tempfile::tempdir().unwrap();
            let mut keeps =
                || fate.unwrap_or_else(|| [Kept::All, Kept::Torn, Kept::Nothing][random.below(3)]);
            volume.after_loss(left.path(), &mut keeps);
            let out = left.path().join("out");
            assert_eq!(fs::read_to_string(out.join("notes.txt")).unwrap(), "mine", "{done} {change:?}");
            let found = fs::exists(out.join("config.json")).unwrap().then(|| found_vocabulary(&out));
            let number = found.map(|found| vocabularies.iter().position(|one| *one == found).unwrap());
            assert!(number >= promised, "{done} {change:?}: {number:?} of {promised:?}");
        }
    }
}

fn save_weights(disk: &Arc<Disk>, out: &Path, config: &ModelConfig) {
    let layout = Layout::new(config);
    let destination = Destination { path: out, disk: disk.clone(), timeout: Duration::ZERO };
    let format = Format::default();
    let mut writer = Writer::on(destination, config, &layout, format, &ModelFiles::default()).unwrap();
    (0..layout.tensors.len()).for_each(|id| writer.write(id, &values(&layout, id)).unwrap());
    writer.finish().unwrap();
}

/// Returns the vocabulary size of the complete model in `out`.
fn found_vocabulary(out: &Path) -> usize {
    let reader = Reader::open(out).unwrap();
    let found = reader.config().unwrap();
    assert_reads_back(&reader, &Layout::new(&found));
    found.vocabulary
}
