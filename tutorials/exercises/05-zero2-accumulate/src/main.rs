//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::stage::check;

fn main() -> std::process::ExitCode {
    exercises::main(check::<zero2_accumulate::Zero2>, check::<solution::Zero2>)
}
