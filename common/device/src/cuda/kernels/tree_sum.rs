//! Launches of `tree_sum.cu`: a thread sums 8 elements over all ranks.

use super::table::{TREE_SUM, TREE_SUM_EXACT, of_type};
use super::{Argument, CHUNK, Launcher, launch_each};
use crate::{DType, Result};

/// Ranks that one launch can sum over.
pub const PEERS: usize = 64;

/// Sets every one of `outputs` to the sum of `inputs` over a balanced binary tree in order, in f32,
/// rounded once: `len` elements from each address, of the types `(read, stored)`. The stored type
/// is the one that is read, and an output may then be one of the inputs; or it is f32. The bits of
/// the CPU's collectives.
///
/// # Errors
/// If one of the types is no float type; the launcher's.
///
/// # Panics
/// If there are no inputs, more than [`PEERS`] of either, or if sums are to be stored in another
/// 16-bit type.
pub fn tree_sum(
    l: &impl Launcher,
    outputs: &[u64],
    inputs: &[u64],
    (read, stored): (DType, DType),
    len: usize,
) -> Result<()> {
    assert!(stored == read || stored == DType::F32, "{read} stored as {stored}");
    let family = if stored == read { &TREE_SUM } else { &TREE_SUM_EXACT };
    let kernel = of_type(family, "inputs", read)?;
    assert!((1..=PEERS).contains(&inputs.len()) && outputs.len() <= PEERS, "1 to {PEERS} ranks");
    launch_each(
        l,
        kernel,
        len.div_ceil(CHUNK),
        &[
            Argument::Peers(&peers(outputs)),
            Argument::Peers(&peers(inputs)),
            Argument::U32(outputs.len() as u32),
            Argument::U32(inputs.len() as u32),
            Argument::U64(len as u64),
        ],
    )
}

fn peers(addresses: &[u64]) -> [u64; PEERS] {
    let mut peers = [0; PEERS];
    peers[..addresses.len()].copy_from_slice(addresses);
    peers
}
