//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::stage::check;

fn main() -> std::process::ExitCode {
    exercises::main(check::<zero1_step::Zero1>, check::<solution::Zero1>)
}
