//! A queue of units that closes buckets.

use crate::{Score, Verdict};

/// A unit and its elements.
pub type Unit = (usize, usize);

/// What is checked: (queue, unit, capacity, whether it is the last of the pass) to the units of a closed bucket.
pub type Push = fn(&mut Vec<Unit>, Unit, usize, bool) -> Option<Vec<usize>>;

/// Units as backward finishes them: number and elements.
const UNITS: [Unit; 6] = [(5, 33), (4, 213), (3, 213), (2, 213), (1, 213), (0, 33)];

/// Pushes units through queues of several capacities.
///
/// # Errors
/// What is wrong, in words.
pub fn check(push: Push) -> Verdict {
    let (mut closed, mut enough) = (0, 0);
    for (capacity, buckets) in [(1, 6), (213, 5), (400, 3), (10_000, 1)] {
        closed += run(push, capacity)?;
        enough += buckets;
    }
    Ok(Score::right("buckets close as soon as they are full, and none stays open").with(
        "collectives",
        closed,
        enough,
    ))
}

/// How many buckets close.
fn run(push: Push, capacity: usize) -> Result<u64, String> {
    let what = format!("capacity {capacity}");
    let size = |id: &usize| UNITS.iter().find(|(unit, _)| unit == id).map_or(0, |(_, elements)| *elements);
    let (mut queue, mut travelled, mut waiting, mut buckets) = (Vec::new(), Vec::new(), 0, 0);
    for (at, &(unit, elements)) in UNITS.iter().enumerate() {
        waiting += elements;
        let last = at + 1 == UNITS.len();
        match push(&mut queue, (unit, elements), capacity, last) {
            Some(closed) => {
                let filled: usize = closed.iter().map(size).sum();
                if filled < capacity && !last {
                    return Err(format!("{what}: a bucket closes with {filled} elements after unit {unit}"));
                }
                travelled.extend(closed);
                waiting = 0;
                buckets += 1;
            }
            None if waiting >= capacity => {
                return Err(format!(
                    "{what}: {waiting} elements wait after unit {unit}, and no bucket closes"
                ));
            }
            None => {}
        }
    }
    let expected = UNITS.map(|(unit, _)| unit);
    if travelled != expected {
        return Err(format!("{what}: units {expected:?} were pushed, and {travelled:?} travelled"));
    }
    Ok(buckets)
}
