//! Any damage to any file of a checkpoint is detected, and the previous checkpoint is used.

use crate::common::{SplitMix, cases};
use crate::sharded::{assert_holds, checkpoints, newest, open, save};
use checkpoint::BLOCK;
use std::fs;
use std::path::{Path, PathBuf};
use storage::Disk;

/// Damage to a checkpoint's files, undone after it was looked for.
enum Damage {
    /// Replaces a file's content. `None` removes the file.
    Content(PathBuf, Option<Vec<u8>>),
    /// Swaps the names of two files.
    Swap(PathBuf, PathBuf),
}

impl Damage {
    /// Draws damage to the checkpoint in `directory`. `before` is the previous checkpoint.
    fn draw(random: &mut SplitMix, directory: &Path, before: &Path) -> Self {
        let files = files(directory);
        let file = files[random.below(files.len())].clone();
        let mut bytes = fs::read(&file).unwrap();
        let at = random.below(bytes.len());
        match random.below(12) {
            0 => bytes.truncate(at),
            1 => bytes.extend((0..=random.below(20)).map(|byte| byte as u8)),
            2 => return Damage::Content(file, None),
            3 => {
                let other = files.iter().find(|other| **other != file).unwrap().clone();
                return Damage::Swap(file, other);
            }
            4 => {
                return Damage::Content(
                    file.clone(),
                    Some(fs::read(before.join(file.file_name().unwrap())).unwrap()),
                );
            }
            5 => bytes[at..].rotate_left(1),
            6 if bytes.len() > BLOCK => {
                let (first, rest) = bytes.split_at_mut(BLOCK);
                let length = rest.len().min(BLOCK);
                first[..length].swap_with_slice(&mut rest[..length]);
            }
            7 => bytes[at..].fill(0),
            _ => bytes[at] ^= 1 << random.below(8),
        }
        Damage::Content(file, Some(bytes))
    }

    /// Does the damage and returns its undo. `None` if it changes nothing.
    fn strike(self) -> Option<Self> {
        match self {
            Damage::Content(file, content) => {
                let whole = fs::read(&file).ok();
                if whole == content {
                    return None;
                }
                match content {
                    Some(bytes) => fs::write(&file, bytes).unwrap(),
                    None => fs::remove_file(&file).unwrap(),
                }
                Some(Damage::Content(file, whole))
            }
            Damage::Swap(one, other) => {
                let aside = one.with_extension("aside");
                fs::rename(&one, &aside).unwrap();
                fs::rename(&other, &one).unwrap();
                fs::rename(&aside, &other).unwrap();
                Some(Damage::Swap(one, other))
            }
        }
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// `CASES=10000` draws 10,000 cases; everyday runs draw fewer.
#[test]
fn no_damage_goes_unseen() {
    for ranks in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let kept = checkpoints(folder.path(), Disk::new(2));
        save(&kept, ranks, 2).unwrap();
        save(&kept, ranks, 4).unwrap();
        let [newer, older] = ["step-00000004", "step-00000002"].map(|name| kept.directory().join(name));
        let mut random = SplitMix(ranks as u64);
        let mut struck = 0;
        for case in 0..cases(120) / 2 {
            let Some(undo) = Damage::draw(&mut random, &newer, &older).strike() else { continue };
            struck += 1;
            let error = open(&kept, "step-00000004").err();
            let error = error.unwrap_or_else(|| panic!("case {case} on {ranks} ranks goes unseen"));
            assert!(error.to_string().contains("step-00000004"), "{error}");
            if case % 16 == 0 {
                assert_holds(&newest(&kept).unwrap(), 2, |elements| elements / 2..elements);
            }
            undo.strike().unwrap();
        }
        assert!(struck > cases(120) / 3, "{struck}");
        assert_holds(&newest(&kept).unwrap(), 4, |elements| 0..elements);
    }
}
