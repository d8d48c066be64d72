//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

mod solved {
    use super::solution::norm;
    include!(concat!(env!("OUT_DIR"), "/shard-norm.rs"));
}

use exercises::shard_norm::check;

fn main() -> std::process::ExitCode {
    exercises::main(
        || check::<shard_norm::Zero1>(shard_norm::norm),
        || check::<solved::Zero1>(solution::norm),
    )
}
