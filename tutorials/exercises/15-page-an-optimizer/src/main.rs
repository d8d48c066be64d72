//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::page_an_optimizer::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check(page_an_optimizer::step), || check(solution::step))
}
