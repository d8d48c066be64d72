//! Trains with this stage: `cargo run -p zero1 -- --gpus 4`.

fn main() -> std::process::ExitCode {
    trainer::main::<zero1::Zero1>(env!("CARGO_PKG_NAME"), env!("VERSION"))
}
