//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::partition::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check(partition::slice), || check(solution::slice))
}
