//! Predicted times and exposed communication, compared with closed forms.

use super::*;

fn exposed(stage: prediction::Stage, flags: &str) -> (u64, u64) {
    let always = "--gpus 2 --batch-size 1 --seq-len 8 --steps 1 --threads 1 --device cpu --headless";
    let report = stages::train(stage, stages::config(&format!("{always} {flags}")).unwrap()).unwrap();
    Figure::Exposed.of(&report)
}

/// With a long latency the bytes are negligible: the prediction is a number of rounds.
#[test]
fn latency_counts_per_round_and_bandwidth_per_byte() {
    let (calls, bytes) = (5, 3_674_624);
    for (stage, rounds) in [(prediction::Stage::Ddp, 2 * calls), (prediction::Stage::Zero1, 2 * calls)] {
        let all_scalars = 4;
        let (latency, _) = exposed(stage, "--link 10ms,1000GB/s");
        assert!((rounds * 10..=(rounds + all_scalars) * 10).contains(&latency), "{stage}: {latency}");
        let (transfer, _) = exposed(stage, "--link 1us,10MB/s");
        assert!(transfer.abs_diff(bytes / 10_000) <= 1, "{stage}: {transfer}");
    }
}

#[test]
fn without_overlap_or_anything_to_overlap_all_of_it_is_waited_for() {
    let (predicted, measured) = exposed(prediction::Stage::Ddp, "--no-overlap --link 20ms,10MB/s");
    assert!(measured.abs_diff(predicted) * 5 < predicted, "{predicted} ms predicted, {measured} measured");
    assert_eq!(exposed(prediction::Stage::Ddp, ""), (0, 0), "no link");
}

/// Gradients leave during backward, and parameters return during the update, one after another.
#[test]
fn a_slow_way_to_main_memory_is_waited_for_as_long_as_it_takes() {
    let flags = "--gpus 2 --batch-size 1 --seq-len 8 --steps 1 --threads 1 --device cpu --headless \
                 --precision bf16 --offload-optimizer cpu --host-link 1ms,10MB/s";
    let report = stages::train(prediction::Stage::Zero2, stages::config(flags).unwrap()).unwrap();
    let (predicted, measured) = Figure::Crossing.of(&report);
    let exact: f64 = 2.0 * 918_656.0 / 10_000.0 + 12.0;
    assert_eq!(predicted, exact.round() as u64, "two ways, six transfers on each");
    assert!(measured <= predicted + predicted / 10, "{predicted} ms predicted, {measured} measured");
}

#[test]
fn a_time_is_close_or_hidden_behind_what_took_as_long() {
    let close = [(1100, 0), (900, 0), (700, 200)];
    let far = [(1101, 200), (899, 0), (699, 200), (0, 899)];
    for (measured, otherwise) in close {
        assert!(is_close(1000, measured, otherwise), "{measured} beside {otherwise}");
    }
    for (measured, otherwise) in far {
        assert!(!is_close(1000, measured, otherwise), "{measured} beside {otherwise}");
    }
}
