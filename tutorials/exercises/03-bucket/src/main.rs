//! Checks this exercise.

#[path = "../solution.rs"]
mod solution;

mod solved {
    use super::solution::push;
    include!(concat!(env!("OUT_DIR"), "/bucket.rs"));
}

use exercises::bucket::check;

fn main() -> std::process::ExitCode {
    exercises::main(|| check::<bucket::Ddp>(bucket::push), || check::<solved::Ddp>(solution::push))
}
