//! A two-level reduction over vectors.

use super::provenance::{complaint, contribution};
use crate::Verdict;
use std::ops::Range;

/// Ranks in nodes: carries out collectives, and counts what crosses from node to node.
pub struct Cluster {
    node: usize,
    crossed: usize,
}

impl Cluster {
    /// The i-th of `ranks` gets the sum of slice i, of as many slices as there are `ranks`; its other slices are lost.
    pub fn reduce_scatter(&mut self, buffers: &mut [Vec<f32>], ranks: &[usize]) {
        let length = buffers[ranks[0]].len() / ranks.len();
        self.count(ranks, length * (ranks.len() - 1));
        let sums = sum(buffers, ranks, 0..length * ranks.len());
        for (at, &rank) in ranks.iter().enumerate() {
            buffers[rank].fill(0.0);
            let range = at * length..(at + 1) * length;
            buffers[rank][range.clone()].copy_from_slice(&sums[range]);
        }
    }

    /// Every one of `ranks` gets the sum of `range`.
    pub fn all_reduce(&mut self, buffers: &mut [Vec<f32>], ranks: &[usize], range: Range<usize>) {
        self.count(ranks, 2 * range.len() * (ranks.len() - 1) / ranks.len());
        let sums = sum(buffers, ranks, range.clone());
        for &rank in ranks {
            buffers[rank][range.clone()].copy_from_slice(&sums);
        }
    }

    /// A collective whose ranks are in several nodes crosses with all it sends.
    fn count(&mut self, ranks: &[usize], sent_by_each: usize) {
        if ranks.iter().any(|rank| rank / self.node != ranks[0] / self.node) {
            self.crossed += ranks.len() * sent_by_each;
        }
    }
}

fn sum(buffers: &[Vec<f32>], ranks: &[usize], range: Range<usize>) -> Vec<f32> {
    range.map(|at| ranks.iter().map(|&rank| buffers[rank][at]).sum()).collect()
}

/// What is checked: (buffers, ranks per node, the cluster).
pub(crate) type Reduce = fn(&mut [Vec<f32>], usize, &mut Cluster);

pub(crate) fn check(reduce: Reduce) -> Verdict {
    for (ranks, node) in [(4, 2), (6, 3), (6, 2)] {
        run(reduce, ranks, node)?;
    }
    Ok("shards of the whole sum, and only shards cross from node to node".into())
}

fn run(reduce: Reduce, ranks: usize, node: usize) -> Result<(), String> {
    let (length, nodes) = (2 * ranks * node, ranks / node);
    let shard = length / node;
    let mut buffers: Vec<Vec<f32>> = (0..ranks).map(|rank| vec![contribution(rank); length]).collect();
    let mut cluster = Cluster { node, crossed: 0 };
    reduce(&mut buffers, node, &mut cluster);
    let what = format!("{ranks} ranks in nodes of {node}");
    for (rank, buffer) in buffers.iter().enumerate() {
        let own = rank % node * shard..(rank % node + 1) * shard;
        for &value in &buffer[own] {
            if let Some(complaint) = complaint(value, ranks) {
                return Err(format!("{what}: in the shard of rank {rank}, {complaint}"));
            }
        }
    }
    let least = ranks * 2 * shard * (nodes - 1) / nodes;
    if cluster.crossed > least {
        return Err(format!(
            "{what}: {} elements cross from node to node; {least} are enough",
            cluster.crossed
        ));
    }
    Ok(())
}
