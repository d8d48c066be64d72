//! Tests of the trace that a recording is written as.

use crate::simulate::SimulationPlan;
use crate::support::{path, track};
use events::{
    Class, CollectiveEvent, Event, Operation, Pass, Place, Progress, Recorder, Recording, What, Work,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use viz::export::trace::render;

fn entries(recording: &Recording) -> Vec<Value> {
    let trace: Value = serde_json::from_str(&render(recording).unwrap()).unwrap();
    trace["traceEvents"].as_array().unwrap().clone()
}

/// Returns the entries of a run of two ranks in which these events happen.
fn traced(events: &[Event]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.events");
    let mut recorder = Recorder::create(&path, &SimulationPlan::new(3, 2).run().header).unwrap();
    recorder.push(0, events).unwrap();
    recorder.finish().unwrap();
    entries(&Recording::open(&path).unwrap())
}

fn collective(at: u64, rank: u32, sequence: u64, progress: Progress) -> Event {
    let operation = Operation::AllGather;
    let event =
        CollectiveEvent { progress, sequence, operation, group: 0, units: 0.into(), bytes: 8, sent: 0 };
    Event { at, rank, what: What::Collective(event) }
}

/// Rank 0 issues two all-gathers, computes while they are in flight, and is idle before and after:
/// the time counts once. Rank 1 comes last, and an arrow leads from it to rank 0.
#[test]
fn waiting_is_the_time_in_which_a_rank_is_idle() {
    let pass = |at, rank, begins| {
        let (pass, unit, micro) = (Pass::Forward, 0, 0);
        let what = if begins {
            What::PassStarted { pass, unit, micro }
        } else {
            What::PassFinished { pass, unit, micro }
        };
        Event { at, rank, what }
    };
    use Progress::{Finished, Issued, Started};
    let entries = traced(&[
        Event { at: 0, rank: 0, what: What::StepStarted { step: 7 } },
        pass(0, 0, true),
        pass(5_000, 0, false),
        collective(10_000, 0, 0, Issued),
        collective(12_000, 0, 1, Issued),
        pass(20_000, 0, true),
        pass(50_000, 0, false),
        collective(70_000, 1, 0, Issued),
        collective(70_000, 1, 0, Started),
        collective(70_000, 0, 0, Started),
        collective(80_000, 0, 0, Finished),
        collective(80_000, 1, 0, Finished),
        collective(85_000, 0, 1, Started),
        collective(90_000, 0, 1, Finished),
    ]);
    let waits: Vec<(u64, f64, u64)> = entries
        .iter()
        .filter(|entry| entry["cat"] == "all-gather" && entry["pid"] == 0)
        .map(|entry| &entry["args"])
        .map(|args| {
            (
                args["sequence"].as_u64().unwrap(),
                args["waited_us"].as_f64().unwrap(),
                args["step"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(waits, [(0, 40.0, 7), (1, 10.0, 7)]);
    let arrows: Vec<_> = entries.iter().filter(|entry| entry["ph"] == "s" || entry["ph"] == "f").collect();
    let ends: Vec<_> = arrows.iter().map(|arrow| (&arrow["ph"], &arrow["pid"], &arrow["ts"])).collect();
    assert_eq!(ends, [(&"s".into(), &1.into(), &70.0.into()), (&"f".into(), &0.into(), &70.0.into())]);
    assert_eq!(arrows[0]["id"], arrows[1]["id"]);
}

/// Rank 0 hangs in a pass and two collectives, and rank 1 fails in its pass before that. Spans that
/// have no end reach to the failure, or to the latest event.
#[test]
fn spans_without_an_end_are_marked() {
    use Progress::{Finished, Issued, Started};
    let begun =
        |at, rank| Event { at, rank, what: What::PassStarted { pass: Pass::Backward, unit: 1, micro: 2 } };
    let entries = traced(&[
        Event { at: 0, rank: 0, what: What::StepStarted { step: 7 } },
        collective(1_000, 0, 0, Issued),
        collective(1_000, 0, 0, Started),
        begun(2_000, 1),
        collective(3_000, 0, 1, Issued),
        collective(4_000, 0, 0, Finished),
        collective(5_000, 0, 2, Issued),
        collective(6_000, 0, 1, Started),
        begun(7_000, 0),
        Event { at: 8_000, rank: 1, what: What::Failed { message: "out of memory".into() } },
        Event { at: 9_000, rank: 0, what: What::Failing },
    ]);
    is_well_formed("hung", &entries);
    let open: Vec<_> = entries
        .iter()
        .filter(|entry| entry["args"]["unfinished"] == true)
        .map(|entry| {
            let time = |key: &str| entry[key].as_f64().unwrap();
            (entry["pid"].as_u64().unwrap(), entry["cat"].as_str().unwrap(), time("ts"), time("dur"))
        })
        .collect();
    let all = [
        (1, "backward", 2.0, 6.0),
        (0, "all-gather", 5.0, 4.0),
        (0, "all-gather", 6.0, 3.0),
        (0, "backward", 7.0, 2.0),
    ];
    assert_eq!(open, all);
    let pass = entries.iter().find(|entry| entry["cat"] == "backward" && entry["pid"] == 0).unwrap();
    assert_eq!(pass["args"], serde_json::json!({ "step": 7, "micro": 2, "unfinished": true }));
}

/// In a real run, too, no rank waits longer in a step than the step takes, and every arrow begins
/// and ends within an entry of its track.
#[test]
fn a_recorded_run_has_steps_waits_and_arrows() {
    let entries = entries(&Recording::open(&path("zero3", "events")).unwrap());
    let mut waited: HashMap<(u64, u64), f64> = HashMap::new();
    let number = |value: &Value| value.as_f64().unwrap();
    let whole = |value: &Value| value.as_u64().unwrap();
    for entry in entries.iter().filter(|entry| entry["args"]["waited_us"].is_number()) {
        *waited.entry((whole(&entry["pid"]), whole(&entry["args"]["step"]))).or_default() +=
            number(&entry["args"]["waited_us"]);
    }
    assert_eq!(waited.keys().map(|(_, step)| step).max(), Some(&4));
    let (ends, mut begun) = (entries.iter().filter(|entry| entry["ph"] == "i"), 0.0);
    for end in ends.filter(|entry| entry["pid"] == 0) {
        let step: u64 = end["name"].as_str().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let took = number(&end["ts"]) - begun;
        begun = number(&end["ts"]);
        assert!(waited[&(0, step)] <= took, "step {step}: {} of {took}", waited[&(0, step)]);
    }
    let arrows: Vec<_> = entries.iter().filter(|entry| entry["ph"] == "s" || entry["ph"] == "f").collect();
    assert!(arrows.len() > 100, "{}", arrows.len());
    for arrow in arrows {
        let inside = |entry: &&Value| {
            let (from, at) = (number(&entry["ts"]), number(&arrow["ts"]));
            entry["pid"] == arrow["pid"] && from <= at && at <= from + number(&entry["dur"]) + 1e-6
        };
        let spans = entries.iter().filter(|entry| entry["ph"] == "X" && track(entry) == 1);
        assert!(spans.clone().any(|entry| inside(&entry)), "{arrow}");
    }
}

#[test]
fn the_trace_of_a_failed_run_has_its_error() {
    let recording = Recording::open(&path("failed", "events")).unwrap();
    let trace: Value = serde_json::from_str(&render(&recording).unwrap()).unwrap();
    let error = trace["otherData"]["error"]["message"].as_str().unwrap();
    assert!(error.contains("out of memory") || error.contains("memory"), "{error}");
    let failed = |entry: &&Value| entry["ph"] == "i" && entry["args"]["error"] == error;
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|entry| failed(&entry)));
}

/// The CPU adds gradients while a backward is in progress: it has a track of its own.
#[test]
fn what_the_cpu_does_beside_the_device_has_a_track() {
    let (pass, unit, micro) = (Pass::Backward, 0, 0);
    let work = Work::Pass { pass: Pass::Add, unit: 1, micro: 0 };
    let event = |at, what| Event { at, rank: 0, what };
    let entries = traced(&[
        event(0, What::PassStarted { pass, unit, micro }),
        event(30_000, What::Ran { work, began: 20_000, ended: 0 }),
        event(40_000, What::PassFinished { pass, unit, micro }),
    ]);
    let spans = entries.iter().filter(|entry| entry["ph"] == "X");
    let spans: Vec<_> =
        spans.map(|span| json!([span["tid"], span["cat"], span["ts"], span["dur"]])).collect();
    let expected = [json!([1_000_000, "backward", 0.0, 40.0]), json!([1_000_002, "add", 10.0, 20.0])];
    assert_eq!(spans, expected);
}

/// What the documented format asks for, of runs of every kind: entries have their fields and are
/// sorted by time, spans of one track never overlap in part, and each arrow has one beginning, with
/// one end after it.
#[test]
fn a_trace_is_as_the_format_documents_it() {
    for name in ["ddp", "zero3", "ring", "link", "hybrid", "hpz", "fp16", "failed", "stall"] {
        is_well_formed(name, &entries(&Recording::open(&path(name, "events")).unwrap()));
    }
    let resting = [Class::Optimizer, Class::Parameters].map(|class| (class, Place::Disk)).to_vec();
    let run = SimulationPlan { resting, ..SimulationPlan::new(3, 4) }.run();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.events");
    let mut recorder = Recorder::create(&file, &run.header).unwrap();
    recorder.push(0, &run.events).unwrap();
    recorder.finish().unwrap();
    is_well_formed("offloaded", &entries(&Recording::open(&file).unwrap()));
}

fn is_well_formed(name: &str, entries: &[Value]) {
    let time = |entry: &Value| entry["ts"].as_f64().unwrap();
    let timed: Vec<&Value> = entries.iter().filter(|entry| entry["ph"] != "M").collect();
    assert!(entries[..entries.len() - timed.len()].iter().all(|entry| entry["ph"] == "M"), "{name}");
    assert!(timed.is_sorted_by_key(|entry| time(entry)), "{name}");
    let (mut tracks, mut arrows) = (HashMap::<_, Vec<f64>>::new(), HashMap::<_, Vec<&Value>>::new());
    for entry in timed {
        assert!(entry["pid"].is_u64() && entry["tid"].is_u64() && entry["name"].is_string(), "{entry}");
        match entry["ph"].as_str().unwrap() {
            "X" => {
                let open = tracks.entry((&entry["pid"], &entry["tid"])).or_default();
                open.retain(|end| *end > time(entry) + 1e-6);
                let end = time(entry) + entry["dur"].as_f64().unwrap();
                assert!(open.iter().all(|outer| end <= outer + 1e-6), "{name}: {entry} overlaps in part");
                open.push(end);
            }
            "C" => assert!(entry["args"].as_object().unwrap().values().all(Value::is_u64), "{entry}"),
            "i" => assert!(["g", "p", "t"].contains(&entry["s"].as_str().unwrap()), "{entry}"),
            "s" | "f" => {
                assert!(entry["id"].is_u64(), "{entry}");
                arrows.entry((&entry["cat"], &entry["name"], &entry["id"])).or_default().push(entry);
            }
            other => panic!("{name}: {other} is no kind of entry that is written"),
        }
    }
    // Perfetto knows a thread by its number alone, and takes 0 for the process's own.
    let number = |entry: &Value, key: &str| entry[key].as_u64().unwrap();
    let processes: HashMap<u64, u64> =
        entries.iter().map(|entry| (number(entry, "tid"), number(entry, "pid"))).collect();
    assert!(processes.keys().all(|thread| *thread > 0 && !processes.values().any(|id| id == thread)));
    let is_of_its_process = |entry: &Value| processes[&number(entry, "tid")] == number(entry, "pid");
    assert!(entries.iter().all(is_of_its_process), "{name}: two processes share the number of a thread");
    for arrow in arrows.values() {
        let kinds: Vec<&Value> = arrow.iter().map(|end| &end["ph"]).collect();
        assert_eq!(kinds, ["s", "f"], "{name}: {arrow:?}");
    }
}
