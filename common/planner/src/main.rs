//! `planner`: predicts what a model needs in every stage of ZeRO, before anything runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    planner::cli::main_from(std::env::args_os())
}
