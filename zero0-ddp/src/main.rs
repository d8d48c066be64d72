//! Trains with this stage: `cargo run -p zero0-ddp -- --gpus 4`.

fn main() -> std::process::ExitCode {
    trainer::main::<zero0_ddp::Ddp>(env!("CARGO_PKG_NAME"), env!("VERSION"))
}
