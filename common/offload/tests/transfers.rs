//! A rank's transfers between places: contents, counts, times, and failures.

#![allow(clippy::unwrap_used)]

use collectives::local::{self, Link, groups};
use device::{Class, DType, Device, Ledger, Place};
use events::{Emitter, Route};
use offload::{Effect, OnDisk, Options, PAGE, TransferLabel, Transfers, WaitLimits, paged};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use storage::{CallKind, Disk, DiskFault};

const LABEL: TransferLabel = TransferLabel { class: Class::Optimizer, unit: 1 };

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not within a minute.
fn soon(mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(60), "the transfer does not end");
        std::thread::yield_now();
    }
}

fn rank(options: Options<'_>) -> (Device, Transfers) {
    let emitter = Emitter::silent(0);
    let device = Device::cpu(Ledger::new(emitter.clone(), None), 1);
    let transfers = Transfers::new(device.clone(), emitter, options).unwrap();
    (device, transfers)
}

fn on_disk(directory: &Path) -> (Device, Transfers) {
    rank(Options { directory: Some(directory), ..Options::default() })
}

#[test]
fn bytes_come_back_from_main_memory_and_from_disk_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let (device, transfers) = on_disk(folder.path());
    let values: Vec<f32> = (0..3000).map(|i| i as f32 * 0.5).collect();
    let sent = device.upload(Class::Parameters, &values).unwrap();
    let mut staging = transfers.staging(DType::F32, values.len()).unwrap();
    assert_eq!((staging.byte_len(), staging.bytes().as_ptr().addr() % PAGE), (3 * PAGE, 0));
    let crossing = transfers.copy(LABEL, staging.slice_mut(0..values.len()), sent.view()).unwrap();
    transfers.wait(crossing).unwrap();
    let extent = transfers.extent(Class::Parameters, 4 * values.len()).unwrap();
    assert_eq!(extent.bytes(), 3 * PAGE);
    let written = transfers.write(OnDisk::first(LABEL, &extent, 3 * PAGE), staging);
    let mut buffer = transfers.wait_staged(written).unwrap().buffer;
    buffer.bytes_mut().fill(7);
    let arrived =
        transfers.wait_staged(transfers.read(OnDisk::first(LABEL, &extent, 3 * PAGE), buffer)).unwrap();
    let mut back = device.allocate(Class::Parameters, DType::F32, values.len()).unwrap();
    transfers.wait(transfers.copy_to_device(LABEL, back.view_mut(), &arrived).unwrap()).unwrap();
    assert_eq!(back.as_slice::<f32>(), values);
    let moved = transfers.moved();
    let of = |route: Route| (moved.bytes[route.index()], moved.calls[route.index()]);
    assert_eq!(of(Route::DeviceToHost), (12_000, 1));
    assert_eq!(of(Route::HostToDisk), (3 * PAGE as u64, 1));
    assert_eq!(of(Route::DiskToHost), (3 * PAGE as u64, 1));
    assert_eq!(of(Route::HostToDevice), (12_000, 1));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name");
    let ledger = device.ledger();
    assert_eq!(ledger.live(Place::Disk, Class::Parameters), paged(12_000) as u64);
    drop((extent, arrived));
    assert_eq!(ledger.live_total(Place::Disk) + ledger.live_total(Place::Host), 0);
}

/// A disk that is too small is found before anything is written.
#[test]
fn room_is_taken_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::cpu(Ledger::new(Emitter::silent(0), None), 1);
    let full = DiskFault { kind: Some(CallKind::Reserve), number: 1, effect: Effect::Full };
    let storage = Some(Disk::with_faults(1, vec![full]));
    let options =
        Options { directory: Some(folder.path()), storage, reserved_bytes: 1, ..Options::default() };
    let error = Transfers::new(device, Emitter::silent(0), options).err().unwrap().to_string();
    assert!(error.contains("cannot reserve") && error.contains(&*folder.path().to_string_lossy()), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_simulated_link_takes_its_time_and_hides_behind_work() {
    let link = Link { latency: Duration::from_millis(1), bandwidth: 1e6 };
    let (device, transfers) = rank(Options { host: Some(link), ..Options::default() });
    let sent = device.zeros(Class::Gradients, DType::F32, 5000).unwrap();
    let mut host = device.allocate_host(Class::Gradients, DType::F32, 5000).unwrap();
    let mut copy = || transfers.copy(LABEL, host.view_mut(), sent.view()).unwrap();
    let waited = |crossing| {
        let total = || transfers.moved().waited[Route::DeviceToHost.index()];
        let before = total();
        transfers.wait(crossing).unwrap();
        total() - before
    };
    let since = Instant::now();
    let crossing = copy();
    let hidden = since.elapsed().as_secs_f64();
    let exposed = waited(crossing);
    assert!(since.elapsed() >= Duration::from_millis(21), "{:?}", since.elapsed());
    assert!(exposed + hidden > 0.015, "{exposed} + {hidden}");
    let crossing = copy();
    soon(|| transfers.has_crossed(&crossing));
    assert!(!transfers.would_wait(&crossing), "a transfer that is over is not waited for");
    transfers.wait(crossing).unwrap();
}

/// A buffer that was complete before it is sent has been on a simulated link since then, and does
/// not delay the next one.
#[test]
fn a_link_carries_what_is_complete_before_the_rank_sends_it() {
    let link = Link { latency: Duration::from_millis(20), bandwidth: f64::INFINITY };
    let (device, transfers) = rank(Options { host: Some(link), ..Options::default() });
    let sent = device.zeros(Class::Gradients, DType::F32, 8).unwrap();
    let mut host = device.allocate_host(Class::Gradients, DType::F32, 8).unwrap();
    let complete = Instant::now();
    while complete.elapsed() < 3 * link.latency {
        std::hint::spin_loop();
    }
    let mut send = || transfers.copy_or_borrow_since(complete, LABEL, host.view_mut(), sent.view()).unwrap();
    let [early, behind] = [send(), send()];
    assert!(!transfers.would_wait(&early) && !transfers.would_wait(&behind), "both have crossed");
    let since = Instant::now();
    let late = transfers.copy_or_borrow(LABEL, host.view_mut(), sent.view()).unwrap();
    [early, behind, late].into_iter().for_each(|crossing| transfers.wait(crossing).unwrap());
    assert!(since.elapsed() >= link.latency, "{:?}", since.elapsed());
}

#[test]
fn a_link_that_outlasts_the_timeout_is_an_error_at_once() {
    let link = Link { latency: Duration::ZERO, bandwidth: 1.0 };
    let limits = WaitLimits { timeout: Some(Duration::from_secs(5)), ..WaitLimits::default() };
    let (device, transfers) = rank(Options { host: Some(link), limits, ..Options::default() });
    let sent = device.zeros(Class::Gradients, DType::F32, 5000).unwrap();
    let mut host = device.allocate_host(Class::Gradients, DType::F32, 5000).unwrap();
    let crossing = transfers.copy(LABEL, host.view_mut(), sent.view()).unwrap();
    let error = transfers.wait(crossing).err().unwrap().to_string();
    assert!(error.contains("20000 bytes device→host") && error.contains("--host-link"), "{error}");
}

#[test]
fn a_simulated_disk_serves_in_the_order_of_issue() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Some(Link { latency: Duration::ZERO, bandwidth: PAGE as f64 / 0.05 });
    // One thread: the file system also reads in the order of issue.
    let storage = Some(Disk::with_faults(1, Vec::new()));
    let (_, transfers) =
        rank(Options { disk, directory: Some(folder.path()), storage, ..Options::default() });
    let extent = transfers.extent(Class::Parameters, 2 * PAGE).unwrap();
    let read = |start| {
        let from = OnDisk { label: LABEL, extent: &extent, start, bytes: PAGE };
        transfers.read(from, transfers.staging(DType::F32, PAGE / 4).unwrap())
    };
    let since = Instant::now();
    let [mut first, second] = [0, PAGE].map(read);
    transfers.wait_staged(second).unwrap();
    assert!(since.elapsed() >= Duration::from_millis(100), "{:?}", since.elapsed());
    assert!(transfers.is_done(&mut first), "it came before");
    transfers.wait_staged(first).unwrap();
}

#[test]
fn a_buffer_is_filled_again_as_soon_as_its_bytes_have_left() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Some(Link { latency: Duration::ZERO, bandwidth: PAGE as f64 / 0.05 });
    let (_, transfers) = rank(Options { disk, directory: Some(folder.path()), ..Options::default() });
    let [here, there] = [0, 1].map(|_| transfers.extent(Class::Optimizer, PAGE).unwrap());
    let on_disk = |extent| OnDisk::first(LABEL, extent, PAGE);
    let mut buffer = transfers.staging(DType::F32, PAGE / 4).unwrap();
    buffer.bytes_mut().fill(1);
    let since = Instant::now();
    let (written, read) = transfers.write_then_read(on_disk(&here), on_disk(&there), buffer);
    transfers.wait_written(written).unwrap();
    assert!(since.elapsed() >= Duration::from_millis(50), "{:?}", since.elapsed());
    let buffer = transfers.wait_staged(read).unwrap().buffer;
    assert!(since.elapsed() >= Duration::from_millis(100), "the read waits for it: {:?}", since.elapsed());
    assert!(buffer.bytes().iter().all(|&byte| byte == 0), "room that nothing was written to");
    let read = transfers.wait_staged(transfers.read(OnDisk::first(LABEL, &here, PAGE), buffer)).unwrap();
    assert!(read.buffer.bytes().iter().all(|&byte| byte == 1));
    let moved = transfers.moved();
    let of = |route: Route| (moved.bytes[route.index()], moved.calls[route.index()]);
    assert_eq!(of(Route::HostToDisk), (PAGE as u64, 1));
    assert_eq!(of(Route::DiskToHost), (2 * PAGE as u64, 2));
}

/// Waits within `limits` for a copy that takes hours over its link.
fn endless(limits: WaitLimits) -> offload::Result<()> {
    let link = Some(Link { latency: Duration::ZERO, bandwidth: 1.0 });
    let (device, transfers) = rank(Options { host: link, limits, ..Options::default() });
    let sent = device.zeros(Class::Gradients, DType::F32, 5000).unwrap();
    let mut host = device.allocate_host(Class::Gradients, DType::F32, 5000).unwrap();
    let since = Instant::now();
    let outcome = transfers.wait(transfers.copy(LABEL, host.view_mut(), sent.view()).unwrap());
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    outcome
}

#[test]
fn a_wait_for_a_link_ends_when_the_group_fails_or_the_run_stops() {
    let [here, there] = <[_; 2]>::try_from(groups(2, local::Options::default())).ok().unwrap();
    there.poison("its work".into(), "it broke".into());
    let error = endless(WaitLimits { group: Some(here.watch()), ..WaitLimits::default() }).unwrap_err();
    assert!(matches!(error, offload::Error::Group(ref failure) if failure.culprit() == Some(1)), "{error}");
    endless(WaitLimits { stop: Some(Arc::new(AtomicBool::new(true))), ..WaitLimits::default() }).unwrap();
}

/// The rank's transfers on a disk with these faults, whose patience is 0.4 s.
fn impatient(folder: &Path, faults: Vec<DiskFault>, limits: WaitLimits) -> Transfers {
    let limits = WaitLimits { timeout: Some(Duration::from_millis(400)), ..limits };
    let storage = Some(Disk::with_faults(1, faults));
    rank(Options { directory: Some(folder), storage, limits, ..Options::default() }).1
}

fn reads(transfers: &Transfers, count: usize) -> offload::Result<()> {
    let extent = transfers.extent(Class::Parameters, PAGE)?;
    let read = |_| {
        transfers.read(OnDisk::first(LABEL, &extent, PAGE), transfers.staging(DType::F32, PAGE / 4).unwrap())
    };
    let reads: Vec<_> = (0..count).map(read).collect();
    // The last one first: it waits for all others.
    reads.into_iter().rev().try_for_each(|read| transfers.wait_staged(read).map(drop))
}

#[test]
fn a_disk_that_answers_nothing_is_an_error_that_names_file_and_call() {
    let folder = tempfile::tempdir().unwrap();
    let hang = |number| DiskFault { kind: Some(CallKind::Read), number, effect: Effect::Hang };
    let (transfers, since) = (impatient(folder.path(), vec![hang(2)], WaitLimits::default()), Instant::now());
    let error = reads(&transfers, 3).unwrap_err().to_string();
    for part in ["cannot read", "at byte 0", "has not answered", &folder.path().display().to_string()] {
        assert!(error.contains(part), "{part}: {error}");
    }
    drop(transfers);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}

#[test]
fn a_disk_that_is_slow_but_answers_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let effect = Effect::Delay(Duration::from_millis(200));
    let slow = (1..=5).map(|number| DiskFault { kind: Some(CallKind::Read), number, effect }).collect();
    reads(&impatient(folder.path(), slow, WaitLimits::default()), 5).unwrap();
}

#[test]
fn a_wait_for_a_disk_that_hangs_ends_when_the_group_fails() {
    let folder = tempfile::tempdir().unwrap();
    let [here, there] = <[_; 2]>::try_from(groups(2, local::Options::default())).ok().unwrap();
    let limits = WaitLimits { group: Some(here.watch()), ..WaitLimits::default() };
    let hang = DiskFault { kind: Some(CallKind::Read), number: 1, effect: Effect::Hang };
    let transfers = impatient(folder.path(), vec![hang], limits);
    there.poison("its work".into(), "it broke".into());
    let error = reads(&transfers, 1).unwrap_err();
    assert!(matches!(error, offload::Error::Group(_)), "{error}");
}

#[test]
fn what_comes_from_a_slow_disk_crosses_to_the_device_as_soon_as_it_is_here() {
    let folder = tempfile::tempdir().unwrap();
    let link = |seconds| Link { latency: Duration::ZERO, bandwidth: PAGE as f64 / seconds };
    let (host, disk) = (Some(link(0.02)), Some(link(0.03)));
    let (device, transfers) =
        rank(Options { host, disk, directory: Some(folder.path()), ..Options::default() });
    let extent = transfers.extent(Class::Parameters, PAGE).unwrap();
    let staging = transfers.staging(DType::F32, PAGE / 4).unwrap();
    let mut back = device.allocate(Class::Parameters, DType::F32, PAGE / 4).unwrap();
    let mut read = transfers.read(OnDisk::first(LABEL, &extent, PAGE), staging);
    soon(|| transfers.is_done(&mut read));
    let done = Instant::now();
    while done.elapsed() < Duration::from_millis(21) {
        std::thread::yield_now();
    }
    let arrived = transfers.wait_staged(read).unwrap();
    let crossing = transfers.copy_to_device(LABEL, back.view_mut(), &arrived).unwrap();
    assert!(!transfers.would_wait(&crossing), "both legs were over");
    transfers.wait(crossing).unwrap();
}

#[test]
fn a_disk_that_fails_is_named_with_its_file_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (_, transfers) = on_disk(folder.path());
    let extent = transfers.extent(Class::Parameters, PAGE).unwrap();
    let staging = transfers.staging(DType::F32, 1).unwrap();
    transfers.fail(Effect::Full);
    let error = transfers
        .wait_staged(transfers.write(OnDisk::first(LABEL, &extent, PAGE), staging))
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("cannot write") && error.contains("disk is full"), "{error}");
    assert!(
        error.contains(&folder.path().display().to_string()) && error.contains("--offload-dir"),
        "{error}"
    );
    assert!(transfers.extent(Class::Parameters, PAGE).is_err());
}

#[test]
fn two_ranks_of_one_number_share_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let (_, first) = on_disk(folder.path());
    let (_, second) = on_disk(folder.path());
    assert!(first.extent(Class::Parameters, 1).is_ok() && second.extent(Class::Parameters, 1).is_ok());
    let gone = Transfers::new(
        Device::cpu(Ledger::new(Emitter::silent(0), None), 1),
        Emitter::silent(0),
        Options { directory: Some(&folder.path().join("gone")), ..Options::default() },
    );
    assert!(gone.err().unwrap().to_string().contains("cannot create"));
}

#[test]
fn only_a_failing_disk_is_a_reason_for_another_disk() {
    let failed = |errno| {
        let cause = std::io::Error::from_raw_os_error(errno);
        let error = storage::Error { call: CallKind::Open, path: "swap".into(), offset: None, cause };
        offload::Error::from(error).to_string()
    };
    let [io, open_files] = [5, 24].map(failed);
    assert!(io.contains("swap") && io.ends_with("cpu in place of disk in an --offload flag."), "{io}");
    assert!(open_files.contains("`ulimit -n`") && !open_files.contains("--offload-dir"), "{open_files}");
}
