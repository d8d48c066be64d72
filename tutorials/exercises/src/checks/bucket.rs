//! A queue of units that closes buckets.

use crate::Verdict;

/// A unit and its elements.
pub type Unit = (usize, usize);

/// What is checked: (queue, unit, capacity, whether it is the last of the pass) to the units of a closed bucket.
pub(crate) type Push = fn(&mut Vec<Unit>, Unit, usize, bool) -> Option<Vec<usize>>;

pub(crate) fn check(push: Push) -> Verdict {
    let units = [(5, 33), (4, 213), (3, 213), (2, 213), (1, 213), (0, 33)];
    for capacity in [1, 213, 400, 10_000] {
        run(push, &units, capacity)?;
    }
    Ok("buckets close as soon as they are full, and none stays open".into())
}

fn run(push: Push, units: &[Unit], capacity: usize) -> Result<(), String> {
    let what = format!("capacity {capacity}");
    let size = |id: &usize| units.iter().find(|(unit, _)| unit == id).map_or(0, |(_, elements)| *elements);
    let (mut queue, mut travelled, mut waiting) = (Vec::new(), Vec::new(), 0);
    for (at, &(unit, elements)) in units.iter().enumerate() {
        waiting += elements;
        let last = at + 1 == units.len();
        match push(&mut queue, (unit, elements), capacity, last) {
            Some(closed) => {
                let filled: usize = closed.iter().map(size).sum();
                if filled < capacity && !last {
                    return Err(format!("{what}: a bucket closes with {filled} elements after unit {unit}"));
                }
                travelled.extend(closed);
                waiting = 0;
            }
            None if waiting >= capacity => {
                return Err(format!(
                    "{what}: {waiting} elements wait after unit {unit}, and no bucket closes"
                ));
            }
            None => {}
        }
    }
    let expected: Vec<usize> = units.iter().map(|(unit, _)| *unit).collect();
    if travelled != expected {
        return Err(format!("{what}: units {expected:?} were pushed, and {travelled:?} travelled"));
    }
    Ok(())
}
