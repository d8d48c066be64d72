//! On a GPU the host only queues work. Events report when the work ran. These tests check the times
//! on the stand-in driver.

use events::{Event, Operation, Pass, Progress, Recording, Route, Snapshot, What, Work};
use prediction::Stage;
use screen::window::Window;
use serde_json::Value;
use std::collections::HashMap;
use tests::{fixture, standin_or_return, train};
use viz::export::trace;

const RANKS: u32 = 2;

/// Maximum difference between ranks' estimates of their GPU's clock, in nanoseconds: less than the
/// delay of a stream.
const CLOCKS: u64 = 1_000_000;

/// A period of work on one rank, in nanoseconds of the run.
#[derive(Clone, Copy, Debug)]
struct Ran {
    rank: u32,
    work: Work,
    from: u64,
    to: u64,
}

struct Run {
    events: Vec<Event>,
    units: usize,
    /// The Chrome trace.
    trace: Value,
}

/// Records a run of a stage on the stand-in, with two micro-batches per step.
fn recorded(stage: Stage, more: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.zero");
    let flags = format!(
        "--model {} --gpus {RANKS} --batch-size 1 --grad-accum 2 --seq-len 12 --steps 2 --device cuda --threads 1 \
         --record {} {more}",
        fixture("three-heads.json"),
        file.display()
    );
    train(stage, &flags).unwrap();
    let recording = Recording::open(&file).unwrap();
    let events = recording.events().map(Result::unwrap);
    let trace = serde_json::from_str(&trace::render(&recording).unwrap()).unwrap();
    Run { events: events.collect(), units: recording.header().units.len(), trace }
}

/// Returns all periods, in the order in which they were reported.
fn stretches(events: &[Event]) -> Vec<Ran> {
    let ran = |event: &Event| match event.what {
        What::Ran { work, began, ended } => {
            Some(Ran { rank: event.rank, work, from: event.at - began, to: event.at - ended })
        }
        _ => None,
    };
    events.iter().filter_map(ran).collect()
}

fn passes(all: &[Ran], rank: u32) -> Vec<Ran> {
    all.iter().filter(|ran| ran.rank == rank && matches!(ran.work, Work::Pass { .. })).copied().collect()
}

fn transfers(all: &[Ran], rank: u32) -> Vec<Ran> {
    all.iter()
        .filter(|ran| ran.rank == rank && matches!(ran.work, Work::Collective { .. }))
        .copied()
        .collect()
}

#[test]
fn every_pass_and_collective_is_told_of_once_and_in_order() {
    standin_or_return!(&[("STANDIN_DOZE", "4000")]);
    for (stage, engine) in [(Stage::Ddp, "local"), (Stage::Zero3, "local"), (Stage::Zero3, "nccl")] {
        let Run { events, .. } = recorded(stage, &format!("--collectives {engine}"));
        let all = stretches(&events);
        for rank in 0..RANKS {
            let finished =
                events.iter().filter(|event| event.rank == rank).filter_map(|event| match event.what {
                    What::PassFinished { pass, unit, micro } => {
                        Some((Work::Pass { pass, unit, micro }, event.at))
                    }
                    _ => None,
                });
            let finished: Vec<(Work, u64)> = finished.collect();
            let passes = passes(&all, rank);
            assert_eq!(finished.len(), passes.len(), "{stage}, rank {rank}");
            for ((work, queued), ran) in finished.iter().zip(&passes) {
                assert_eq!(*work, ran.work, "{stage}, rank {rank}");
                assert!(
                    ran.to >= *queued,
                    "{stage}, rank {rank}: {ran:?} ended before it was queued, at {queued}"
                );
            }
            for lane in [passes, transfers(&all, rank)] {
                assert!(lane.len() > 4, "{stage}, rank {rank}: {lane:?}");
                assert!(lane.iter().all(|ran| ran.from <= ran.to), "{stage}, rank {rank}: {lane:?}");
                let follows = |pair: &[Ran]| pair[0].to <= pair[1].from;
                assert!(
                    lane.windows(2).all(follows),
                    "{stage}, rank {rank}: one stream, one thing at a time"
                );
            }
        }
    }
}

/// The times obey the fences: parameters are gathered before computation with them, and gradients
/// are computed by all ranks before they are summed.
#[test]
fn times_respect_what_waits_for_what() {
    standin_or_return!(&[("STANDIN_DOZE", "4000")]);
    let Run { events, .. } = recorded(Stage::Zero3, "");
    let all = stretches(&events);
    let mut checked = [0, 0];
    for (rank, event, about) in issued(&events) {
        let key =
            |ran: &&Ran| matches!(ran.work, Work::Collective { sequence, .. } if sequence == event.sequence);
        let Some(moved) = transfers(&all, rank).iter().find(key).copied() else { continue };
        match event.operation {
            Operation::AllGather => {
                let next = |ran: &&Ran| {
                    matches!(ran.work, Work::Pass { pass: Pass::Forward | Pass::Backward, unit, .. }
                        if Some(unit) == event.units.first())
                        && ran.to > moved.from
                };
                let Some(pass) = passes(&all, rank).iter().find(next).copied() else { continue };
                assert!(moved.to <= pass.from + CLOCKS, "rank {rank}: {moved:?} is gathered for {pass:?}");
                checked[0] += 1;
            }
            Operation::ReduceScatter => {
                for other in 0..RANKS {
                    let Some(unit) = event.units.first() else { continue };
                    let Some(pass) = last_before(&all, other, unit, about) else { continue };
                    assert!(
                        pass.to <= moved.from + CLOCKS,
                        "rank {rank}: {moved:?} sums what {pass:?} has computed"
                    );
                    checked[1] += 1;
                }
            }
            _ => {}
        }
    }
    assert!(checked.iter().all(|&count| count > 8), "{checked:?}");
}

/// Returns every rank's collectives of units, each with the number of backward passes over the unit
/// that the rank had finished at the issue.
fn issued(events: &[Event]) -> Vec<(u32, events::CollectiveEvent, usize)> {
    let mut backward: HashMap<(u32, u16), usize> = HashMap::new();
    let mut out = Vec::new();
    for event in events {
        match &event.what {
            &What::PassFinished { pass: Pass::Backward, unit, .. } => {
                *backward.entry((event.rank, unit)).or_default() += 1;
            }
            What::Collective(collective) if collective.progress == Progress::Issued => {
                let unit = collective.units.first();
                let done = unit.and_then(|unit| backward.get(&(event.rank, unit)).copied()).unwrap_or(0);
                out.push((event.rank, collective.clone(), done));
            }
            _ => {}
        }
    }
    out
}

/// Returns the `count`-th backward pass over `unit` on `rank`.
fn last_before(all: &[Ran], rank: u32, unit: u16, count: usize) -> Option<Ran> {
    let backward =
        |ran: &&Ran| matches!(ran.work, Work::Pass { pass: Pass::Backward, unit: of, .. } if of == unit);
    passes(all, rank).iter().filter(backward).nth(count.checked_sub(1)?).copied()
}

#[test]
fn communication_overlaps_computation_and_the_screen_shows_it() {
    standin_or_return!(&[("STANDIN_DOZE", "4000")]);
    let Run { events, units, trace } = recorded(Stage::Zero3, "");
    let all = stretches(&events);
    let overlap = |a: &Ran, b: &Ran| a.to.min(b.to).saturating_sub(a.from.max(b.from));
    for rank in 0..RANKS {
        let (passes, transfers) = (passes(&all, rank), transfers(&all, rank));
        let both: u64 = transfers.iter().flat_map(|t| passes.iter().map(|p| overlap(t, p))).sum();
        assert!(both > 0, "rank {rank}: nothing moves while it computes");
    }
    let mut window = Window::new(&Snapshot::new(RANKS, units));
    events.iter().for_each(|event| window.apply(event));
    for (rank, lane) in window.lanes.iter().enumerate() {
        let told = passes(&all, rank as u32);
        let shown = lane.spans.iter().map(|span| (span.from, span.to.unwrap()));
        let ran: Vec<(u64, u64)> = told.iter().map(|ran| (ran.from, ran.to)).collect();
        assert!(shown.len() > 8);
        for span in shown {
            assert!(ran.contains(&span), "rank {rank}: {span:?} is shown and never ran");
        }
    }
    for rank in 0..RANKS {
        for (track, ran) in [("compute", passes(&all, rank)), ("communication", transfers(&all, rank))] {
            let entries = trace["traceEvents"].as_array().unwrap();
            let names = |entry: &&Value| entry["pid"] == rank && entry["args"]["name"] == track;
            let thread = &entries.iter().find(names).unwrap()["tid"];
            let entries = entries.iter().filter(|entry| entry["ph"] == "X" && entry["tid"] == *thread);
            let shown: Vec<f64> = entries.map(|entry| entry["ts"].as_f64().unwrap()).collect();
            for ran in ran {
                assert!(shown.contains(&(ran.from as f64 / 1e3)), "rank {rank}: {ran:?} is not in the trace");
            }
        }
    }
}

/// Returns every transfer between device and main memory by its number, with its route and its time
/// of issue.
fn crossings(events: &[Event], rank: u32) -> HashMap<u64, (Route, u64)> {
    let issued = |event: &Event| match event.what {
        What::Transfer(transfer) if event.rank == rank && transfer.progress == Progress::Issued => {
            Some((transfer.sequence, (transfer.route, event.at)))
        }
        _ => None,
    };
    let all = events.iter().filter_map(issued);
    all.filter(|(_, (route, _))| !route.touches_disk()).collect()
}

/// False for data that was fetched ahead but not needed, after the last step.
fn waited_for(events: &[Event], rank: u32, sequence: u64) -> bool {
    let such = |event: &&Event| match event.what {
        What::Transfer(transfer) => (event.rank, transfer.sequence) == (rank, sequence),
        _ => false,
    };
    events.iter().filter(such).count() == 2
}

/// Parameters and gradients, of which a run moves many, are transferred while their rank computes.
#[test]
fn copies_from_and_to_main_memory_are_told_of_once_and_overlap_computation() {
    standin_or_return!(&[("STANDIN_DOZE", "4000")]);
    let Run { events, units, trace } =
        recorded(Stage::Zero3, "--offload-optimizer cpu --offload-parameters cpu");
    let mut window = Window::new(&Snapshot::new(RANKS, units));
    events.iter().for_each(|event| window.apply(event));
    let shown: Vec<_> = window.lanes.iter().flat_map(|lane| &lane.transfers).collect();
    assert!(!shown.is_empty() && shown.iter().all(|span| span.moving() == span.ran && span.ran.is_some()));
    for rank in 0..RANKS {
        let (all, mut issued) = (stretches(&events), crossings(&events, rank));
        let passes = passes(&all, rank);
        let (mut lanes, mut both) = (HashMap::<Route, Vec<Ran>>::new(), 0);
        for ran in all.into_iter().filter(|ran| ran.rank == rank) {
            let Work::Transfer { sequence } = ran.work else { continue };
            let (route, at) = issued.remove(&sequence).expect("issued, and told of once");
            assert!(at <= ran.from && ran.from <= ran.to, "rank {rank}: {ran:?} was issued at {at}");
            let overlap = |pass: &Ran| ran.to.min(pass.to).saturating_sub(ran.from.max(pass.from));
            both += passes.iter().map(overlap).sum::<u64>();
            lanes.entry(route).or_default().push(ran);
            let starts = |entry: &Value| entry["ts"].as_f64() == Some(ran.from as f64 / 1e3);
            let in_trace = trace["traceEvents"].as_array().unwrap().iter().any(starts);
            assert!(
                in_trace || !waited_for(&events, rank, sequence),
                "rank {rank}: {ran:?} is not in the trace"
            );
        }
        assert!(issued.is_empty(), "rank {rank}: never told of {issued:?}");
        assert!(both > 0, "rank {rank}: nothing is copied while it computes");
        assert_eq!(lanes.len(), 2, "rank {rank}: each direction");
        let follows = |pair: &[Ran]| pair[0].to <= pair[1].from;
        assert!(lanes.values().all(|lane| lane.len() > 8 && lane.windows(2).all(follows)), "{lanes:?}");
    }
}

/// On the CPU a call returns when the work is done, so nothing is reported later.
#[test]
fn the_cpu_tells_of_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.zero");
    let flags = format!("--gpus 2 --steps 1 --seq-len 16 --device cpu --record {}", file.display());
    train(Stage::Zero3, &flags).unwrap();
    let events = tests::recorded(&file);
    assert!(events.len() > 100 && stretches(&events).is_empty());
}
