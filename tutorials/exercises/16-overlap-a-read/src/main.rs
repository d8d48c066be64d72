//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::overlap_a_read::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check(overlap_a_read::pass), || check(solution::pass))
}
