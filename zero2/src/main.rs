//! Trains with this stage: `cargo run -p zero2 -- --gpus 4`.

fn main() -> std::process::ExitCode {
    trainer::main::<zero2::Zero2>(env!("CARGO_PKG_NAME"), env!("VERSION"))
}
