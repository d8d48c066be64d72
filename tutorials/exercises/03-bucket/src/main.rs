//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::bucket::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check(bucket::push), || check(solution::push))
}
