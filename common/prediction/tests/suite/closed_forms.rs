//! The walk against closed forms, wherever a closed form exists.

use events::{Class, Operation};
use model::{Layout, ModelConfig};
use prediction::{Job, Stage, predict};

/// tiny, batch 8 × 128 tokens, by hand: the live bytes when the head's backward starts.
#[test]
fn tiny_to_the_byte() {
    let config = ModelConfig::tiny();
    let rows: u64 = 8 * 128;
    let parameters = Layout::new(&config).parameters();
    assert_eq!(parameters, 918_656);
    let block = rows * 4 * (2 + 4 * 128 + 3 * 128 + 128 + 3 * 384) + 8 * 4 * 128 * 4;
    let head = rows * 4 * (1 + 2 * 128 + 256);
    let activations = 2 * 4 * rows + 4 * block + head;
    for (stage, states) in [(Stage::Ddp, 16), (Stage::Zero1, 10), (Stage::Zero2, 7), (Stage::Zero3, 4)] {
        let prediction = predict(&Job::new(config.clone(), stage, 4)).unwrap();
        assert_eq!(prediction.ranks.len(), 4);
        let memory = prediction.ranks[3].memory;
        let held = [Class::Parameters, Class::Gradients, Class::Optimizer].map(|class| memory.peak(class));
        assert_eq!(held.iter().sum::<u64>(), states * parameters, "{stage}: {held:?}");
        assert_eq!(memory.peak(Class::Activations), activations, "{stage}");
    }
}

/// One bucket per unit, since all units of `tiny` but the blocks are small: calls are countable by
/// hand.
#[test]
fn calls_of_tiny() {
    let calls = |stage| {
        let step = predict(&Job::new(ModelConfig::tiny(), stage, 4)).unwrap().ranks[0].traffic.step;
        [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather, Operation::Scalars]
            .map(|operation| step.calls(operation))
    };
    // Buckets in backward: head + block 3, block 2, block 1, block 0, embedding.
    assert_eq!(calls(Stage::Ddp), [5, 0, 0, 1]);
    // In forward: embedding + block 0, block 1, block 2, block 3, head.
    assert_eq!(calls(Stage::Zero1), [0, 5, 5, 3]);
    assert_eq!(calls(Stage::Zero2), [0, 5, 5, 3]);
    assert_eq!(calls(Stage::Zero3), [0, 5, 2 * 6 - 1, 3]);
    let row = |stage| format!("{stage}: {:?}\n", calls(stage));
    insta::assert_snapshot!(format!(
        "all-reduce, reduce-scatter, all-gather, scalars per step, 6 units\n{}",
        Stage::ALL.map(row).concat()
    ));
}
