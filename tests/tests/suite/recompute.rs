//! Activation checkpointing: less memory, more compute, the same bits.

#![allow(clippy::unwrap_used, clippy::panic)]

use events::Class;
use prediction::Stage;
use report::EvaluationRow;
use tests::{STAGES, fixture, losses, train};
use trainer::Report;

const CHOICES: [&str; 3] = ["none", "selective", "block"];

fn flags(model: &str, world: usize, micro_batches: usize) -> String {
    format!(
        "--model {} --gpus {world} --batch-size 2 --grad-accum {micro_batches} --seq-len 16 --steps 6 --threads 1 \
         --device cpu --val-fraction 0.1 --eval-every 3 --eval-batches 2",
        fixture(model),
    )
}

/// Runs `stage` with each choice of activation checkpointing.
fn run(stage: Stage, flags: &str) -> [Report; 3] {
    CHOICES.map(|choice| {
        let flags = format!("{flags} --checkpoint-activations {choice}");
        let report = train(stage, &flags).unwrap_or_else(|failure| panic!("{stage} {flags}: {failure}"));
        assert_eq!(report.mispredictions(), Vec::<String>::new(), "{stage} {choice}");
        assert_eq!(report.model.checkpoint_activations.label(), choice);
        report
    })
}

fn peak(report: &Report, class: Class) -> u64 {
    report.memory.iter().filter(|row| row.class == class).map(|row| row.peak_bytes).max().unwrap()
}

/// The results that checkpointing must not change: losses, evaluations, weights, payload and calls.
#[derive(Debug, PartialEq)]
struct Outcome<'a> {
    losses: Vec<f64>,
    evaluations: &'a [EvaluationRow],
    weights: &'a str,
    traffic: Vec<(u64, u64)>,
}

fn outcome(report: &Report) -> Outcome<'_> {
    Outcome {
        losses: losses(report),
        evaluations: &report.evaluations,
        weights: &report.weights_blake3,
        traffic: report.traffic.iter().map(|row| (row.bytes_sent, row.calls)).collect(),
    }
}

fn checkpointing_changes_nothing_but_memory(model: &str, world: usize, micro_batches: usize) {
    for stage in STAGES {
        let reports = run(stage, &flags(model, world, micro_batches));
        let [none, selective, block] = &reports;
        assert_eq!(none.weights_blake3.len(), 64);
        assert_eq!(outcome(selective), outcome(none), "{stage}, {world} ranks: selective");
        assert_eq!(outcome(block), outcome(none), "{stage}, {world} ranks: block");
        let [most, fewer, fewest] = [none, selective, block].map(|report| peak(report, Class::Activations));
        assert!(fewest < fewer && fewer < most, "{stage}: {fewest} < {fewer} < {most}");
        for class in [
            Class::Parameters,
            Class::Gradients,
            Class::Optimizer,
            Class::GatheredParameters,
            Class::Workspace,
        ] {
            assert!(
                reports.iter().all(|report| peak(report, class) == peak(none, class)),
                "{stage}: {class}"
            );
        }
    }
}

#[test]
fn the_same_weights_for_less_memory_on_1_rank() {
    checkpointing_changes_nothing_but_memory("odd.json", 1, 1);
}

#[test]
fn the_same_weights_for_less_memory_on_3_ranks() {
    checkpointing_changes_nothing_but_memory("odd.json", 3, 1);
}

#[test]
fn the_same_weights_for_less_memory_with_accumulation() {
    checkpointing_changes_nothing_but_memory("odd.json", 2, 3);
}

#[test]
fn the_same_weights_for_less_memory_with_a_tied_head() {
    checkpointing_changes_nothing_but_memory("odd-tied.json", 4, 2);
}

/// With 401 hidden values for a vocabulary of 257, the peak is in a recomputed block, not in the
/// head.
#[test]
fn the_same_weights_for_less_memory_where_blocks_outweigh_the_head() {
    checkpointing_changes_nothing_but_memory("wide.json", 2, 1);
}

#[test]
fn the_report_says_what_was_computed_again() {
    let [none, selective, block] = run(Stage::Zero3, &flags("odd.json", 2, 1));
    let recomputed = [&none, &selective, &block].map(|report| report.throughput.recomputed_flops_per_token);
    // Per block of width 36: 6 · 6 queries, 2 · 6 keys and values, 53 hidden values, 16 tokens.
    let cheap = 2 * 4 * 36 + 5 * 53;
    let products = 2 * 36 * (36 + 12 + 12 + 36 + 2 * 53);
    assert_eq!(recomputed, [0, 3 * cheap, 3 * (cheap + products + 4 * 36 * 16)]);
    for report in [&none, &selective, &block] {
        assert_eq!(report.throughput.flops_per_token, none.throughput.flops_per_token);
        let t = report.throughput;
        assert_eq!(t.model_flops_per_second, t.tokens_per_second * t.flops_per_token as f64);
        let again = report.throughput.recomputed_flops_per_token > 0;
        for row in &report.time {
            assert_eq!(row.clocks.phases.recompute > 0.0, again);
            assert!(row.clocks.phases.recompute < row.clocks.phases.backward);
        }
    }
}

/// A slow rank sleeps for at least 20 ms after each recomputation of a block, of which there are
/// three.
#[test]
fn a_slow_rank_recomputes_slowly() {
    let flags = flags("odd.json", 2, 1).replace("--steps 6", "--steps 1");
    let flags = format!("{flags} --checkpoint-activations block --inject slow@rank1,step0");
    let report = train(Stage::Zero3, &flags).unwrap();
    assert!(report.time[1].clocks.phases.recompute >= 3.0 * 0.02);
}
