//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::loss_scaler::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check(loss_scaler::next), || check(solution::next))
}
