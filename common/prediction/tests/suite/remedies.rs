//! Remedies save what they promise.

use events::Place::{Device, Disk, Host};
use model::{ModelConfig, Wrap};
use prediction::{
    Algorithm, Job, Limits, Placement, Remedies, Room, Saving, Stage, Strategy, predict, remedies,
};

fn job(stage: Stage, ranks: usize) -> Job {
    Job { batch_size: 8, ..Job::new(ModelConfig::tiny(), stage, ranks) }
}

fn peak(job: &Job) -> u64 {
    predict(job).unwrap().ranks.iter().map(|rank| rank.memory.total_peak).max().unwrap()
}

fn on_device(job: &Job, capacity: u64) -> Remedies {
    remedies(Room::of(Device, capacity, Limits::default()), job)
}

/// Two micro-batches need room for the buffers in flight between them.
#[test]
fn the_pieces_of_a_batch_are_the_largest_that_fit_with_accumulation() {
    let job = job(Stage::Zero3, 4);
    let cut = |batch_size| Job { batch_size, micro_batches: 8 / batch_size, ..job.clone() };
    let alone = peak(&Job { batch_size: 4, ..job.clone() });
    assert!(peak(&cut(4)) > alone, "a second micro-batch takes room");
    let found = on_device(&job, alone).alone;
    let batch = found.iter().find(|remedy| remedy.how.starts_with("--batch-size")).unwrap();
    assert_eq!((&*batch.how, batch.total_peak), ("--batch-size 2 --grad-accum 4", peak(&cut(2))));
}

/// States stored on disk are saved from there, without a copy in main memory.
#[test]
fn what_moves_to_disk_is_not_copied_for_saves() {
    let placement = Placement { optimizer: Host, saving: Saving::Copying, ..Placement::default() };
    let job = Job { placement, ..job(Stage::Zero3, 2) };
    let moved = Placement { optimizer: Disk, saving: Saving::Streaming, ..placement };
    let needs =
        |job: &Job| predict(job).unwrap().ranks.iter().map(|rank| rank.host.total_peak).max().unwrap();
    let found = remedies(Room::of(Host, 1, Limits::default()), &job).alone;
    let disk = found.iter().find(|remedy| remedy.how == "--offload-optimizer disk").unwrap();
    assert_eq!(disk.total_peak, needs(&Job { placement: moved, ..job }));
}

/// Each of several changes is needed: without it the others are not enough.
#[test]
fn no_change_is_named_that_the_others_can_do_without() {
    let job = job(Stage::Ddp, 4);
    let capacity = peak(&job) / 16;
    let (how, total) = on_device(&job, capacity).together.unwrap();
    assert!(total <= capacity && how.len() > 2, "{how:?}");
    assert!(!how.iter().any(|how| how == "--no-overlap" || how.starts_with("--prefetch-bucket")), "{how:?}");
}

#[test]
fn weights_are_the_same_up_to_rounding_where_sums_have_another_order() {
    let costs = |job: &Job, how: &str| {
        let found = on_device(job, 0).alone;
        let remedy = found.into_iter().find(|remedy| remedy.how.starts_with(how)).unwrap();
        remedy.costs.contains("up to rounding")
    };
    let zero1 = |micro_batches| Job { micro_batches, ..job(Stage::Zero1, 4) };
    let zero2 = "cargo run -p zero2";
    assert_eq!([costs(&zero1(1), zero2), costs(&zero1(2), zero2)], [false, true]);
    let zero3 = |algorithm| Job { algorithm, ..job(Stage::Zero3, 4) };
    let wrap = format!("--wrap {}", Wrap::Parameter);
    assert_eq!([Algorithm::Direct, Algorithm::Ring].map(|way| costs(&zero3(way), &wrap)), [false, true]);
    let groups = |ranks, size| Job {
        strategy: Strategy::HybridShard,
        shard_group: Some(size),
        ..job(Stage::Zero3, ranks)
    };
    let full = "--strategy full-shard";
    assert_eq!([costs(&groups(4, 2), full), costs(&groups(6, 3), full)], [false, true]);
}
