//! A rank's model states.

/// Returns a rank's bytes: stage s shards the last s of weights, gradients and optimizer states.
pub fn model_states(parameters: u64, ranks: u64, stage: u32, bytes: [u64; 3]) -> u64 {
    let shards = if stage == 0 { 1 } else { ranks };
    let slice = parameters.div_ceil(shards);
    let sharded_from = 3 - stage as usize;
    let held = |at: usize| if at >= sharded_from { slice } else { slice * shards };
    bytes.iter().enumerate().map(|(at, bytes)| held(at) * bytes).sum()
}
