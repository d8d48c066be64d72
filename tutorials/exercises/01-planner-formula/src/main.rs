//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

use exercises::planner_formula::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check(planner_formula::model_states), || check(solution::model_states))
}
