//! A step's collectives by closed form: the ZeRO paper's section 7, with accumulation, FSDP's
//! strategies, hpZ and persistent parameters.

use crate::job::Job;
use crate::partition::Partition;
use crate::recipe::F32;
use crate::walk::reduction;
use events::header::Sweep;
use events::{Operation, Purpose};

/// Returns what `job` communicates in a step. Of the elements that forward gathers, `kept` are
/// still gathered when backward needs them.
pub(crate) fn theory(job: &Job, partition: &Partition, kept: u64) -> Vec<Sweep> {
    let sharded = job.stage.sharded();
    let padded = |wanted: &dyn Fn(bool) -> bool| -> u64 {
        partition.units.iter().filter(|unit| wanted(unit.persistent)).map(|unit| unit.padded).sum()
    };
    let all = padded(&|_| true);
    let gathered = padded(&|persistent| sharded.parameters && !persistent);
    let updated = if sharded.optimizer { all - gathered } else { 0 };
    let (sharing, micro_batches) = (job.sharing_ranks(), job.micro_batches);
    let weights = |purpose, times, elements, ranks| {
        sweep((purpose, Operation::AllGather), times, elements, job.recipe.weights, ranks)
    };
    let bytes = job.wire_copy_bytes().unwrap_or(job.recipe.gradients);
    let reductions = if sharded.gradients { micro_batches } else { 1 };
    let groups = job.world_size / sharing;
    let sweeps = [
        weights(Purpose::Forward, micro_batches, gathered, sharing),
        weights(Purpose::Backward, micro_batches, gathered - kept, job.secondary_shards.unwrap_or(sharing)),
        sweep((Purpose::Gradients, reduction(job)), reductions, all, bytes, sharing),
        // A group's sums are not rounded before they are summed over groups.
        sweep((Purpose::Groups, Operation::AllReduce), 1, all / job.shards(), bytes.max(F32), groups),
        weights(Purpose::Updates, 1, updated, sharing),
    ];
    sweeps.into_iter().filter(|sweep| sweep.elements > 0 && sweep.ranks > 1).collect()
}

fn sweep(
    (purpose, operation): (Purpose, Operation),
    times: usize,
    elements: u64,
    element_bytes: u64,
    ranks: usize,
) -> Sweep {
    let (times, element_bytes, ranks) = (times as u32, element_bytes as u32, ranks as u32);
    Sweep { purpose, operation, times, elements, element_bytes, ranks }
}
