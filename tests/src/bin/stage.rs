//! Any stage as a program, for tests that start processes: `stage zero3 --gpus 4 …`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().unwrap_or_default();
    let Some(stage) = name.to_str().and_then(stages::named) else {
        eprintln!("error: the first argument names a stage's package, such as zero3");
        return ExitCode::from(2);
    };
    stages::main_from(stage, std::iter::once(name).chain(arguments))
}
