//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::reshard::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check(reshard::reads), || check(solution::reads))
}
