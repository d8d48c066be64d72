//! The requirements that few micro-batches give are those of all micro-batches.

use events::Place;
use model::{ModelConfig, Wrap};
use prediction::{Job, Placement, Requirements, Stage, Strategy, predict, requirements};

fn tiny() -> Job {
    Job { batch_size: 1, tokens: 8, ..Job::new(ModelConfig::tiny(), Stage::SHARDS_PARAMETERS, 2) }
}

#[test]
fn requirements_are_those_of_all_micro_batches() {
    for (optimizer, parameters) in Place::ALL.iter().flat_map(|&o| Place::ALL.map(|p| (o, p))) {
        let placement = Placement { optimizer, parameters, ..Placement::default() };
        for (wrap, strategy) in [
            (Wrap::Model, Strategy::ShardGradOp),
            (Wrap::Model, Strategy::FullShard),
            (Wrap::Block, Strategy::FullShard),
        ] {
            for (overlap, reduce_bucket) in [(true, None), (true, Some(u64::MAX)), (false, None)] {
                let job = Job { wrap, strategy, overlap, reduce_bucket, placement, ..tiny() };
                for micro_batches in 1..=6 {
                    let job = Job { micro_batches, ..job.clone() };
                    let rank = predict(&job).unwrap().ranks[0];
                    let peaks = Place::ALL.map(|place| rank.place(place).total_peak);
                    let moves = rank.transfers.step.total_bytes();
                    assert_eq!(requirements(&job), Ok(Requirements { peaks, moves }), "{job:?}");
                }
            }
        }
    }
}
