//! # Chapter 11: sums over nodes
//!
//! Goal: HSDP's reduction in two levels: first inside nodes, then shards between them, so that little crosses.
//!
//! Check: `cargo run -p tutorials -- check hybrid-reduction`; a hint: `--hints 1`, another: `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

use exercises::hybrid_reduction::Cluster;

/// `buffers[r]` is rank r's gradient; ranks 0 to `node` − 1 are the first node, and so on. Afterwards the i-th rank of each
/// node has, in the i-th of `node` equal slices of its buffer, the sum over *all* ranks. Links between nodes are slow.
pub fn reduce(buffers: &mut [Vec<f32>], node: usize, cluster: &mut Cluster) {
    // Your code here.
}
