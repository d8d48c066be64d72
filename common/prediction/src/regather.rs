//! The all-gather of updated parameters, so that every rank has the updates of all ranks: in ZeRO-1
//! and ZeRO-2, and in ZeRO-3 of persistent units.

use crate::job::Job;
use crate::partition::{Partition, Unit};
use crate::rank::{InFlight, SymbolicRank};
use crate::script::After;
use crate::traffic::Among;
use events::Operation;
use events::header::Sharded;

/// True if `unit` is gathered after its update, in a stage that shards what `sharded` says.
pub(crate) fn is_gathered(sharded: Sharded, unit: &Unit) -> bool {
    sharded.optimizer && (unit.persistent || !sharded.parameters)
}

/// Updated units that are gathered in place, a bucket at a time.
pub(crate) struct Regather {
    among: Among,
    /// Elements of each unit that is gathered; `None` for the others.
    elements: Vec<Option<u64>>,
    /// A bucket closes once it has this many elements, or with the last unit.
    size: u64,
    bytes_per_element: u64,
    filling: Vec<(usize, u64)>,
}

impl Regather {
    pub(crate) fn new(job: &Job, partition: &Partition, among: Among) -> Self {
        let sharded = job.stage.sharded();
        let elements = partition.units.iter().map(|unit| is_gathered(sharded, unit).then_some(unit.padded));
        Regather {
            among,
            elements: elements.collect(),
            size: job.gather_bucket.unwrap_or(partition.largest()),
            bytes_per_element: job.recipe.weights,
            filling: Vec::new(),
        }
    }

    /// True if `unit` is gathered.
    pub(crate) fn gathers(&self, unit: usize) -> bool {
        self.elements[unit].is_some()
    }

    /// Adds `unit`, which is updated, to the open bucket, unless it is not gathered. Returns the
    /// bucket's units if it is full, or no further unit is gathered.
    pub(crate) fn fill(&mut self, unit: usize) -> Option<Vec<(usize, u64)>> {
        self.filling.push((unit, self.elements[unit]?));
        let open: u64 = self.filling.iter().map(|(_, elements)| elements).sum();
        let is_open = open < self.size && self.elements[unit + 1..].iter().any(Option::is_some);
        (!is_open).then(|| std::mem::take(&mut self.filling))
    }

    /// Gathers `bucket` after `after`.
    pub(crate) fn gather(
        &self,
        rank: &mut SymbolicRank,
        bucket: &[(usize, u64)],
        after: &[After],
    ) -> InFlight {
        rank.issue((self.among, Operation::AllGather), bucket, self.bytes_per_element, after)
    }
}
