//! Any stage as a program, for tests that start processes: `stage zero3 --gpus 4 …`.

use planner::Stage;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().unwrap_or_default();
    let Some(stage) = Stage::ALL.into_iter().find(|stage| name == stage.package()) else {
        eprintln!("error: the first argument names a stage's package, such as zero3");
        return ExitCode::from(2);
    };
    let arguments = std::iter::once(name).chain(arguments);
    match stage {
        Stage::Ddp => trainer::main_from::<zero0_ddp::Ddp>(arguments),
        Stage::Zero1 => trainer::main_from::<zero1::Zero1>(arguments),
        Stage::Zero2 => trainer::main_from::<zero2::Zero2>(arguments),
        Stage::Zero3 => trainer::main_from::<zero3::Zero3>(arguments),
    }
}
