//! Trains with this stage: `cargo run -p zero3 -- --gpus 4`.

fn main() -> std::process::ExitCode {
    trainer::main::<zero3::Zero3>(env!("CARGO_PKG_NAME"), env!("VERSION"))
}
