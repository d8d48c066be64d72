//! What overlaps: the streams of one rank, by hand.

use events::{Class, Operation, Pass, Place, Route};
use model::{Checkpointing, ModelConfig};
use prediction::{After, Among, Begins, CpuTask, CpuWork, Issued, Job, Moved, Placement, Recipe, Stage};
use timeline::{
    A100, Calibration, Clock, Cluster, Costs, Efficiency, Gpu, Machine, Software, Span, StepTime, estimate,
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
    Issued { number, among, operation, units, elements: vec![4], bytes: 4, after: Vec::new() }
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

/// A link to main memory takes a second per byte; so does the CPU per element that it updates.
fn offloading() -> Costs {
    let machine = Machine { memory_rate: 1.0, cpu_rate: Some(28.0), disk_read: 1.0, disk_write: 0.5 };
    let gpu = Gpu { host_link: 1.0, link: 1.0, ..A100 };
    let job = Job { recipe: Recipe::MIXED, ..Job::new(ModelConfig::tiny(), Stage::Zero3, 1) };
    let efficiency = Efficiency { host_link: 1.0, ..Calibration::USUAL.of(&gpu) };
    let cluster = Cluster { machine, ..Cluster::of(gpu, 1) };
    Costs::new(&job, cluster, Software::Fused, efficiency)
}

fn moved(number: usize, route: Route, bytes: u64, after: &[After]) -> Moved {
    let (class, after) = (Class::Parameters, after.to_vec());
    Moved { number, route, class, unit: 0, bytes, after, begins: Begins::ForUpdate }
}

fn updated(number: usize, elements: u64, after: &[After]) -> CpuWork {
    let (task, after) = (CpuTask::Update { piece: 0 }, after.to_vec());
    CpuWork { number, task, unit: 0, elements, after }
}

#[test]
fn a_piece_is_read_updated_and_written_in_turn() {
    let (costs, mut clock) = (offloading(), Clock::default());
    clock.compute(Pass::Forward, 1.0);
    let span = |from, to| Span { from, to };
    assert_eq!(clock.transfer(&costs, &moved(0, Route::DiskToHost, 2, &[])), span(1.0, 3.0));
    // The next piece is read while this one is updated.
    assert_eq!(clock.transfer(&costs, &moved(1, Route::DiskToHost, 2, &[])), span(3.0, 5.0));
    assert_eq!(clock.on_cpu(&costs, &updated(2, 1, &[After::Action(0)])), span(3.0, 4.0));
    assert_eq!(clock.on_cpu(&costs, &updated(3, 1, &[After::Action(1)])), span(5.0, 6.0));
    assert_eq!(clock.transfer(&costs, &moved(4, Route::HostToDisk, 2, &[After::Action(2)])), span(4.0, 8.0));
    assert_eq!(
        clock.transfer(&costs, &moved(5, Route::HostToDevice, 1, &[After::Action(3)])),
        span(6.0, 7.0)
    );
    clock.updated(0, &[5], &[], &[4]);
    // Parameters may be used before states are written.
    assert_eq!((clock.wait_for_update(Some(0)).map(|(_, idle)| idle), clock.now), (Some(6.0), 7.0));
    assert_eq!((clock.wait_for_update(None).map(|(_, idle)| idle), clock.now), (Some(1.0), 8.0));
    assert_eq!((clock.time.offload, clock.time.cpu, clock.time.transfers), (7.0, 2.0, [0.0, 1.0, 4.0, 4.0]));
    assert_eq!(clock.time.total(), clock.now);
}

/// What is read ahead begins before the rank's computation has come to it, and an all-gather of it
/// waits for offloaded states first.
#[test]
fn what_is_read_ahead_does_not_wait_for_computation() {
    let (costs, mut clock) = (offloading(), Clock::default());
    clock.compute(Pass::Forward, 5.0);
    let fetch = Moved { begins: Begins::Ahead, ..moved(0, Route::HostToDevice, 7, &[]) };
    assert_eq!(clock.transfer(&costs, &fetch), Span { from: 0.0, to: 7.0 });
    let gather = Issued { after: vec![After::Action(0)], ..gather(1, Among::World) };
    clock.issue(&costs, &gather);
    clock.wait(1);
    assert_eq!((clock.time.offload, clock.now), (2.0, 7.0));
}

/// A step of offloaded states takes as long as its slowest stream, if that is slow enough.
#[test]
fn the_slowest_place_decides() {
    let (host, disk) = (Place::Host, Place::Disk);
    for (optimizer, parameters, activations) in [(host, host, host), (disk, disk, disk), (disk, host, host)] {
        let placement = Placement { optimizer, parameters, activations, ..Placement::default() };
        let checkpointing = Checkpointing::Block;
        let config = ModelConfig::preset("smollm2-135m").unwrap();
        let recipe = Recipe::MIXED;
        let job = Job { placement, checkpointing, recipe, ..Job::new(config, Stage::Zero3, 2) };
        let moved = prediction::predict(&job).unwrap().ranks[0].transfers.step;
        for route in Route::ALL {
            let mut cluster = Cluster::of(A100, 2);
            match route {
                Route::DiskToHost => cluster.machine.disk_read = 1e6,
                Route::HostToDisk => cluster.machine.disk_write = 1e6,
                _ => cluster.gpu.host_link = 1e6,
            }
            let costs = Costs::new(&job, cluster, Software::Fused, Calibration::ALL_RUNS.of(&A100));
            let time = estimate(&job, &costs).unwrap();
            let busy = costs.transfer(route, moved.bytes(route));
            assert!((time.transfers[route.index()] / busy - 1.0).abs() < 1e-9 || busy == 0.0, "{route}");
            let longest = time.transfers.into_iter().fold(0.0, f64::max);
            assert!(time.total() > (1.0 - 1e-9) * longest, "{route}: {time:?}");
            // Ends of a pipeline do not overlap.
            assert!(time.total() < 1.5 * longest || busy == 0.0, "{placement:?}, {route}: {time:?}");
        }
    }
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
                let (mut clock, step) = (Clock::default(), &prediction::scripts(&job).unwrap()[1]);
                let parts = |time: StepTime| {
                    [
                        time.compute,
                        time.recompute,
                        time.exposed,
                        time.offload,
                        time.update,
                        time.communication,
                    ]
                };
                // The first step waits for no update.
                clock.run(&costs, step);
                let first = (parts(clock.time), clock.now);
                clock.run(&costs, step);
                let (both, seconds) = (parts(clock.time), clock.now - first.1);
                let walked = both.into_iter().zip(first.0).map(|(both, first)| both - first);
                for (walked, found) in walked.zip(parts(estimate(&job, &costs).unwrap())) {
                    let apart = (walked - found).abs() / seconds;
                    assert!(apart < 1e-9, "{} × {micro_batches}: {walked} and {found}", job.stage);
                }
            }
        }
    }
}

/// The same with offloaded states: beside the fourth of equal steps.
#[test]
fn many_micro_batches_with_offload_are_extrapolated() {
    let (device, host, disk) = (Place::Device, Place::Host, Place::Disk);
    for (stage, optimizer, parameters) in [
        (Stage::Zero1, host, device),
        (Stage::Zero2, disk, device),
        (Stage::Zero3, host, host),
        (Stage::Zero3, disk, disk),
    ] {
        for micro_batches in [1, 3, 4, 12] {
            let placement = Placement { optimizer, parameters, ..Placement::default() };
            let config = ModelConfig::preset("smollm2-135m").unwrap();
            let recipe = Recipe::MIXED;
            let job = Job { micro_batches, placement, recipe, ..Job::new(config, stage, 4) };
            let costs =
                Costs::new(&job, Cluster::of(A100, 4), Software::Fused, Calibration::ALL_RUNS.of(&A100));
            let mut clock = Clock::default();
            let [_, script] = prediction::scripts(&job).unwrap();
            let steps = [(); 4].map(|()| {
                let began = clock.now;
                clock.run(&costs, &script);
                clock.now - began
            });
            let estimated = estimate(&job, &costs).unwrap().total();
            let apart = (estimated / steps[3] - 1.0).abs();
            assert!(apart < 1e-3, "{stage} × {micro_batches}: {steps:?} and {estimated}");
        }
    }
}

/// A later transfer that is ready earlier goes first if it has ended by then; else it goes last.
/// Those of one class keep their order.
#[test]
fn what_is_ready_goes_first() {
    let (costs, mut clock) = (offloading(), Clock::default());
    let span = |from, to| Span { from, to };
    assert_eq!(clock.on_cpu(&costs, &updated(0, 10, &[])), span(0.0, 10.0));
    let mut transfer = |number, class, bytes, after: &[After]| {
        let moved = moved(number, Route::HostToDevice, bytes, after);
        clock.transfer(&costs, &Moved { class, ..moved })
    };
    assert_eq!(transfer(1, Class::Parameters, 1, &[After::Action(0)]), span(10.0, 11.0));
    assert_eq!(transfer(2, Class::Parameters, 1, &[]), span(11.0, 12.0));
    assert_eq!(transfer(3, Class::Activations, 3, &[]), span(0.0, 3.0));
    assert_eq!(transfer(4, Class::Gradients, 8, &[]), span(12.0, 20.0));
    assert_eq!(transfer(5, Class::Activations, 7, &[]), span(3.0, 10.0));
}

/// Reads of shards go before states that have not begun. States that are issued next make room for
/// them, unless the disk is idle in between.
#[test]
fn shards_are_read_before_states() {
    let (costs, mut clock) = (offloading(), Clock::default());
    let span = |from, to| Span { from, to };
    let read = |clock: &mut Clock, number, class, begins, bytes| {
        let moved = moved(number, Route::DiskToHost, bytes, &[]);
        clock.transfer(&costs, &Moved { class, begins, ..moved })
    };
    let (states, shard) = (Class::Optimizer, Class::Parameters);
    assert_eq!(read(&mut clock, 0, states, Begins::ForUpdate, 2), span(0.0, 2.0));
    assert_eq!(read(&mut clock, 1, states, Begins::ForUpdate, 4), span(2.0, 6.0));
    clock.compute(Pass::Forward, 1.0);
    assert_eq!(read(&mut clock, 2, shard, Begins::Now, 3), span(2.0, 5.0));
    assert_eq!(read(&mut clock, 3, shard, Begins::Now, 3), span(5.0, 8.0));
    assert_eq!(read(&mut clock, 4, states, Begins::ForUpdate, 2), span(12.0, 14.0));
    clock.compute(Pass::Forward, 19.0);
    assert_eq!(read(&mut clock, 5, shard, Begins::Now, 1), span(20.0, 21.0));
    assert_eq!(read(&mut clock, 6, states, Begins::ForUpdate, 1), span(21.0, 22.0));
}
