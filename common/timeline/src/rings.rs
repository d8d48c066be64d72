//! The links that collectives cross.

use crate::hardware::Cluster;
use prediction::{Among, Job};
use std::collections::{BTreeMap, BTreeSet};

/// The path of a group's collectives: in every machine from member to member, then to the next
/// machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ring {
    /// The number of members.
    pub(crate) size: u64,
    /// The number of machines that they are in; the most of any group.
    pub(crate) machines: u64,
    /// The part of a machine's network that the group has; the least of any group.
    pub(crate) network_share: f64,
}

/// Returns the rings of `job`'s groups. Ranks fill one machine after the other.
pub(crate) fn rings(job: &Job, cluster: &Cluster) -> BTreeMap<Among, Ring> {
    let (ranks, neighbours) = (job.world_size as u64, job.sharing_ranks() as u64);
    let secondary = job.secondary_shards.map(|size| Among::Neighbours(size as u64));
    let kinds = [Among::World, Among::Neighbours(neighbours), Among::Across(neighbours)];
    let kinds = kinds.into_iter().chain(secondary);
    kinds.map(|among| (among, ring(among, ranks, cluster.gpus_per_node as u64))).collect()
}

fn ring(among: Among, ranks: u64, per_machine: u64) -> Ring {
    let (size, group_of): (u64, &dyn Fn(u64) -> u64) = match among {
        Among::World => (ranks, &|_| 0),
        Among::Neighbours(size) => (size, &move |rank| rank / size),
        Among::Across(size) => (ranks / size, &move |rank| rank % size),
    };
    let mut machines_of: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for rank in 0..ranks {
        machines_of.entry(group_of(rank)).or_default().insert(rank / per_machine);
    }
    // Groups in several machines share the network of each.
    let mut sharing: BTreeMap<u64, u64> = BTreeMap::new();
    for machines in machines_of.values().filter(|machines| machines.len() > 1) {
        machines.iter().for_each(|&machine| *sharing.entry(machine).or_default() += 1);
    }
    let groups = sharing.values().copied().max().unwrap_or(1);
    let machines = machines_of.values().map(BTreeSet::len).max().unwrap_or(1) as u64;
    Ring { size, machines, network_share: 1.0 / groups as f64 }
}
