//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::hybrid_reduction::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check(hybrid_reduction::reduce), || check(solution::reduce))
}
