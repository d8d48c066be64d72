//! What overlaps: the streams of one rank, by hand.

use events::{Operation, Pass};
use model::ModelConfig;
use prediction::{Among, Issued, Job, Stage};
use timeline::{
    A100, Calibration, Clock, Cluster, Costs, Efficiency, Gpu, Software, Span, StepTime, estimate,
};

/// Collectives take a second per byte of each rank's slice.
fn costs() -> Costs {
    let gpu = Gpu { link: 1.0, ..A100 };
    let job = Job::new(ModelConfig::tiny(), Stage::Zero3, 2);
    let efficiency = Efficiency { link: 1.0, hop: 0.0, ..Calibration::USUAL.of(&gpu) };
    Costs::new(&job, Cluster::of(gpu, 2), Software::Fused, efficiency)
}

fn gather(number: usize, among: Among) -> Issued {
    let (operation, units) = (Operation::AllGather, Default::default());
    Issued { number, among, operation, units, elements: vec![4], bytes: 4 }
}

#[test]
fn computation_hides_a_collective_up_to_its_own_length() {
    let costs = costs();
    let mut clock = Clock::default();
    assert_eq!(clock.issue(&costs, &gather(0, Among::World)), Span { from: 0.0, to: 2.0 });
    clock.compute(Pass::Forward, 1.5);
    assert_eq!(clock.wait(0), (Span { from: 0.0, to: 2.0 }, 0.5));
    clock.issue(&costs, &gather(1, Among::World));
    clock.compute(Pass::Backward, 5.0);
    assert_eq!(clock.wait(1), (Span { from: 2.0, to: 4.0 }, 0.0));
    assert_eq!((clock.now, clock.time.exposed, clock.time.communication), (7.0, 0.5, 4.0));
    assert_eq!(clock.time.total(), clock.now);
}

#[test]
fn collectives_of_one_group_take_turns_and_those_of_two_do_not() {
    let costs = costs();
    let mut clock = Clock::default();
    clock.issue(&costs, &gather(0, Among::World));
    assert_eq!(clock.issue(&costs, &gather(1, Among::World)), Span { from: 2.0, to: 4.0 });
    assert_eq!(clock.issue(&costs, &gather(2, Among::Neighbours(2))), Span { from: 0.0, to: 2.0 });
}

/// Micro-batches after the third take as long as the third, also where the network is so slow that
/// collectives queue.
#[test]
fn many_micro_batches_are_extrapolated_exactly() {
    let base = |stage| Job { recipe: prediction::Recipe::MIXED, ..Job::new(ModelConfig::tiny(), stage, 16) };
    let hybrid =
        Job { strategy: prediction::Strategy::HybridShard, shard_group: Some(4), ..base(Stage::Zero3) };
    let others = [
        hybrid,
        Job { secondary_shards: Some(4), ..base(Stage::Zero3) },
        Job { overlap: false, ..base(Stage::Zero2) },
    ];
    for job in Stage::ALL.map(base).into_iter().chain(others) {
        for network in [A100.network, 1e6] {
            let cluster = Cluster { network, ..Cluster::of(A100, 8) };
            for micro_batches in [1, 2, 3, 4, 9] {
                let job = Job { micro_batches, ..job.clone() };
                let costs = Costs::new(&job, cluster, Software::Eager, Calibration::ALL_RUNS.of(&A100));
                let mut clock = Clock::default();
                let [_, step] = prediction::scripts(&job).unwrap();
                clock.run(&costs, &step);
                let parts = |time: StepTime| {
                    [time.compute, time.recompute, time.exposed, time.update, time.communication]
                };
                let walked = parts(clock.time);
                for (walked, found) in walked.into_iter().zip(parts(estimate(&job, &costs).unwrap())) {
                    let apart = (walked - found).abs() / clock.now;
                    assert!(apart < 1e-9, "{} × {micro_batches}: {walked} and {found}", job.stage);
                }
            }
        }
    }
}
