//! Checks a two-level reduction over vectors.

use crate::provenance::{buffers, complaint, contribution, misplaced, placed};
use crate::{Figure, Score, Verdict};
use events::Operation;
use prediction::Algorithm;
use std::ops::Range;

/// Ranks in nodes. Runs collectives and counts the elements that cross between nodes.
pub struct Cluster {
    node: usize,
    crossed: u64,
    collectives: u64,
}

impl Cluster {
    /// Splits each buffer into as many slices as there are `ranks` and gives the i-th of `ranks`
    /// the sum of slice i. Its other slices are lost.
    pub fn reduce_scatter(&mut self, buffers: &mut [Vec<f32>], ranks: &[usize]) {
        let length = buffers[ranks[0]].len() / ranks.len();
        self.count(Operation::ReduceScatter, ranks, length * ranks.len());
        let sums = sum(buffers, ranks, 0..length * ranks.len());
        for (at, &rank) in ranks.iter().enumerate() {
            buffers[rank].fill(0.0);
            let range = at * length..(at + 1) * length;
            buffers[rank][range.clone()].copy_from_slice(&sums[range]);
        }
    }

    /// Gives each of `ranks` the sum of `range`.
    pub fn all_reduce(&mut self, buffers: &mut [Vec<f32>], ranks: &[usize], range: Range<usize>) {
        self.count(Operation::AllReduce, ranks, range.len());
        let sums = sum(buffers, ranks, range.clone());
        for &rank in ranks {
            buffers[rank][range.clone()].copy_from_slice(&sums);
        }
    }

    /// Counts a collective. If its ranks are in several nodes, everything that they send counts as
    /// crossing.
    fn count(&mut self, operation: Operation, ranks: &[usize], elements: usize) {
        self.collectives += 1;
        if ranks.iter().any(|rank| rank / self.node != ranks[0] / self.node) {
            self.crossed += sent(operation, elements, ranks.len());
        }
    }
}

/// Returns the total number of elements that all of `ranks` send.
fn sent(operation: Operation, elements: usize, ranks: usize) -> u64 {
    let by = |rank| Algorithm::default().elements_sent(operation, elements as u64, ranks as u64, rank);
    (0..ranks as u64).map(by).sum()
}

fn sum(buffers: &[Vec<f32>], ranks: &[usize], range: Range<usize>) -> Vec<f32> {
    range.map(|at| ranks.iter().map(|&rank| buffers[rank][at]).sum()).collect()
}

/// The function under check: (buffers, ranks per node, the cluster).
pub type Reduce = fn(&mut [Vec<f32>], usize, &mut Cluster);

/// Reduces over clusters of several shapes.
pub fn check(reduce: Reduce) -> Verdict {
    let [mut crossed, mut collectives] = ["elements between nodes", "collectives"].map(Figure::of);
    for (ranks, node) in [(4, 2), (6, 3), (6, 2)] {
        let (shard, nodes) = (2 * ranks, ranks / node);
        let cluster = run(reduce, ranks, node)?;
        // Each position in a node has a shard, which is all-reduced among the ranks at that
        // position in all nodes.
        let least = node as u64 * sent(Operation::AllReduce, shard, nodes);
        if cluster.crossed < least {
            return Err(format!(
                "{ranks} ranks in nodes of {node}: {} elements crossed between nodes, and the sums take {least}: \
                 values reached a rank without a collective",
                cluster.crossed
            ));
        }
        crossed.add(cluster.crossed, least);
        collectives.add(cluster.collectives, (nodes + node) as u64);
    }
    Ok(Score::right("every rank has its shard of the whole sum").with(crossed).with(collectives))
}

fn run(reduce: Reduce, ranks: usize, node: usize) -> Result<Cluster, String> {
    let what = format!("{ranks} ranks in nodes of {node}: in the shard of rank");
    let shard = |rank: usize| rank % node * 2 * ranks..(rank % node + 1) * 2 * ranks;
    let (buffers, cluster) = reduced(reduce, ranks, node, |rank, _| contribution(rank));
    for (rank, buffer) in buffers.iter().enumerate() {
        if let Some(complaint) = buffer[shard(rank)].iter().find_map(|&value| complaint(value, ranks)) {
            return Err(format!("{what} {rank}, {complaint}"));
        }
    }
    let (buffers, _) = reduced(reduce, ranks, node, placed);
    for (rank, buffer) in buffers.iter().enumerate() {
        if misplaced(buffer, shard(rank), ranks).is_some() {
            return Err(format!("{what} {rank} are sums of other places"));
        }
    }
    Ok(cluster)
}

/// Runs `reduce` on each rank's `values`, a function of rank and place. Returns the buffers, and
/// the cluster with its counts.
fn reduced(
    reduce: Reduce,
    ranks: usize,
    node: usize,
    values: fn(usize, usize) -> f32,
) -> (Vec<Vec<f32>>, Cluster) {
    let mut buffers = buffers(ranks, 2 * ranks * node, values);
    let mut cluster = Cluster { node, crossed: 0, collectives: 0 };
    reduce(&mut buffers, node, &mut cluster);
    (buffers, cluster)
}
