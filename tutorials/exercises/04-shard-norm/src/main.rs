//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::shard_norm::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check(shard_norm::norm), || check(solution::norm))
}
