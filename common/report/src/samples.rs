//! Reports with made-up measurements, for tests.

use crate::compared::Predicted;
use crate::measured::{Measured, Peaks};
use crate::report::{Report, Trained};
use crate::rows::{Clocks, StepRow, Times};
use clap::Parser;
use events::{Class, Place};
use prediction::{Stage, Strategy};
use settings::Config;
use settings::cli::{Cli, TrainArgs};

/// Returns the parsed `flags`.
pub(crate) fn args(flags: &str) -> TrainArgs {
    Cli::parse_from(["zero"].into_iter().chain(flags.split_whitespace())).train
}

/// Returns the configuration of `flags`.
pub(crate) fn config(flags: &str) -> Config {
    Config::new(args(flags)).unwrap()
}

/// Returns a report of one skipped step with `flags`, with made-up measurements.
pub(crate) fn one_step(flags: &str) -> Report {
    let config = config(flags);
    let step = StepRow {
        step: 0,
        loss: 0.1 + 0.2,
        grad_norm: f64::INFINITY,
        lr: 1e-3,
        tokens: config.tokens_per_step(),
        seconds: 0.3,
        loss_scale: Some(2.0),
        skipped: true,
    };
    let memory = vec![Peaks { classes: vec![3; Class::ALL.len()], total: 21 }; Place::ALL.len()];
    let measured = Measured {
        seconds: step.seconds,
        steps: vec![step],
        evaluations: vec![(1, 2.5)],
        fresh_starts: 1,
        memory: memory.clone(),
        weights_blake3: Some("ab".into()),
        ..Measured::default()
    };
    let ranks = config.world_size;
    let predicted = Predicted {
        memory: vec![memory; ranks],
        transfers: vec![prediction::Transfers::default(); ranks],
        traffic: vec![prediction::traffic::Traffic::default(); ranks],
        to_neighbours: vec![0; ranks],
        saving: prediction::Saving::Never,
    };
    let trained = Trained {
        stage: Stage::ALL[Stage::ALL.len() - 1],
        strategy: Some(Strategy::FullShard),
        parameters: 918_656,
        units: 6,
    };
    Report::new(trained, &config, &predicted, &vec![measured; ranks])
}

/// Returns a run of two ranks with `flags`, in which communication takes most of the step and rank
/// 0 waits for rank 1.
pub(crate) fn waiting(flags: &str) -> Report {
    let mut report = one_step(flags);
    let phases = Times { forward: 0.3, backward: 0.5, recompute: 0.04, step: 0.1, data: 0.01, evaluate: 0.0 };
    let link = Times { forward: 0.2, backward: 0.3, step: 0.05, ..Times::default() };
    report.threads = 1;
    for row in &mut report.time {
        row.seconds = 0.95;
        let off_processor = Times { forward: 0.01, backward: 0.03, recompute: 0.01, ..Times::default() };
        row.clocks = Clocks { phases, off_processor, for_link: link, waits: link, ..row.clocks };
    }
    let waiting = &mut report.time[0].clocks;
    (waiting.for_peers.backward, waiting.waits.backward) = (0.05, 0.35);
    report
}
