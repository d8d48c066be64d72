//! Tests of recordings: events survive a round trip, files may end early, and damage costs no more
//! than it must.

use crate::common::{at, header, memory};
use events::amount::MOST;
use events::frame::{self, VERSION};
use events::header::{Choices, Offload};
use events::{Class, Event, FrameError, Gap, Growth, Recorder, Recording, RecordingError, RunHeader, What};
use proptest::prelude::*;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::{CallKind, Disk, DiskFault, Effect};

fn some_events() -> impl Strategy<Value = Vec<Event>> {
    let what = prop_oneof![
        any::<u32>().prop_map(|step| What::StepStarted { step }),
        (-(MOST as i64)..=MOST as i64, 0..=MOST).prop_map(|(delta, live)| memory(
            Class::Gradients,
            delta,
            live
        )),
        (0..=MOST).prop_map(|sequence| What::Hop { group: 3, sequence, from: 1, to: 2, chunk: 3, bytes: 4 }),
        ".{0,20}".prop_map(|message| What::Failed { message }),
        prop::collection::vec(0..=MOST, 0..8).prop_map(|peaks| What::Finished {
            total_peak: 1,
            sent: peaks.clone(),
            peaks
        }),
    ];
    prop::collection::vec(
        (0..=MOST, 0u32..4, what).prop_map(|(time, rank, what)| at(time, rank, what)),
        0..60,
    )
}

/// Writes each of `pieces` as one frame and returns the file's bytes.
fn record(pieces: &[Vec<Event>], finish: bool) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.events");
    let mut recorder = Recorder::create(&path, &header(4)).unwrap();
    for (dropped, piece) in (0u64..).zip(pieces) {
        recorder.push(dropped, piece).unwrap();
        recorder.flush().unwrap();
    }
    if finish { fs::read(recorder.finish().unwrap()).unwrap() } else { fs::read(recorder.partial()).unwrap() }
}

fn parse(bytes: &[u8]) -> Result<Recording, RecordingError> {
    Recording::parse(Path::new("run.events"), bytes.to_vec())
}

fn events_of(recording: &Recording) -> Vec<Event> {
    recording.events().collect::<Result<_, _>>().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn events_survive_a_round_trip(pieces in prop::collection::vec(some_events(), 0..5)) {
        let recording = parse(&record(&pieces, true)).unwrap();
        prop_assert!(recording.is_complete());
        prop_assert_eq!(recording.header(), &header(4));
        prop_assert_eq!(events_of(&recording), pieces.concat());
    }

    /// A flipped bit loses the events of its frame, and its bytes are counted. Without a header
    /// nothing can be read.
    #[test]
    fn a_flipped_bit_costs_its_frame(
        pieces in prop::collection::vec(some_events().prop_filter("no frame", |events| !events.is_empty()), 1..4),
        place in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut bytes = record(&pieces, true);
        let place = place.index(bytes.len());
        let frames = frames(&bytes);
        let hit = frames.iter().position(|frame| frame.contains(&place));
        bytes[place] ^= 1 << bit;
        let Some(hit @ 1..) = hit else {
            prop_assert!(parse(&bytes).is_err(), "a flipped bit at byte {} went unnoticed", place);
            return Ok(());
        };
        let recording = parse(&bytes).unwrap();
        let gap = Gap { batch: hit - 1, bytes: frames[hit].len() };
        prop_assert_eq!(recording.gaps(), &[gap]);
        prop_assert_eq!(recording.is_complete(), hit + 1 < frames.len());
        let mut left = pieces;
        left.resize(left.len().max(hit), Vec::new());
        left.remove(hit - 1);
        prop_assert_eq!(events_of(&recording), left.concat());
        prop_assert!(recording.final_state().is_ok());
    }

    /// Damage of any kind and length loses the frames that it touches, and perhaps the next. Every
    /// byte is in a frame, skipped, or part of a frame that is cut short.
    #[test]
    fn any_damage_costs_the_frames_that_it_touches(
        pieces in prop::collection::vec(some_events().prop_filter("no frame", |events| !events.is_empty()), 1..6),
        (place, length) in (any::<prop::sample::Index>(), 0usize..300),
        garbage in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = record(&pieces, true);
        let frames = frames(&bytes);
        let from = frames[0].end + place.index(bytes.len() - frames[0].end);
        let to = (from + length).min(bytes.len());
        let recording = parse(&[&bytes[..from], &garbage, &bytes[to..]].concat()).unwrap();
        let batches: Vec<Vec<Event>> =
            (0..recording.len()).map(|index| recording.batch(index).unwrap().events).collect();
        let mut left = pieces.iter();
        prop_assert!(batches.iter().all(|batch| left.any(|piece| piece == batch)));
        let touched = frames.iter().filter(|frame| frame.start < to.max(from + 1) && from < frame.end).count();
        prop_assert!(batches.len() + touched + 1 >= pieces.len());
        prop_assert!(recording.damaged_bytes() as usize <= bytes.len() + garbage.len());
    }
}

/// Returns the places of the frames of an undamaged recording.
fn frames(bytes: &[u8]) -> Vec<Range<usize>> {
    let (mut frames, mut end) = (Vec::new(), frame::PREAMBLE);
    while let Some(length) = bytes.get(end + 1..end + 5) {
        let start = end;
        end += 11 + u32::from_le_bytes(length.try_into().unwrap()) as usize;
        frames.push(start..end);
    }
    frames
}

/// A file that consists only of heads of long frames is abandoned, rather than checked at every
/// byte.
#[test]
fn searching_damage_takes_time_in_proportion_to_the_file() {
    let mut bytes = record(&[], false);
    let mut head = vec![b'B'];
    head.extend(500_000u32.to_le_bytes());
    head.extend((crc32fast::hash(&head) as u16).to_le_bytes());
    head.extend([0; 4]);
    let garbage = head.repeat(150_000);
    bytes.extend(&garbage);
    let recording = parse(&bytes).unwrap();
    assert_eq!((recording.len(), recording.damaged_bytes()), (0, garbage.len() as u64));
}

/// The previous recording stays until the next one is complete, and files get the umask's
/// permissions.
#[test]
fn a_recording_gets_its_name_when_it_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.events");
    fs::write(&path, "an older one").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    let plain = mode(&path);
    let mut first = Recorder::create(&path, &header(4)).unwrap();
    let mut second = Recorder::create(&path, &header(3)).unwrap();
    assert_ne!(first.partial(), second.partial());
    assert_eq!(fs::read(&path).unwrap(), b"an older one");
    assert_eq!(first.finish().unwrap(), path);
    assert_eq!(Recording::open(&path).unwrap().header(), &header(4));
    second.finish().unwrap();
    assert_eq!((Recording::open(&path).unwrap().header(), mode(&path)), (&header(3), plain));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(Recorder::create(dir.path(), &header(3)).is_err(), "a directory is no file");
}

/// A reader follows the file from its first frame on, under its temporary and its final name.
#[test]
fn a_growing_recording_is_read_across_its_renaming() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.events");
    fs::write(dir.path().join("run.events-notes.partial"), "another file").unwrap();
    let step = |step: u32| vec![at(step.into(), 0, What::StepStarted { step })];
    let mut recorder = Recorder::create(&path, &header(4)).unwrap();
    let partial = recorder.partial().to_path_buf();
    for named in [&path, &partial] {
        let (recording, _) = Growth::open(named).unwrap();
        assert_eq!((recording.path(), recording.len()), (&*partial, 0));
    }
    let (mut recording, mut growth) = Growth::open(&path).unwrap();
    recorder.push(0, &step(0)).unwrap();
    recorder.flush().unwrap();
    let grown = growth.read_new().unwrap();
    let (first, rest) = grown.split_at(grown.len() / 2);
    recording.grow(first).unwrap();
    assert!(recording.is_empty(), "half a frame is none yet");
    recording.grow(rest).unwrap();
    assert_eq!(events_of(&recording), step(0));
    assert!(growth.read_new().unwrap().is_empty() && !recording.is_complete());
    recorder.push(0, &step(1)).unwrap();
    recorder.finish().unwrap();
    recording.grow(&growth.read_new().unwrap()).unwrap();
    assert_eq!(events_of(&recording), [step(0), step(1)].concat());
    assert!(recording.is_complete());
    let second = dir.path().join("run.events.1.partial");
    for named in [&path, &partial, &second] {
        let (recording, _) = Growth::open(named).unwrap();
        assert_eq!((recording.path(), recording.is_complete()), (&*path, true));
    }
}

/// Adding events does not wait for a slow disk; completing the recording does.
#[test]
fn a_late_disk_keeps_no_event_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.events");
    let (late, started) = (Duration::from_secs(2), Instant::now());
    let fault = DiskFault { kind: Some(CallKind::Write), number: 2, effect: Effect::Delay(late) };
    let mut recorder =
        Recorder::create_on(&Arc::new(Disk::with_faults(1, vec![fault])), &path, &header(1)).unwrap();
    let events: Vec<_> = (0..20).map(|step| at(step.into(), 0, What::StepStarted { step })).collect();
    for event in &events {
        recorder.push(0, std::slice::from_ref(event)).unwrap();
        recorder.advance().unwrap();
    }
    assert!(started.elapsed() < late, "adding events has waited for the disk");
    recorder.finish().unwrap();
    assert!(started.elapsed() >= late);
    assert_eq!(events_of(&Recording::open(&path).unwrap()), events);
}

#[test]
fn a_truncated_recording_replays_up_to_its_last_complete_frame() {
    let pieces: Vec<Vec<Event>> =
        (0..4).map(|n| vec![at(n, 0, memory(Class::Parameters, 8, 8 * n)); 3]).collect();
    let bytes = record(&pieces, true);
    let whole = events_of(&parse(&bytes).unwrap());
    let (mut lengths, mut empty) = (Vec::new(), 0);
    for length in 10..bytes.len() {
        match parse(&bytes[..length]) {
            Ok(recording) => {
                assert!(!recording.is_complete());
                let found = events_of(&recording);
                assert_eq!(found, whole[..found.len()]);
                lengths.push(found.len());
            }
            Err(RecordingError::Empty { .. }) => empty += 1,
            Err(other) => panic!("cut at {length}: {other}"),
        }
    }
    assert!(empty > 0 && lengths.is_sorted());
    lengths.dedup();
    assert_eq!(lengths, [0, 3, 6, 9, 12]);
}

/// Builds headers' frames by hand: with only some of the parts that follow the header.
#[test]
fn headers_without_later_fields_are_read() {
    let whole = header(4);
    let RunHeader { theory, offload, .. } = whole.clone();
    let cases = [
        (postcard::to_allocvec(&whole), Vec::new(), Offload::default()),
        (postcard::to_allocvec(&(&whole, &theory)), theory.clone(), Offload::default()),
        (postcard::to_allocvec(&(&whole, &theory, &offload)), theory, offload),
    ];
    for (payload, theory, offload) in cases {
        let payload = payload.unwrap();
        let mut frame = vec![b'H'];
        frame.extend((payload.len() as u32).to_le_bytes());
        frame.extend((crc32fast::hash(&frame) as u16).to_le_bytes());
        frame.extend(crc32fast::hash(&payload).to_le_bytes());
        frame.extend(payload);
        let recording = parse(&[&events::frame::preamble()[..], &frame].concat()).unwrap();
        let expected = RunHeader { theory, offload, choices: Choices::default(), ..whole.clone() };
        assert_eq!(recording.header(), &expected);
    }
}

#[test]
fn errors_name_foreign_files_and_other_versions() {
    let foreign = parse(b"loss,step\n1.0,2\n").unwrap_err();
    assert!(matches!(foreign, RecordingError::Frame { source: FrameError::Foreign, .. }));
    let mut future = frame::preamble().to_vec();
    future[8] = VERSION as u8 + 1;
    let error = parse(&future).unwrap_err().to_string();
    assert!(error.contains("reads versions 2 to 5") && error.contains("run.events"), "{error}");
    let missing = Recording::open(Path::new("/nowhere/run.events")).unwrap_err().to_string();
    assert!(missing.contains("cannot read the recording /nowhere/run.events"), "{missing}");
}

/// A pipe without a writer would block, and a device may never end.
#[test]
fn only_regular_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&pipe, Path::new("/dev/zero"), dir.path()] {
        for opened in [Recording::open(path).map(drop), Growth::open(path).map(drop)] {
            let error = opened.unwrap_err().to_string();
            assert!(error.contains("it is not a regular file"), "{}: {error}", path.display());
        }
    }
}
