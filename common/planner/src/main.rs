//! `planner`: what a model would need in every stage of ZeRO, before anything runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    planner::cli::main_from(std::env::args_os())
}
