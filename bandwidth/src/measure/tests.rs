//! Wrong results of an operation are found.

use super::*;

const RANKS: usize = 3;
const SLICE: usize = 5000;

/// Returns the right result of an operation on rank 1.
fn right(operation: Operation) -> Vec<f32> {
    let factor = |place: usize| match operation {
        Operation::AllGather => place / SLICE + 1,
        Operation::Broadcast => 1,
        _ => 1 + 2 + 3,
    };
    (0..RANKS * SLICE).map(|place| number(place, factor(place))).collect()
}

#[test]
fn a_number_in_the_wrong_place_is_found() {
    for operation in
        [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather, Operation::Broadcast]
    {
        let wrong = |values: &[f32]| first_wrong(values, operation, 1, RANKS);
        assert_eq!(wrong(&right(operation)), None, "{operation}");
        let mut swapped = right(operation);
        swapped.swap(SLICE + 7, SLICE + 8);
        assert_eq!(wrong(&swapped), Some(SLICE + 7), "{operation}");
        let mut shifted = right(operation);
        shifted[SLICE..2 * SLICE].rotate_left(1);
        assert_eq!(wrong(&shifted), Some(SLICE), "{operation}");
        let mut last = right(operation);
        last[2 * SLICE - 1] += 1.0;
        assert_eq!(wrong(&last), Some(2 * SLICE - 1), "{operation}");
    }
}

#[test]
fn only_the_ranks_own_slice_of_a_reduce_scatter_counts() {
    let mut values = right(Operation::ReduceScatter);
    values[0] = 0.0;
    assert_eq!(first_wrong(&values, Operation::ReduceScatter, 1, RANKS), None);
    assert_eq!(first_wrong(&values, Operation::AllReduce, 1, RANKS), Some(0));
}

#[test]
fn the_largest_number_is_exact() {
    let ranks = 64;
    assert_eq!(number(PERIOD - 1, ranks * (ranks + 1) / 2) as usize, PERIOD * ranks * (ranks + 1) / 2);
    assert!(PERIOD * ranks * (ranks + 1) / 2 < 1 << 24);
}
