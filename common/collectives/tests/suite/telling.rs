//! The events that collectives emit, and the effect of a simulated link on them.

use crate::common::{direct, ring, upload, world};
use collectives::local::{Algorithm, Link, Options};
use collectives::{Bucket, Group};
use device::{DType, Device};
use events::{Event, Operation, Progress, UnitSet, What};
use std::time::{Duration, Instant};

/// Runs `body` in a world of `size`. Returns the events of each rank.
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
        group.all_reduce(Bucket { buffers, units: UnitSet::from_iter([3, 4]) }).unwrap().wait().unwrap();
    }
}

#[test]
fn a_collective_is_issued_started_and_finished() {
    for events in heard(4, direct(), two_sums) {
        let told: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.what {
                What::Collective(told) => Some(told.clone()),
                _ => None,
            })
            .collect();
        let progress = [Progress::Issued, Progress::Started, Progress::Finished];
        let sent = [0, 0, 48, 48, 48, 96];
        assert_eq!(told.len(), 6);
        for (index, told) in told.iter().enumerate() {
            assert_eq!((told.progress, told.sequence), (progress[index % 3], index as u64 / 3));
            assert_eq!((told.operation, told.group, told.bytes), (Operation::AllReduce, 0, 32));
            assert_eq!((told.units.to_string(), told.sent), ("3 to 4".into(), sent[index]));
        }
    }
}

/// Ranks emit which groups they have joined; the bytes that a collective reports as sent count over
/// all of a rank's groups.
#[test]
fn groups_within_are_told_and_count_together() {
    let split = |group: &Group, device: &Device| {
        let pair = group.split(u64::from(group.rank() / 2)).unwrap();
        two_sums(&pair, device);
        two_sums(group, device);
    };
    for (rank, events) in heard(4, direct(), split).into_iter().enumerate() {
        let (first, number) = (rank as u32 / 2 * 2, rank as u16 / 2 + 1);
        let joined = What::Joined { group: number, ranks: vec![first, first + 1] };
        assert_eq!(events.iter().filter(|event| event.what == joined).count(), 1, "{joined:?}");
        let finished: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.what {
                What::Collective(c) if c.progress == Progress::Finished => {
                    Some((c.operation, c.group, c.sent))
                }
                _ => None,
            })
            .filter(|(operation, ..)| *operation == Operation::AllReduce)
            .map(|(_, group, sent)| (group, sent))
            .collect();
        // 8 elements: half of them twice between two ranks, a quarter of them six times among four.
        assert_eq!(finished, [(number, 32), (number, 64), (0, 112), (0, 160)]);
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

/// A microsecond per byte. Slices of ten elements among four ranks are uneven, so that the ways of
/// sending differ.
#[test]
fn a_link_takes_as_long_as_the_busiest_rank_sends() {
    let link = Some(Link { latency: Duration::ZERO, bandwidth: 1e6 });
    for (options, busiest) in [(direct(), [24, 24, 64, 120]), (ring(), [24, 24, 60, 40])] {
        let all = heard(4, Options { link, ..options }, |group, device| {
            let bucket = |len| Bucket::from(vec![upload(device, DType::F32, &vec![1.0; len])]);
            drop(group.reduce_scatter(bucket(8)).unwrap().wait().unwrap());
            drop(group.all_gather(bucket(8)).unwrap().wait().unwrap());
            drop(group.all_reduce(bucket(10)).unwrap().wait().unwrap());
            drop(group.broadcast(bucket(10), 1).unwrap().wait().unwrap());
        });
        for events in all {
            let times = events.iter().filter_map(|event| match event.what {
                What::Crossed { began, ended, .. } => Some((began - ended) / 1000),
                _ => None,
            });
            assert_eq!(times.collect::<Vec<_>>(), busiest, "{options:?}");
        }
    }
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

fn gather_three(group: &Group, device: &Device) {
    let issue = || group.all_gather(vec![upload(device, DType::F32, &[1.0; 2])].into()).unwrap();
    let pending = [issue(), issue(), issue()];
    pending.into_iter().for_each(|pending| drop(pending.wait().unwrap()));
}

#[test]
fn a_link_tells_when_it_carried_what() {
    let latency = Duration::from_millis(40);
    let link = Link { latency, bandwidth: f64::INFINITY };
    for events in heard(2, Options { link: Some(link), ..direct() }, gather_three) {
        let crossed: Vec<(u64, u64, u64)> = events
            .iter()
            .filter_map(|event| match event.what {
                What::Crossed { group: 0, sequence, began, ended, .. } => {
                    assert_eq!(began - ended, latency.as_nanos() as u64);
                    Some((sequence, event.at - began, event.at - ended))
                }
                _ => None,
            })
            .collect();
        assert_eq!(crossed.iter().map(|c| c.0).collect::<Vec<_>>(), [0, 1, 2]);
        // One after another: each begins when the one before is delivered, up to the time that
        // emitting takes on a busy machine.
        for pair in crossed.windows(2) {
            assert!(pair[1].1.abs_diff(pair[0].2) < latency.as_nanos() as u64 / 2, "{crossed:?}");
        }
    }
}

#[test]
fn waits_for_a_link_are_counted_apart() {
    let link = Link { latency: Duration::from_millis(5), bandwidth: f64::INFINITY };
    let counted = world(2, Options { link: Some(link), ..direct() }, |group, device| {
        gather_three(&group, device);
        group.traffic()
    });
    let gathers = Operation::AllGather.index();
    for traffic in counted {
        let [total, peers, of_link] =
            [traffic.nanoseconds, traffic.for_peers, traffic.for_link].map(|counts| counts[gathers]);
        assert!(of_link > 0 && peers + of_link <= total, "{traffic:?}");
    }
}

#[test]
fn deadlines_do_not_run_while_a_link_delivers() {
    let link = Link { latency: Duration::from_millis(150), bandwidth: f64::INFINITY };
    let options = Options { link: Some(link), timeout: Duration::from_millis(100), ..direct() };
    let results = world(3, options, |group, device| {
        let gather = |group: &Group| {
            let buffer = upload(device, DType::F32, &[1.0; 6]);
            group.all_gather(vec![buffer].into()).unwrap().wait().map(drop)
        };
        // Rank 0 waits for the others for longer than its timeout, while they wait for the link of
        // their own group.
        let sub_group = group.split(u64::from(group.rank() > 0)).unwrap();
        if group.rank() > 0 {
            (0..3).for_each(|_| gather(&sub_group).unwrap());
        }
        gather(&group)
    });
    assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
}
