//! The flags that divide the world into groups of neighbours.

use crate::cli::TrainArgs;
use crate::error::{Failure, Result};
use sharding::MeshShape;

/// Returns the groups that the flags ask for.
pub(crate) fn mesh(args: &TrainArgs) -> Result<MeshShape> {
    let (shard, secondary) =
        (args.sharding.shard_group_size, args.sharding.secondary_shard_size.unwrap_or(1));
    divides("--shard-group-size", shard.unwrap_or(1), args.gpus)?;
    divides("--secondary-shard-size", secondary, args.gpus)?;
    let strategy = args.sharding.strategy.unwrap_or_default();
    match shard {
        _ if strategy.forms_groups() && secondary > 1 => Err(Failure::usage(format!(
            "--secondary-shard-size {secondary}: with --strategy {strategy}, backward gathers from neighbours already: \
             choose one of the two"
        ))),
        Some(size) if strategy.forms_groups() => Ok(MeshShape::Hybrid(size)),
        None if strategy.forms_groups() => Err(Failure::usage(format!(
            "--strategy {strategy} needs --shard-group-size, the ranks that share one copy of the model states: \
             {} of {} ranks",
            choices(args.gpus),
            args.gpus
        ))),
        Some(size) => Err(Failure::usage(format!("--shard-group-size {size}: add --strategy hybrid-shard"))),
        None if secondary == 1 => Ok(MeshShape::World),
        None if strategy.takes_secondary_shards() => Ok(MeshShape::Secondary(secondary)),
        None => Err(Failure::usage(format!(
            "--secondary-shard-size {secondary}: --strategy {strategy} gathers nothing for backward, \
             and secondary shards serve nothing else: choose --strategy full-shard"
        ))),
    }
}

fn divides(flag: &str, size: usize, ranks: usize) -> Result<()> {
    if size > 0 && ranks.is_multiple_of(size) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{flag} {size} does not divide the {ranks} ranks (--gpus): {}",
        choices(ranks)
    )))
}

/// Lists the divisors of `ranks`: `choose 1, 2 or 4`.
fn choices(ranks: usize) -> String {
    let mut words: Vec<String> =
        (1..=ranks).filter(|size| ranks.is_multiple_of(*size)).map(|size| size.to_string()).collect();
    match words.pop() {
        Some(last) if words.is_empty() => format!("choose {last}"),
        Some(last) => format!("choose {} or {last}", words.join(", ")),
        None => String::new(),
    }
}
