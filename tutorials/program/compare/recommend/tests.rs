//! Recommendations for given outcomes.

use super::*;
use crate::compare::profile::tests::hill;
use clap::Parser;
use prediction::Stage;
use report::StepRow;
use settings::Config;
use settings::cli::Cli;

fn config() -> Config {
    let flags = "x --gpus 1 --steps 3 --batch-size 1 --seq-len 8 --threads 1 --headless --device cpu";
    deepspeed::configure(Cli::parse_from(flags.split_whitespace()).train).unwrap()
}

/// Returns a run of `stage` with the given milliseconds per timed step and peak megabytes.
fn ran(stage: Stage, milliseconds: &[f64], megabytes: u64) -> Outcome {
    let mut report = stages::train(stage, config()).unwrap();
    let step = report.steps[0];
    let timed = milliseconds.iter().map(|ms| StepRow { seconds: ms * 1e-3, ..step });
    // Warm-up steps take far longer and must not count.
    let warm_up = std::iter::repeat_n(StepRow { seconds: 9.0, ..step }, WARM_UP);
    report.steps = warm_up.chain(timed).collect();
    report.total_peak_bytes.iter_mut().for_each(|row| row.peak_bytes = megabytes * 1_000_000);
    Outcome { stage, ran: Ok((Run { stage, report }, hill())) }
}

fn comparison(outcomes: Vec<Outcome>) -> Comparison {
    Comparison { config: config(), outcomes, scaling: vec![], buckets: vec![] }
}

#[test]
fn of_equally_fast_stages_the_smallest() {
    let outcomes = vec![
        ran(Stage::Ddp, &[9.0, 10.0, 11.0], 30),
        Outcome { stage: Stage::Zero1, ran: Err(90_000_000) },
        ran(Stage::Zero2, &[10.5, 11.0, 12.0], 20),
        // It is as fast as the chosen one but not as the fastest, with which it is compared.
        ran(Stage::Zero3, &[11.5, 15.0, 16.0], 10),
    ];
    insta::assert_snapshot!(recommendation(&comparison(outcomes)));
}

#[test]
fn a_clearly_faster_stage_and_none() {
    let outcomes = vec![ran(Stage::Ddp, &[9.0, 10.0, 11.0], 30), ran(Stage::Zero3, &[11.5, 15.0, 16.0], 10)];
    let text = recommendation(&comparison(outcomes));
    assert!(
        text.starts_with(
            "Use DDP: it is the fastest, by more than the steps' spread.\n- ZeRO-3 is 33 % slower"
        ),
        "{text}"
    );
    let nothing = comparison(vec![Outcome { stage: Stage::Ddp, ran: Err(90) }]);
    assert!(recommendation(&nothing).starts_with("No stage fits."));
}

#[test]
fn two_steps_tell_no_speeds_apart() {
    let outcomes = vec![ran(Stage::Ddp, &[1.0, 1.0], 30), ran(Stage::Zero3, &[9.0, 9.0], 10)];
    let text = recommendation(&comparison(outcomes));
    assert!(text.starts_with("Use ZeRO-3: it needs the least memory; so few steps"), "{text}");
    assert!(text.contains("--steps 10"), "{text}");
}

#[test]
fn a_stage_alone_is_not_called_the_fastest() {
    let text = recommendation(&comparison(vec![ran(Stage::Ddp, &[1.0, 1.0, 1.0], 30)]));
    assert_eq!(text, "Use DDP: no other stage ran.\n");
}
