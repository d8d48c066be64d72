//! Any stage as a program, for tests that start processes: `stage zero3 --gpus 4 …`.
//!
//! With `ZERO_TEST_STRUCK=SIGNAL:STEP:MILESTONE` in its environment, the process sends itself that
//! signal when its rank reaches that milestone of that step: `KILL:1:Begins(Backward)`.

use std::process::{Command, ExitCode};
use std::sync::Arc;
use trainer::{At, Milestone, Witness};

/// The point at which the process is struck, and the signal.
struct Struck {
    signal: String,
    at: String,
}

impl Witness for Struck {
    fn on_milestone(&self, At { step, .. }: At, milestone: Milestone) {
        if self.at == format!("{step}:{milestone:?}") {
            let own = std::process::id().to_string();
            let sent = Command::new("kill").args([format!("-{}", self.signal), own]).status();
            assert!(sent.is_ok_and(|status| status.success()), "{} cannot be sent", self.signal);
            // Another thread may receive the signal, slightly later.
            loop {
                std::thread::park();
            }
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().unwrap_or_default();
    let Some(stage) = name.to_str().and_then(stages::named) else {
        eprintln!("error: the first argument names a stage's package, such as zero3");
        return ExitCode::from(2);
    };
    let struck = std::env::var("ZERO_TEST_STRUCK").ok();
    let struck = struck.as_deref().and_then(|struck| struck.split_once(':'));
    let struck = struck.map(|(signal, at)| Struck { signal: signal.into(), at: at.into() });
    let witness = struck.map(|struck| Arc::new(struck) as Arc<dyn Witness>);
    stages::main_under(stage, std::iter::once(name).chain(arguments), witness)
}
