//! How far a unit's uses in forward and in backward lie apart.

use model::{Layout, ModelConfig, Wrap};
use sharding::{Partition, Schedule};
use zero3::variants::residency::reuse_distance;

/// Returns the reuse distance and the padded size of the tiny model's four units.
fn distances(tied: bool) -> ([usize; 4], [usize; 4]) {
    let layout = Layout::new(&ModelConfig { tied, layers: 2, ..ModelConfig::tiny() });
    let partition = Partition::new(&layout, Wrap::Block, 2);
    let schedule = Schedule::new(&layout, &partition);
    let distance = |unit| reuse_distance(unit, &schedule, &partition);
    ([0, 1, 2, 3].map(distance), [0, 1, 2, 3].map(|unit| partition.units[unit].padded))
}

#[test]
fn reuse_is_as_far_as_what_is_needed_in_between() {
    let (far, [_, b0, b1, head]) = distances(false);
    assert_eq!(far, [2 * (b0 + b1 + head), 2 * (b1 + head), 2 * head, 0]);
    let (far, [table, _, b1, norm]) = distances(true);
    // The table is needed with the norm, by the head.
    assert_eq!(far, [0, 2 * (b1 + norm) + table, 2 * norm + table, 0]);
}
