//! Determines the number of ranks if nothing gives it, and resolves Accelerate's
//! `parallelism_config` to a strategy and groups of neighbours.

use crate::entries::Entries;
use crate::keys::contradiction;
use crate::node::Node;
use crate::table::parallelism::{REPLICATE, SHARD, SPLITS};
use prediction::Strategy;
use settings::cli::{RANKS, ShardingArgs, TrainArgs};
use settings::findings::{Findings, Setter};

/// True if neither a flag nor a launcher nor the file gives the number of ranks.
pub(crate) fn ranks_are_open(args: &TrainArgs, findings: &Findings) -> bool {
    !findings.setters.iter().any(|setter| setter.flag == "--gpus")
        && args.given.typed("gpus").is_none()
        && args.on_this_machine.is_none()
}

/// Returns the number of ranks of the file's largest group; 1 if it has none.
pub(crate) fn group(args: &TrainArgs) -> usize {
    let ShardingArgs { secondary_shard_size, shard_group_size, .. } = args.sharding;
    let sizes = [("secondary_shard_size", secondary_shard_size), ("shard_group_size", shard_group_size)];
    let of_the_file = sizes.into_iter().filter(|(id, _)| args.given.typed(id).is_none());
    of_the_file
        .filter_map(|(_, size)| size)
        .max()
        .filter(|&size| size > 0 && size as u64 <= RANKS)
        .unwrap_or(1)
}

/// Sets the world size to the size of the file's largest group, if the default is not a multiple of
/// it and nothing else gives the world size.
pub(crate) fn fit_groups(args: &mut TrainArgs, findings: &mut Findings) {
    let size = group(args);
    if !args.gpus.is_multiple_of(size) && ranks_are_open(args, findings) {
        let Findings { file, warnings, .. } = findings;
        warnings.push(format!(
            "{file}: groups of {size} ranks do not fit {} ranks, the default: with {size} they do (--gpus)",
            args.gpus
        ));
        args.gpus = size;
    }
}

/// Checks that the two sizes, times the `split` by other kinds of parallelism, are `gpus` ranks.
fn check_ranks((shard, replicate, split): (usize, usize, usize), gpus: usize) -> Result<(), String> {
    let ranks = shard.saturating_mul(replicate).saturating_mul(split);
    if ranks == gpus {
        return Ok(());
    }
    let others =
        if split == 1 { String::new() } else { format!(" × {split} for other kinds of parallelism") };
    Err(format!(
        "{SHARD} {shard} × {REPLICATE} {replicate}{others} is {ranks} ranks, not {gpus} (--gpus)\n\
         --gpus {ranks} would fit; or change one of the sizes."
    ))
}

/// Sets the strategy of `args` from the two sizes in the file, unless a flag says otherwise.
///
/// # Errors
/// A message that names both sizes, if they do not make up the ranks or cannot be combined.
pub(crate) fn settle(args: &mut TrainArgs, entries: &Entries, findings: &mut Findings) -> Result<(), String> {
    let size = |path| entries.get(path).and_then(Node::as_number).map(|size| size as usize);
    if size(SHARD).or(size(REPLICATE)).is_none() {
        return Ok(());
    }
    let (shard, replicate) = (size(SHARD).unwrap_or(1), size(REPLICATE).unwrap_or(1));
    let contradicts = |path, size: usize, flag, typed| {
        contradiction(&findings.file, &format!("{path} {size}"), flag, typed)
    };
    if let Some(typed) = args.given.typed("strategy") {
        let strategy = if shard == 1 { Strategy::NoShard } else { Strategy::HybridShard };
        if replicate > 1 && args.sharding.strategy != Some(strategy) {
            findings.warnings.push(contradicts(REPLICATE, replicate, "--strategy", typed));
        }
        return Ok(());
    }
    let split: usize = SPLITS.iter().filter_map(|path| size(path)).product();
    check_ranks((shard, replicate, split), args.gpus)?;
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
    let setter = |flag: &str, path: &str, value: usize| Setter {
        flag: flag.into(),
        path: path.into(),
        value: value.to_string(),
    };
    findings.setters.push(setter("--strategy", REPLICATE, replicate));
    if let Some(typed) = args.given.typed("shard_group_size") {
        if strategy == Strategy::HybridShard && args.sharding.shard_group_size != Some(shard) {
            findings.warnings.push(contradicts(SHARD, shard, "--shard-group-size", typed));
        }
    } else {
        args.sharding.shard_group_size = Some(shard).filter(|_| strategy == Strategy::HybridShard);
        let sets_groups = args.sharding.shard_group_size.map(|_| setter("--shard-group-size", SHARD, shard));
        findings.setters.extend(sets_groups);
    }
    Ok(())
}
