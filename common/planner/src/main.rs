//! `planner`: what a model would need in every stage of ZeRO, before anything runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    match planner::cli::run(std::env::args_os()) {
        Ok(text) => {
            events::say!("{}", text.trim_end());
            events::say::code()
        }
        Err(error) => error.exit(),
    }
}
