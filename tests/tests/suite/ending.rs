//! A run that is ended early, at any point: completed steps count, and an interrupted step leaves
//! nothing behind.

use device::meter::Kind;
use events::Pass;
use prediction::Stage;
use report::KernelRow;
use settings::Config;
use settings::lr_schedule::{Climb, LrSchedule, WarmUp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tests::{STAGES, losses};
use trainer::{At, Report, Witness};

const RUN: &str = of_odd!("--gpus 4 --batch-size 1 --seq-len 16 --threads 1 --device cpu --grad-accum 3");

/// Requests the end when rank `at.rank` computes with `unit` in `pass` of micro-batch `micro`.
/// Until then all other ranks wait at the same point: without collectives between micro-batches,
/// one could reach the end of the step, which would then count.
struct Impatient {
    at: At,
    unit: usize,
    pass: Pass,
    micro: usize,
    visits: [AtomicUsize; 4],
    enough: Arc<AtomicBool>,
}

impl Witness for Impatient {
    fn on_parameters(&self, at: At, unit: usize, pass: Pass, _: &[f32]) {
        let here = (at.step, unit, pass) == (self.at.step, self.unit, self.pass);
        if !here || self.visits[at.rank].fetch_add(1, Ordering::AcqRel) != self.micro {
            return;
        }
        if at.rank == self.at.rank {
            self.enough.store(true, Ordering::Release);
        }
        let begin = Instant::now();
        while !self.enough.load(Ordering::Acquire) && begin.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns the configuration for `flags`, with a learning rate that does not depend on the planned
/// steps.
fn config(flags: &str) -> Config {
    let warmup = WarmUp { steps: 2, climb: Climb::Linear };
    let lr_schedule = LrSchedule::WarmupLr { low: 1e-3, high: 1e-3, warmup };
    Config { lr_schedule, ..tests::config(&format!("{RUN} {flags}")).unwrap() }
}

/// Runs six steps and ends the run within the third, in micro-batch `micro`.
fn ended(stage: Stage, flags: &str, micro: usize, (rank, unit, pass): (usize, usize, Pass)) -> Report {
    let enough = Arc::new(AtomicBool::new(false));
    let at = At { step: 2, rank };
    let visits = Default::default();
    let witness = Arc::new(Impatient { at, unit, pass, micro, visits, enough: enough.clone() });
    let report = stages::train_until(stage, config(&format!("--steps 6 {flags}")), witness, enough.clone());
    let report = report.unwrap_or_else(|failure| panic!("{stage} {flags}: {failure}"));
    assert!(enough.load(Ordering::Acquire), "{stage} {flags}: no stop was requested");
    report
}

/// Asserts that a run stopped after two steps equals a run of two steps: losses, weights, and every
/// byte, collective and kernel reported.
fn is_of_two_steps(stage: Stage, flags: &str, places: &[(usize, usize, Pass)]) {
    ended_in(stage, flags, 1, places);
}

/// Asserts like [`is_of_two_steps`], for runs that are stopped in micro-batch `micro`.
fn ended_in(stage: Stage, flags: &str, micro: usize, places: &[(usize, usize, Pass)]) {
    let whole = stages::train(stage, config(&format!("--steps 2 {flags}"))).unwrap();
    // An update copies the shards that it hands over to the next forward. The last update of a run
    // hands none over.
    let hands_over = flags.contains("--offload-parameters");
    let kernels = |report: &Report| -> Vec<_> {
        let row = |row: &KernelRow| (row.rank, row.kind, row.calls, row.flops, row.bytes);
        report.kernels.iter().filter(|row| !(hands_over && row.kind == Kind::Copies)).map(row).collect()
    };
    for &place in places {
        let report = ended(stage, flags, micro, place);
        let place = format!("{stage} {flags}: micro-batch {micro}, rank, unit and pass {place:?}");
        assert_eq!(losses(&report), losses(&whole), "{place}");
        assert_eq!(report.weights_blake3, whole.weights_blake3, "{place}");
        assert_eq!(report.mispredictions(), Vec::<String>::new(), "{place}");
        assert_eq!(report.evaluations, whole.evaluations, "{place}");
        assert_eq!(kernels(&report), kernels(&whole), "{place}");
    }
}

#[test]
fn a_step_that_is_broken_off_does_not_count() {
    let places =
        [(0, 0, Pass::Forward), (3, 2, Pass::Forward), (1, 4, Pass::Backward), (2, 1, Pass::Backward)];
    for stage in STAGES {
        is_of_two_steps(stage, "", &places);
    }
}

/// The run ends with different operations in flight: gathered ahead or not, in groups, in several
/// buckets, converted.
#[test]
fn nothing_on_its_way_is_left_behind() {
    let places = [(1, 2, Pass::Forward), (3, 3, Pass::Backward)];
    for flags in [
        "--backward-prefetch post",
        "--no-overlap",
        "--strategy shard-grad-op",
        "--strategy hybrid-shard --shard-group-size 2",
        "--secondary-shard-size 2",
        "--param-persistence-threshold 1000",
        "--algorithm ring --reduce-bucket 1000",
        "--link 50us,1GB/s",
    ] {
        is_of_two_steps(Stage::Zero3, flags, &places);
    }
    is_of_two_steps(Stage::Zero1, "--grad-sync all-reduce", &places);
    is_of_two_steps(Stage::Zero2, "--reduce-bucket 1000", &places);
}

/// The update of the previous step is still in progress then, and counts.
#[test]
fn an_update_that_goes_on_in_forward_is_whole() {
    for (stage, flags) in [
        (Stage::Ddp, "--offload-optimizer cpu"),
        (Stage::Zero1, "--offload-optimizer disk --offload-buffers 2"),
        (Stage::Zero2, "--offload-optimizer cpu --allgather-bucket 6000"),
        (Stage::Zero3, "--offload-optimizer disk --offload-parameters disk"),
        (Stage::Zero3, "--offload-optimizer cpu --offload-parameters disk"),
        (
            Stage::Zero3,
            "--offload-optimizer disk --offload-parameters cpu --param-persistence-threshold 1000",
        ),
    ] {
        ended_in(stage, flags, 0, &[(1, 0, Pass::Forward), (3, 2, Pass::Forward), (0, 4, Pass::Backward)]);
    }
}

/// Transfers between places are in flight: gradients to main memory, shards to the device, inputs
/// of blocks, states read ahead. None of them remains when the final states are gathered.
#[test]
fn nothing_between_places_is_left_behind() {
    for stage in [Stage::Zero2, Stage::Zero3] {
        is_of_two_steps(stage, "--offload-optimizer cpu", &[(1, 3, Pass::Backward), (3, 1, Pass::Backward)]);
    }
    let places = [(1, 2, Pass::Forward), (3, 3, Pass::Backward)];
    for flags in [
        "--offload-optimizer cpu --offload-parameters cpu",
        "--offload-optimizer disk --offload-parameters disk --offload-buffers 2",
        "--offload-parameters disk --host-link 50us,1GB/s --disk-link 50us,1GB/s",
        "--offload-activations disk --checkpoint-activations block --offload-optimizer disk",
    ] {
        is_of_two_steps(Stage::Zero3, flags, &places);
    }
    let last = "--grad-accum 2 --offload-optimizer disk";
    is_of_two_steps(Stage::Zero1, last, &[(2, 2, Pass::Backward)]);
}

/// The whole model is one unit, so that one is always on loan.
#[test]
fn what_is_on_loan_is_handed_back() {
    for stage in STAGES {
        is_of_two_steps(stage, "--wrap model", &[(1, 0, Pass::Forward), (2, 0, Pass::Backward)]);
    }
}

/// An interrupted validation does not count, but the step before it does.
#[test]
fn a_validation_that_is_broken_off_does_not_count() {
    let flags = "--val-fraction 0.2 --eval-every 3 --eval-batches 4";
    let place = ended(Stage::Zero3, flags, 1, (1, 2, Pass::Evaluate));
    assert_eq!(place.steps.len(), 3);
    assert_eq!(place.evaluations, []);
    assert_eq!(place.mispredictions(), Vec::<String>::new());
}

/// A stop request before the first step ends the run without a step. The weights are still hashed.
#[test]
fn a_run_may_end_before_its_first_step() {
    struct NoWitness;
    impl Witness for NoWitness {}
    for stage in STAGES {
        let enough = Arc::new(AtomicBool::new(true));
        let report = stages::train_until(stage, config("--steps 6"), Arc::new(NoWitness), enough).unwrap();
        assert!(report.steps.is_empty());
        for row in &report.traffic {
            assert_eq!((row.predicted_bytes, row.predicted_calls), (row.bytes_sent, row.calls), "{stage}");
        }
        assert_eq!(report.weights_blake3.len(), 64);
    }
}
