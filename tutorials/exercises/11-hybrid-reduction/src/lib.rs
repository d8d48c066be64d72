//! # Chapter 11: sums over nodes
//!
//! Goal: the reduction of hybrid sharding (`HYBRID_SHARD`, also called HSDP) in two levels: first
//! inside nodes, then shards between them, so that little crosses.
//!
//! Check: `cargo run -p tutorials -- check hybrid-reduction`; hints: `--hints 1`, `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

use exercises::hybrid_reduction::Cluster;

/// Sums gradients over all ranks. `buffers[r]` is rank r's; ranks 0 to `node` − 1 are the first
/// node, and so on. Cut each buffer into `node` equal slices: afterwards the i-th rank of each node
/// holds in slice i the sum over *all* ranks. Links between nodes are slow.
///
/// `cluster.reduce_scatter(buffers, &ranks)` cuts buffers into as many slices as there are `ranks`
/// and gives the i-th of `ranks` the sum of slice i; its other slices are lost.
/// `cluster.all_reduce(buffers, &ranks, range)` gives each of `ranks` the sum of `range`.
pub fn reduce(buffers: &mut [Vec<f32>], node: usize, cluster: &mut Cluster) {
    // Your code here.
}
