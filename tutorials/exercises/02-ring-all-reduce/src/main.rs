//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::ring_all_reduce::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check(ring_all_reduce::all_reduce), || check(solution::all_reduce))
}
