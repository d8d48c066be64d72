//! Data that reaches a disk, with and without faults.

use block::Block;
use proptest::prelude::*;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use storage::{Answers, CallKind, Disk, DiskFault, Effect, Error, File, PAGE, Publication, Result};

mod block;

fn fault(kind: CallKind, number: u64, effect: Effect) -> Vec<DiskFault> {
    vec![DiskFault { kind: Some(kind), number, effect }]
}

/// Writes `bytes` at `offset` and waits.
fn write(disk: &Disk, file: &Arc<File>, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut block = Block::new(bytes.len());
    block.as_mut().copy_from_slice(bytes);
    disk.write(file, offset, block).wait().map(drop)
}

fn read(disk: &Disk, file: &Arc<File>, offset: u64, length: usize) -> Result<Vec<u8>> {
    let block = disk.read(file, offset, Block::new(length)).wait()?;
    Ok(block.memory.as_ref().to_vec())
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + seed * 7 + i / PAGE) as u8).collect()
}

/// Writes a file like a checkpoint does: data, flush, rename, flush of the directory.
fn publish(disk: &Disk, folder: &Path) -> Result<()> {
    disk.create_directory(folder)?;
    let file = disk.create(&folder.join("new"))?;
    // Memory that begins on a page would be written in two calls.
    write(disk, &file, 0, &pattern(3 * PAGE + 5, 1)[1..])?;
    disk.flush(&file)?;
    disk.rename(&folder.join("new"), &folder.join("state"))?;
    disk.flush_directory(folder)
}

#[test]
fn every_call_can_fail_and_the_error_names_call_file_and_place() {
    let calls = {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::recording(2, Vec::new());
        publish(&disk, &folder.path().join("a")).unwrap();
        disk.record()
    };
    assert!(calls.len() >= 6, "{calls:?}");
    for number in 1..=calls.len() as u64 {
        let folder = tempfile::tempdir().unwrap();
        let effect = Effect::Error(ErrorKind::PermissionDenied);
        let disk = Disk::with_faults(2, vec![DiskFault { kind: None, number, effect }]);
        let error = publish(&disk, &folder.path().join("a")).unwrap_err();
        let call = &calls[number as usize - 1];
        assert_eq!((error.call, error.offset), (call.kind, call.offset), "{error}");
        assert_eq!(error.path.file_name(), call.path.file_name(), "{error}");
        let words = error.to_string();
        assert!(words.starts_with(&format!("cannot {}", call.kind)) && words.contains("permission denied"));
        assert!(!folder.path().join("a/state").exists() || call.kind == CallKind::FlushDirectory, "{error}");
    }
}

#[test]
fn the_names_of_new_directories_reach_the_disk_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a", "a/b", "a/b/c"].map(|name| folder.path().join(name));
    let flushes = |path: &Path| {
        let disk = Disk::recording(1, Vec::new());
        disk.create_directory_durably(path).unwrap();
        assert!(path.is_dir());
        let flushes = disk.record().into_iter().filter(|call| call.kind == CallKind::FlushDirectory);
        flushes.map(|call| call.path).collect::<Vec<_>>()
    };
    assert_eq!(flushes(&b), [folder.path(), &a]);
    assert_eq!(flushes(&c), [&*b]);
    assert_eq!(flushes(&c), [] as [&Path; 0]);
}

#[test]
fn after_a_crash_nothing_reaches_the_disk() {
    for number in 1..=6 {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::with_faults(1, vec![DiskFault { kind: None, number, effect: Effect::Crash }]);
        publish(&disk, folder.path()).unwrap_err();
        assert!(disk.create(&folder.path().join("later")).is_err());
        assert!(!folder.path().join("later").exists());
    }
}

#[test]
fn only_regular_files_are_opened_and_none_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let disk = Disk::new(1);
    for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
        let error = disk.open(path).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot open {}: it is not a regular file", path.display()));
        assert!(storage::read_regular(path).is_err());
    }
    assert!(disk.reopen(&pipe).is_err());
}

#[test]
fn a_full_disk_refuses_what_takes_room_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::with_faults(1, fault(CallKind::Write, 2, Effect::Full));
    let file = disk.create(&folder.path().join("a")).unwrap();
    write(&disk, &file, 0, &pattern(PAGE, 1)).unwrap();
    let error = write(&disk, &file, PAGE as u64, &pattern(PAGE, 2)).unwrap_err();
    assert!(error.is_full() && error.offset == Some(PAGE as u64), "{error}");
    assert!(disk.create(&folder.path().join("b")).unwrap_err().is_full());
    assert_eq!(read(&disk, &file, 0, PAGE).unwrap(), pattern(PAGE, 1));
    disk.unlink(&folder.path().join("a")).unwrap();
}

#[test]
fn a_disk_that_begins_to_fail_fails_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(1);
    let file = disk.create(&folder.path().join("a")).unwrap();
    write(&disk, &file, 0, &pattern(PAGE, 1)).unwrap();
    disk.fail(Effect::Full);
    assert!(write(&disk, &file, 0, &pattern(PAGE, 2)).unwrap_err().is_full());
    assert_eq!(read(&disk, &file, 0, PAGE).unwrap(), pattern(PAGE, 1));
    disk.fail(Effect::Error(ErrorKind::Other));
    assert!(read(&disk, &file, 0, PAGE).is_err() && read(&disk, &file, 0, PAGE).is_err());
}

#[test]
fn a_file_that_somebody_truncates_is_named_with_the_byte_where_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(1);
    let path = folder.path().join("swap");
    let file = disk.create(&path).unwrap();
    write(&disk, &file, 0, &pattern(4 * PAGE, 1)).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2 * PAGE as u64).unwrap();
    assert_eq!(disk.length(&file).unwrap(), 2 * PAGE as u64);
    let Error { call, offset, cause, .. } = read(&disk, &file, 0, 4 * PAGE).unwrap_err();
    assert_eq!((call, offset), (CallKind::Read, Some(2 * PAGE as u64)));
    assert_eq!(cause.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn what_was_written_makes_room_for_what_is_read_next() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::recording(2, fault(CallKind::Write, 3, Effect::Full));
    let file = disk.create(&folder.path().join("a")).unwrap();
    write(&disk, &file, PAGE as u64, &pattern(PAGE, 1)).unwrap();
    let exchange = || {
        let mut block = Block::new(PAGE);
        block.as_mut().copy_from_slice(&pattern(PAGE, 2));
        disk.write_then_read(&file, (0, PAGE as u64), block)
    };
    let (written, read) = exchange();
    let read = read.wait().unwrap();
    assert!(written.wait().unwrap().ended <= read.began);
    assert_eq!(read.memory.as_ref(), pattern(PAGE, 1));
    drop(read);
    assert_eq!(self::read(&disk, &file, 0, PAGE).unwrap(), pattern(PAGE, 2));
    let (written, read) = exchange();
    let error = written.wait().err().unwrap();
    assert_eq!((error.call, error.offset), (CallKind::Write, Some(0)));
    assert!(read.wait().is_err(), "nothing is read into what was not written");
    assert_eq!(disk.record().iter().filter(|call| call.kind == CallKind::Read).count(), 2);
}

/// An empty buffer that blocks the thread until the barrier falls.
struct Held(Arc<Barrier>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.0.wait();
        &[]
    }
}

#[test]
fn what_is_first_is_begun_before_what_has_waited_longer() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::recording(1, Vec::new());
    let file = disk.create(&folder.path().join("a")).unwrap();
    disk.reserve(&file, 0, 4 * PAGE as u64).unwrap();
    let barrier = Arc::new(Barrier::new(2));
    let held = disk.write(&file, 0, Held(barrier.clone()));
    let last = disk.read(&file, PAGE as u64, Block::new(PAGE));
    let first = [2, 3].map(|page| disk.read_first(&file, page * PAGE as u64, Block::new(PAGE)));
    barrier.wait();
    held.wait().unwrap();
    last.wait().unwrap();
    first.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    let reads = disk.record().into_iter().filter(|call| call.kind == CallKind::Read);
    let pages: Vec<u64> = reads.filter_map(|call| call.offset).map(|offset| offset / PAGE as u64).collect();
    assert_eq!(pages, [2, 3, 1]);
}

#[test]
fn a_delayed_transfer_does_not_hold_up_the_others() {
    let overtakes = |delay: Duration| {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::recording(2, fault(CallKind::Write, 1, Effect::Delay(delay)));
        let file = disk.create(&folder.path().join("a")).unwrap();
        let started = Instant::now();
        let slow = disk.write(&file, 0, Block::new(PAGE));
        while disk.record().iter().all(|call| call.kind != CallKind::Write) {
            std::thread::yield_now();
        }
        let quick = disk.write(&file, PAGE as u64, Block::new(PAGE)).wait().unwrap();
        let slow = slow.wait().unwrap();
        assert!(started.elapsed() >= delay);
        quick.ended < slow.ended
    };
    // A machine that stalls for the whole delay hides the difference: try again with a longer one.
    assert!([200, 2000, 20_000].map(Duration::from_millis).into_iter().any(overtakes));
}

#[test]
fn a_disk_that_hangs_says_in_which_call_and_keeps_nobody_who_drops_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::with_faults(2, fault(CallKind::Read, 1, Effect::Hang));
    let file = disk.create(&folder.path().join("a")).unwrap();
    write(&disk, &file, 0, &pattern(PAGE, 1)).unwrap();
    let hung = disk.read(&file, PAGE as u64, Block::new(PAGE));
    while disk.answers().oldest.is_none() {
        std::thread::yield_now();
    }
    let Answers { returned, oldest } = disk.answers();
    let call = oldest.unwrap();
    assert_eq!(
        (call.kind, call.path.as_path(), call.offset),
        (CallKind::Read, file.path(), Some(PAGE as u64))
    );
    write(&disk, &file, 0, &pattern(PAGE, 2)).unwrap();
    assert_eq!(disk.answers().returned, returned + 1, "the other thread goes on");
    assert!(hung.wait_for(Duration::ZERO).is_none());
    let started = Instant::now();
    drop(disk);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_scratch_file_has_no_name_and_keeps_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(1);
    let file = disk.scratch(&folder.path().join("swap")).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    write(&disk, &file, PAGE as u64, &pattern(PAGE, 3)).unwrap();
    assert_eq!(read(&disk, &file, PAGE as u64, PAGE).unwrap(), pattern(PAGE, 3));
    assert_eq!(disk.length(&file).unwrap(), 2 * PAGE as u64);
}

#[test]
fn a_file_that_is_shorter_than_its_room_is_neither_read_nor_written() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(1);
    let path = folder.path().join("swap");
    let file = disk.create(&path).unwrap();
    disk.reserve(&file, 0, 4 * PAGE as u64).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(PAGE as u64).unwrap();
    for error in [
        read(&disk, &file, 0, PAGE).unwrap_err(),
        write(&disk, &file, 3 * PAGE as u64, &pattern(PAGE, 1)).unwrap_err(),
    ] {
        assert!(error.to_string().contains("truncated to 4096 of 16384 bytes"), "{error}");
    }
}

#[test]
fn reserved_room_reads_as_zero_and_a_full_disk_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::with_faults(1, fault(CallKind::Reserve, 2, Effect::Full));
    let file = disk.scratch(&folder.path().join("swap")).unwrap();
    disk.reserve(&file, 0, 2 * PAGE as u64).unwrap();
    assert_eq!(read(&disk, &file, 0, 2 * PAGE).unwrap(), vec![0; 2 * PAGE]);
    assert!(disk.reserve(&file, 2 * PAGE as u64, PAGE as u64).unwrap_err().is_full());
}

/// Publishing through a link writes its target, whether that exists or not, and keeps the link.
#[test]
fn a_publication_follows_links() {
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("link"), folder.path().join("elsewhere/report"));
    fs::create_dir(folder.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere/report", &link).unwrap();
    for text in ["first", "second"] {
        Publication::write(&Arc::new(Disk::new(1)), &link, text.into()).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), text);
        assert!(link.is_symlink());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any writes, cut short anywhere, leave the bytes that the same writes leave in a vector.
    #[test]
    fn files_hold_what_was_written(
        writes in proptest::collection::vec((0u64..40_000, 1usize..30_000), 1..8),
        short in proptest::collection::vec((1u64..12, 1usize..9_000), 0..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let faults = |kind| move |&(number, bytes)| DiskFault { kind: Some(kind), number, effect: Effect::Short(bytes) };
        let injected = short.iter().map(faults(CallKind::Write)).chain(short.iter().map(faults(CallKind::Read)));
        let disk = Disk::with_faults(2, injected.collect());
        let file = disk.create(&folder.path().join("a")).unwrap();
        let mut expected: Vec<u8> = Vec::new();
        for (seed, &(offset, length)) in writes.iter().enumerate() {
            let (bytes, end) = (pattern(length, seed), offset as usize + length);
            expected.resize(expected.len().max(end), 0);
            expected[offset as usize..end].copy_from_slice(&bytes);
            write(&disk, &file, offset, &bytes).unwrap();
        }
        prop_assert_eq!(disk.length(&file).unwrap(), expected.len() as u64);
        prop_assert_eq!(read(&disk, &file, 0, expected.len()).unwrap(), expected.clone());
        disk.flush(&file).unwrap();
        prop_assert_eq!(fs::read(folder.path().join("a")).unwrap(), expected);
    }
}
