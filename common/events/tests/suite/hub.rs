//! Tests of the collector: every watcher receives all events in order, and a rank never waits.

use crate::common::{header, memory};
use events::{
    CatchUp, Class, Event, Hub, HubOptions, HubReport, Message, Recording, Subscription, What, channel,
};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::{CallKind, Disk, DiskFault, Effect};

const EVENTS: u64 = 5000;

/// Runs two ranks on two threads that emit into a hub with these options. Returns the subscriber's
/// messages and the report.
fn run(options: HubOptions, capacity: usize) -> (Vec<Message>, HubReport) {
    let start = Instant::now();
    let (emitters, receivers): (Vec<_>, Vec<_>) =
        (0..2).map(|rank| channel(rank, capacity, start, None)).unzip();
    let hub = Hub::start(header(2), receivers, options).unwrap();
    let subscription = hub.subscribe();
    let mut seen = until_caught_up(&subscription);
    std::thread::scope(|scope| {
        for emitter in emitters {
            scope.spawn(move || {
                (0..EVENTS).for_each(|n| emitter.emit(memory(Class::Activations, 1, n)));
                emitter.emit(What::Finished { peaks: vec![0; 7], total_peak: 1, sent: vec![0; 8] });
            });
        }
    });
    let report = hub.finish();
    seen.extend(subscription.poll());
    (seen, report)
}

fn until_caught_up(subscription: &Subscription) -> Vec<Message> {
    loop {
        let messages = subscription.poll();
        if !messages.is_empty() {
            return messages;
        }
        std::thread::yield_now();
    }
}

fn events_in(messages: &[Message]) -> Vec<Event> {
    let batch = |message: &Message| match message {
        Message::Batch(batch) => batch.events.clone(),
        _ => Vec::new(),
    };
    messages.iter().flat_map(batch).collect()
}

#[test]
fn screen_and_recording_receive_the_same_complete_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.events");
    let options = HubOptions { record: Some(path.clone()), ..HubOptions::default() };
    let (messages, report) = run(options, 1 << 14);
    assert!(matches!(&messages[0], Message::CatchUp(state) if **state == CatchUp::new(2, 2)));
    assert!(matches!(messages.last(), Some(Message::End)));
    let seen = events_in(&messages);
    assert_eq!((report.events, report.dropped), (2 * (EVENTS + 1), 0));
    assert_eq!(seen.len() as u64, report.events);
    assert!(seen.is_sorted_by_key(|event| event.at));
    for rank in 0..2 {
        let live = seen.iter().filter(|event| event.rank == rank).filter_map(|event| match event.what {
            What::Memory { live, .. } => Some(live),
            _ => None,
        });
        assert!(live.eq(0..EVENTS), "rank {rank}'s events are out of order");
    }
    let recording = Recording::open(&path).unwrap();
    assert!(recording.is_complete() && report.recorded == Some(path));
    let recorded: Vec<Event> =
        (0..recording.len()).flat_map(|n| recording.batch(n).unwrap().events).collect();
    assert_eq!(recorded, seen);
}

#[test]
fn a_full_ring_drops_and_counts_but_keeps_the_end() {
    let (messages, report) = run(HubOptions::default(), 8);
    let seen = events_in(&messages);
    assert!(report.dropped > 0, "the rings were never full");
    assert_eq!(report.events + report.dropped, 2 * (EVENTS + 1));
    assert_eq!(seen.iter().filter(|event| matches!(event.what, What::Finished { .. })).count(), 2);
}

/// An error, a full disk or a crash at every call does not affect the ranks and the screen.
#[test]
fn a_disk_that_fails_ends_the_recording_and_not_the_run() {
    for effect in [Effect::Error(ErrorKind::Other), Effect::Full, Effect::Crash] {
        // Call 1 creates the file and call 2 writes the header, both before the run.
        for number in 3.. {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("run.events");
            std::fs::write(&path, "an older one").unwrap();
            let disk = Arc::new(Disk::recording(1, vec![DiskFault { kind: None, number, effect }]));
            let options =
                HubOptions { record: Some(path.clone()), disk: Some(disk.clone()), ..HubOptions::default() };
            let (messages, report) = run(options, 1 << 14);
            let case = format!("{effect:?} at call {number}");
            assert_eq!((report.events, report.dropped), (2 * (EVENTS + 1), 0), "{case}");
            assert_eq!(events_in(&messages).len() as u64, report.events, "{case}");
            let published = disk.record().iter().any(|call| call.kind == CallKind::FlushDirectory);
            match (&report.recorded, &report.recording_error) {
                (Some(recorded), None) => assert_eq!(recorded, &path, "{case}"),
                (None, Some(error)) => assert!(error.contains("run.events.partial"), "{case}: {error}"),
                other => panic!("{case}: {other:?}"),
            }
            if published {
                assert!(Recording::open(&path).unwrap().is_complete(), "{case}")
            } else {
                assert_eq!(std::fs::read(&path).unwrap(), b"an older one", "{case}");
                assert!(
                    !Recording::open(&dir.path().join("run.events.partial")).unwrap().is_empty()
                        || number == 3
                );
            }
            if (disk.record().len() as u64) < number {
                break;
            }
        }
    }
}

#[test]
fn a_recording_that_cannot_be_created_is_an_error_at_the_start() {
    let options = HubOptions { record: Some("/nowhere/run.events".into()), ..HubOptions::default() };
    let error = Hub::start(header(1), Vec::new(), options).err().unwrap().to_string();
    assert!(error.contains("cannot create the recording /nowhere/run.events"), "{error}");
}

/// If the disk stops answering, the recording is lost and the run still ends.
#[test]
fn a_disk_that_hangs_does_not_hold_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let hangs = DiskFault { kind: Some(CallKind::Flush), number: 1, effect: Effect::Hang };
    let options = HubOptions {
        record: Some(dir.path().join("run.events")),
        disk: Some(Arc::new(Disk::with_faults(1, vec![hangs]))),
        timeout: Some(Duration::from_millis(300)),
        ..HubOptions::default()
    };
    let hub = Hub::start(header(1), Vec::new(), options).unwrap();
    let began = Instant::now();
    let error = hub.finish().recording_error.unwrap();
    assert!(error.contains("has not answered") && error.contains("run.events.partial"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
