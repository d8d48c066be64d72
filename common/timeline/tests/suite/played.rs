//! A predicted run: what its events add up to.

use events::{CatchUp, Class, Operation, What};
use model::{Checkpointing, ModelConfig};
use prediction::{Job, Stage, predict};
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
        }
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
        for (step, seconds, at) in steps {
            assert!((seconds / expected - 1.0).abs() < 1e-9, "{stage}: {seconds} and {expected}");
            let end = f64::from(step + 1) * expected * 1e9;
            assert!((at as f64 - end).abs() < 10.0, "{stage}, step {step}: {at} and {end}");
        }
    }
}
