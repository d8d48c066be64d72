//! `planner`: what a model would need in every stage of ZeRO, before anything runs.

fn main() {
    match planner::cli::run(std::env::args_os()) {
        Ok(text) => print(&text),
        Err(error) => error.exit(),
    }
}

/// Writes `text`; a reader that has closed the pipe has seen enough.
fn print(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
}
