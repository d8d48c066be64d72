//! # Chapter 11: sums over nodes
//!
//! Goal: the reduction of hybrid sharding (`HYBRID_SHARD`, also called HSDP) in two levels. Sum
//! inside nodes first, then only shards between nodes, so that little data crosses.
//!
//! Check: `cargo run -p tutorials -- check hybrid-reduction`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

use exercises::hybrid_reduction::Cluster;

/// Sums gradients over all ranks. `buffers[r]` belongs to rank r; ranks 0 to `node` − 1 are the
/// first node, and so on. Split each buffer into `node` equal slices: afterwards the i-th rank of
/// each node holds in slice i the sum over *all* ranks. Links between nodes are slow.
///
/// `cluster.reduce_scatter(buffers, &ranks)` splits each buffer into as many slices as there are
/// `ranks` and gives the i-th of `ranks` the sum of slice i; its other slices are lost.
/// `cluster.all_reduce(buffers, &ranks, range)` gives each of `ranks` the sum of `range`.
pub fn reduce(buffers: &mut [Vec<f32>], node: usize, cluster: &mut Cluster) {
    // Your code here.
}
