//! When a bucket closes.

use exercises::bucket::Unit;

include!(concat!(env!("OUT_DIR"), "/bucket.rs"));

/// Closes the bucket if it is full, or if the unit is the last of the pass.
pub fn push(queue: &mut Vec<Unit>, unit: Unit, capacity: usize, last: bool) -> Option<Vec<usize>> {
    queue.push(unit);
    let filled: usize = queue.iter().map(|(_, elements)| elements).sum();
    if filled < capacity && !last {
        return None;
    }
    Some(std::mem::take(queue).into_iter().map(|(unit, _)| unit).collect())
}
