//! What watchers hear of collectives, and what a simulated link does to them.

#![allow(clippy::unwrap_used)]

mod common;

use collectives::local::{Algorithm, Link, Options};
use collectives::{Bucket, Group};
use common::{direct, ring, upload, world};
use device::{DType, Device};
use events::{Event, Operation, Progress, What};
use std::time::{Duration, Instant};

/// The events of one rank that does `body` in a world of `size`.
fn heard(size: u32, options: Options, body: impl Fn(&Group, &Device) + Sync) -> Vec<Vec<Event>> {
    let start = Instant::now();
    world(size, options, |mut group, device| {
        let (emitter, receiver) = events::channel(group.rank(), 1000, start, None);
        group.attach(emitter);
        body(&group, device);
        let mut events = Vec::new();
        receiver.drain(&mut events);
        events
    })
}

fn two_sums(group: &Group, device: &Device) {
    for _ in 0..2 {
        let buffers = vec![upload(device, DType::F32, &[1.0; 8])];
        group.all_reduce(Bucket { buffers, first_unit: 3, units: 2 }).unwrap().wait().unwrap();
    }
}

#[test]
fn a_collective_is_issued_started_and_finished() {
    for events in heard(4, direct(), two_sums) {
        let told: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.what {
                What::Collective(told) => Some(*told),
                _ => None,
            })
            .collect();
        let progress = [Progress::Issued, Progress::Started, Progress::Finished];
        let sent = [0, 0, 48, 48, 48, 96];
        assert_eq!(told.len(), 6);
        for (index, told) in told.iter().enumerate() {
            assert_eq!((told.progress, told.sequence), (progress[index % 3], index as u64 / 3));
            assert_eq!((told.operation, told.group, told.bytes), (Operation::AllReduce, 0, 32));
            assert_eq!((told.unit, told.units, told.sent), (3, 2, sent[index]));
        }
    }
}

#[test]
fn hops_add_up_to_what_was_sent() {
    for options in [direct(), ring()] {
        let events = heard(4, options, two_sums);
        for rank in 0..4 {
            let sent: u64 = events
                .iter()
                .flatten()
                .filter_map(|event| match event.what {
                    What::Hop { from, bytes, .. } if from == rank => Some(bytes),
                    _ => None,
                })
                .sum();
            assert_eq!(sent, 2 * 48, "rank {rank}, {options:?}");
        }
    }
}

#[test]
fn a_ring_sends_to_the_right_neighbour_only() {
    for event in heard(4, ring(), two_sums).into_iter().flatten() {
        if let What::Hop { from, to, .. } = event.what {
            assert_eq!((from + 1) % 4, to);
            assert_eq!(u32::from(to), event.rank);
        }
    }
}

#[test]
fn a_link_charges_latency_and_bandwidth() {
    let link = Link { latency: Duration::from_millis(2), bandwidth: 1e6 };
    let cost = |operation, algorithm| link.cost(operation, algorithm, 4, 3000);
    assert_eq!(cost(Operation::AllGather, Algorithm::Direct), Duration::from_millis(2 + 3));
    assert_eq!(cost(Operation::AllReduce, Algorithm::Direct), Duration::from_millis(4 + 3));
    assert_eq!(cost(Operation::AllGather, Algorithm::Ring), Duration::from_millis(6 + 3));
    assert_eq!(cost(Operation::AllReduce, Algorithm::Ring), Duration::from_millis(12 + 3));
    assert_eq!(link.cost(Operation::AllReduce, Algorithm::Ring, 1, 3000), Duration::ZERO);
}

#[test]
fn transfers_on_a_link_queue() {
    let link = Link { latency: Duration::from_millis(5), bandwidth: f64::INFINITY };
    let options = Options { link: Some(link), ..direct() };
    let times = world(2, options, |group, device| {
        let issue = || group.all_gather(vec![upload(device, DType::F32, &[1.0; 2])].into()).unwrap();
        let begin = Instant::now();
        let pending = [issue(), issue(), issue()];
        pending.into_iter().for_each(|pending| drop(pending.wait().unwrap()));
        begin.elapsed()
    });
    assert!(times.iter().all(|time| *time >= Duration::from_millis(15)), "{times:?}");
}
