//! Checks a queue of units that closes buckets: alone, then in DDP.

use crate::{Figure, Score, Verdict, stage};
use collectives::Pending;
use device::Buffer;
use sharding::buckets::{Issue, bucket};
use sharding::{Error, Rank, UnitId};
use std::collections::BTreeMap;
use trainer::Setup;

/// A unit's number and its number of elements.
pub type Unit = (usize, usize);

/// The function under check: (queue, unit, capacity, whether it is the last of the pass) to the
/// units of a closed bucket.
pub type Push = fn(&mut Vec<Unit>, Unit, usize, bool) -> Option<Vec<usize>>;

/// Units in the order in which backward finishes them: number and elements.
const UNITS: [Unit; 6] = [(5, 33), (4, 213), (3, 213), (2, 213), (1, 213), (0, 33)];

/// Pushes units through queues of several capacities, then trains with `S`, which is DDP with this
/// queue.
pub fn check<S: trainer::StageKind>(push: Push) -> Verdict {
    let alone = check_alone(push)?;
    Ok(alone.and(stage::check::<S>()?))
}

/// Pushes units through queues of several capacities.
pub fn check_alone(push: Push) -> Verdict {
    let mut closed = Figure::of("buckets");
    for (capacity, buckets) in [(1, 6), (213, 5), (400, 3), (10_000, 1)] {
        closed.add(run(push, capacity)?, buckets);
    }
    Ok(Score::right("buckets close as soon as they are full, and none stays open").with(closed))
}

/// Returns the number of buckets that close.
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

/// A reader's queue in place of a stage's [`sharding::Buckets`].
pub struct Buckets {
    push: Push,
    issue: Issue,
    capacity: usize,
    last: UnitId,
    queue: Vec<Unit>,
    waiting: BTreeMap<UnitId, Buffer>,
    in_flight: Option<(Vec<UnitId>, Pending)>,
}

impl Buckets {
    /// Returns buckets that are sent through `issue` when `push` closes them.
    pub fn new(push: Push, setup: &Setup, issue: Issue) -> Self {
        let last = setup.schedule.last_reduced();
        let capacity = setup.communication.reductions(setup.precision, &setup.partition, last).capacity;
        let (queue, waiting, in_flight) = (Vec::new(), BTreeMap::new(), None);
        Buckets { push, issue, capacity, last, queue, waiting, in_flight }
    }

    /// Queues a unit like [`sharding::Buckets::push`].
    ///
    /// # Errors
    /// If a collective fails, or a closed bucket contains a unit that is not queued.
    pub fn push(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        buffer: Buffer,
    ) -> sharding::Result<Vec<(UnitId, Buffer)>> {
        let pushed = (unit, buffer.len());
        self.waiting.insert(unit, buffer);
        let closed = (self.push)(&mut self.queue, pushed, self.capacity, unit == self.last);
        let Some(units) = closed else { return Ok(Vec::new()) };
        let done = self.finish(rank)?;
        let buffers = units.iter().map(|&unit| self.take(unit)).collect::<sharding::Result<_>>()?;
        let pending = (self.issue)(rank.shard_group(), bucket(buffers, &units))?;
        self.in_flight = Some((units, pending));
        Ok(done)
    }

    fn take(&mut self, unit: UnitId) -> sharding::Result<Buffer> {
        let what = "gradients in the queue, since a bucket closed with them twice or before their push";
        self.waiting.remove(&unit).ok_or(Error::Missing { unit, what })
    }

    /// Frees units that are queued or in flight, like [`sharding::Buckets::abort`].
    pub fn abort(&mut self) {
        self.queue.clear();
        self.waiting.clear();
        self.in_flight = None;
    }

    /// Waits for the last bucket like [`sharding::Buckets::finish`].
    ///
    /// # Errors
    /// If the collective fails.
    pub fn finish(&mut self, _rank: &Rank) -> sharding::Result<Vec<(UnitId, Buffer)>> {
        let Some((units, pending)) = self.in_flight.take() else { return Ok(Vec::new()) };
        Ok(units.into_iter().zip(pending.wait()?).collect())
    }
}
