//! A predicted run: what its events add up to.

use events::{CatchUp, Class, Operation, Place, Route, What};
use model::{Checkpointing, ModelConfig};
use prediction::{Job, PerPhase, Placement, RunCounts, Stage, Transfers, predict};
use timeline::{Calibration, Cluster, Costs, H100, PredictedRun, Software, estimate, play};

fn job(stage: Stage) -> Job {
    let config = ModelConfig { layers: 3, ..ModelConfig::preset("smollm2-135m").unwrap() };
    let checkpointing = Checkpointing::Block;
    Job { micro_batches: 2, checkpointing, recipe: prediction::Recipe::MIXED, ..Job::new(config, stage, 4) }
}

fn costs(job: &Job) -> Costs {
    Costs::new(job, Cluster::of(H100, 2), Software::Fused, Calibration::ALL_RUNS.of(&H100))
}

fn played(stage: Stage) -> PredictedRun {
    let job = job(stage);
    play(&job, &predict(&job).unwrap(), &costs(&job), 3).unwrap()
}

#[test]
fn events_add_up_to_the_prediction() {
    for stage in Stage::ALL {
        let PredictedRun { header, events } = played(stage);
        let prediction = predict(&job(stage)).unwrap();
        assert!(events.is_sorted_by_key(|event| event.at), "{stage}");
        let mut state = CatchUp::new(4, header.units.len());
        events.iter().for_each(|event| state.apply(event));
        for (now, predicted) in state.snapshot.ranks.iter().zip(&prediction.ranks) {
            assert_eq!(now.total_peak, predicted.memory.total_peak, "{stage}");
            for class in Class::ALL {
                assert_eq!(now.peak_of(class), predicted.memory.peak(class), "{stage}, {class}");
            }
            let step = predicted.traffic.step;
            for operation in Operation::ALL {
                let sent = now.sent_last_step.by_operation[operation.index()];
                assert_eq!(sent, step.bytes(operation), "{stage}, {operation}");
            }
            let all = Operation::ALL.map(|operation| 3 * step.bytes(operation)).to_vec();
            let ends = events
                .iter()
                .filter(|event| matches!(&event.what, What::Finished { sent, .. } if *sent == all));
            assert_eq!(ends.count(), 4, "{stage}");
        }
    }
}

fn offloading(stage: Stage, optimizer: Place, parameters: Place) -> Job {
    let activations = Place::Host;
    let placement = Placement { optimizer, parameters, activations, ..Placement::default() };
    Job { placement, ..job(stage) }
}

/// Every transfer of every place, and the peaks there. The last step ends its own update.
#[test]
fn offloaded_states_add_up_to_the_prediction() {
    let (device, host, disk) = (Place::Device, Place::Host, Place::Disk);
    for (stage, optimizer, parameters) in [
        (Stage::Ddp, host, device),
        (Stage::Zero2, disk, device),
        (Stage::Zero3, host, host),
        (Stage::Zero3, disk, disk),
        (Stage::Zero3, device, disk),
    ] {
        let job = offloading(stage, optimizer, parameters);
        let prediction = predict(&job).unwrap();
        let PredictedRun { header, events } = play(&job, &prediction, &costs(&job), 3).unwrap();
        let mut state = CatchUp::new(4, header.units.len());
        events.iter().for_each(|event| state.apply(event));
        let counts = RunCounts { steps: 3, fresh_starts: 1, ..RunCounts::default() };
        for (now, predicted) in state.snapshot.ranks.iter().zip(&prediction.ranks) {
            let phases = PerPhase { setup: Transfers::default(), ..predicted.transfers };
            for route in Route::ALL {
                let moved = now.transfers.moved.bytes[route.index()];
                assert_eq!(moved, phases.total(counts).bytes(route), "{stage}, {route}");
            }
            assert!(now.transfers.flights.is_empty(), "{stage}");
            let predicted = [&predicted.memory, &predicted.host, &predicted.disk];
            for (place, predicted) in Place::ALL.into_iter().zip(predicted) {
                assert_eq!(now.peak_in(place), predicted.total_peak, "{stage}, {place}");
            }
        }
    }
}

/// Between the first step, which waits for no update, and the last, which ends its own.
#[test]
fn steps_that_update_offloaded_states_take_what_the_estimate_says() {
    let job = offloading(Stage::Zero3, Place::Disk, Place::Host);
    let expected = estimate(&job, &costs(&job)).unwrap().total();
    let run = play(&job, &predict(&job).unwrap(), &costs(&job), 6).unwrap();
    let steps = run.events.iter().filter(|event| event.rank == 0).filter_map(|event| match event.what {
        What::StepFinished { seconds, .. } => Some(seconds / expected),
        _ => None,
    });
    let steps: Vec<f64> = steps.collect();
    assert!(steps[0] < 0.9 && steps[5] > 1.1, "{steps:?}");
    steps[3..5].iter().for_each(|step| assert!((step - 1.0).abs() < 1e-9, "{steps:?}"));
}

/// Beside the device or not.
#[test]
fn all_work_of_the_cpu_is_shown_once() {
    let (device, host, disk) = (Place::Device, Place::Host, Place::Disk);
    for (stage, optimizer, parameters) in
        [(Stage::Zero1, host, device), (Stage::Zero2, host, device), (Stage::Zero3, disk, host)]
    {
        let job = offloading(stage, optimizer, parameters);
        let expected = 4.0 * estimate(&job, &costs(&job)).unwrap().cpu;
        let run = play(&job, &predict(&job).unwrap(), &costs(&job), 4).unwrap();
        let ran = run.events.iter().filter(|event| event.rank == 0).filter_map(|event| match event.what {
            What::Ran { began, ended, .. } => Some((began - ended) as f64 * 1e-9),
            _ => None,
        });
        let seconds: f64 = ran.sum();
        assert!((seconds / expected - 1.0).abs() < 1e-3, "{stage}: {seconds} and {expected}");
    }
}

#[test]
fn steps_take_what_the_estimate_says() {
    for stage in Stage::ALL {
        let expected = estimate(&job(stage), &costs(&job(stage))).unwrap().total();
        let run = played(stage);
        let steps = run.events.iter().filter_map(|event| match event.what {
            What::StepFinished { step, seconds, loss, tokens, .. } => {
                assert!(loss.is_nan() && tokens == 4 * 2 * 2 * 512, "{tokens}");
                Some((step, seconds, event.at))
            }
            _ => None,
        });
        let steps: Vec<_> = steps.collect();
        assert_eq!(steps.len(), 3 * 4);
        // All-gathers of updated parameters overlap with the next forward: the first step waits for
        // none, and the last one for its own, too.
        let gathers = [Stage::Zero1, Stage::Zero2].contains(&stage);
        let mut ends = [0.0; 4];
        for (number, (step, seconds, at)) in steps.into_iter().enumerate() {
            let ratio = seconds / expected;
            match step {
                0 if gathers => assert!(ratio < 0.99, "{stage}: {seconds} and {expected}"),
                2 if gathers => assert!(ratio > 1.01, "{stage}: {seconds} and {expected}"),
                _ => assert!((ratio - 1.0).abs() < 1e-9, "{stage}: {seconds} and {expected}"),
            }
            ends[number % 4] += seconds * 1e9;
            let end = ends[number % 4];
            assert!((at as f64 - end).abs() < 10.0, "{stage}, step {step}: {at} and {end}");
        }
    }
}
