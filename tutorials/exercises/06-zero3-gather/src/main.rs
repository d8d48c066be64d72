//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::stage::check;

fn main() -> std::process::ExitCode {
    exercises::main(check::<zero3_gather::Zero3>, check::<solution::Zero3>)
}
