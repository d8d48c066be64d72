//! # Chapter 11: sums over nodes
//!
//! Goal: HSDP's reduction in two levels: first inside nodes, then shards between them, so that little crosses.
//!
//! Check: `cargo run -p tutorials -- check hybrid-reduction`; a hint: `--hints 1`, another: `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

use exercises::hybrid_reduction::Cluster;

/// `buffers[r]` is rank r's gradient; ranks 0 to `node` − 1 are the first node, and so on. Afterwards the i-th rank of each
/// node has, in the i-th of `node` equal slices of its buffer, the sum over *all* ranks. Links between nodes are slow.
///
/// `cluster.reduce_scatter(buffers, &ranks)` gives the i-th of `ranks` the sum of slice i, of as many slices as there are
/// ranks; its other slices are lost. `cluster.all_reduce(buffers, &ranks, range)` gives every one of `ranks` the sum of `range`.
pub fn reduce(buffers: &mut [Vec<f32>], node: usize, cluster: &mut Cluster) {
    // Your code here.
}
