//! Accelerate's `parallelism_config`, resolved to a strategy and groups of neighbours.

use crate::node::Node;
use crate::read::Entries;
use crate::table::parallelism::{REPLICATE, SHARD, SPLITS};
use planner::Strategy;
use settings::cli::TrainArgs;
use settings::findings::{Findings, Setter};

/// Sets the strategy of `args` from the two sizes in the file, unless a flag says otherwise.
///
/// # Errors
/// A message that names both sizes, if they do not make up the ranks or cannot be combined.
pub(crate) fn settle(args: &mut TrainArgs, entries: &Entries, findings: &mut Findings) -> Result<(), String> {
    let size = |path| entries.get(path).and_then(Node::as_number).map(|size| size as usize);
    if size(SHARD).or(size(REPLICATE)).is_none() || args.given.typed("strategy").is_some() {
        return Ok(());
    }
    let (shard, replicate) = (size(SHARD).unwrap_or(1), size(REPLICATE).unwrap_or(1));
    let split: usize = SPLITS.iter().filter_map(|path| size(path)).product();
    let ranks = shard.saturating_mul(replicate).saturating_mul(split);
    if ranks != args.gpus {
        let others =
            if split == 1 { String::new() } else { format!(" × {split} for other kinds of parallelism") };
        return Err(format!(
            "{SHARD} {shard} × {REPLICATE} {replicate}{others} is {ranks} ranks, not {} (--gpus)\n\
             --gpus {ranks} would fit; or change one of the sizes.",
            args.gpus
        ));
    }
    let strategy = match (shard, replicate) {
        (1, 1) | (2.., 1) => return Ok(()),
        (1, _) => Strategy::NoShard,
        _ if args.sharding.strategy == Some(Strategy::ShardGradOp) => {
            return Err(format!(
                "{REPLICATE} {replicate} asks for hybrid sharding, which releases parameters after forward: \
                 set fsdp_config.fsdp_reshard_after_forward to true"
            ));
        }
        _ => Strategy::HybridShard,
    };
    args.sharding.strategy = Some(strategy);
    if strategy == Strategy::HybridShard {
        args.sharding.shard_group_size = args.sharding.shard_group_size.or(Some(shard));
    }
    let setter =
        |flag: &str, path, value: usize| Setter { flag: flag.into(), path, value: value.to_string() };
    findings
        .setters
        .extend([setter("--strategy", REPLICATE, replicate), setter("--shard-group-size", SHARD, shard)]);
    Ok(())
}
