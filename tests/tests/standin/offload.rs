//! Offload from GPUs, on the stand-in driver: a run that keeps states in main memory or on disk
//! learns the bits of one that keeps everything on the GPU, and moves the predicted bytes.

use prediction::Stage;
use tests::{STAGES, assert_same, fixture, run, standin_or_return};
use trainer::Report;

/// Delays each queued operation for longer than the host needs from issuing a copy to using its
/// result. This exposes missing fences.
const DOZE: (&str, &str) = ("STANDIN_DOZE", "2000");

/// Returns flags for units that do not divide evenly, two micro-batches and a validation.
fn flags(world: usize, more: &str) -> String {
    format!(
        "--model {} --gpus {world} --batch-size 1 --grad-accum 2 --seq-len 12 --steps 2 --threads 1 \
         --device cuda --val-fraction 0.1 --eval-every 2 --eval-batches 1 {more}",
        fixture("three-heads-tied.json"),
    )
}

/// Runs `stage` with `base` and each of `cases` on the GPU. All must learn the same.
fn none_changes_a_bit(stage: Stage, base: &str, cases: &[&str]) -> Report {
    none_changes_a_bit_of(&vec![stage; cases.len()], base, cases)
}

/// Runs the first of `stages` with `base`, and each stage with `base` and its case, on the GPU. All
/// must learn the same.
fn none_changes_a_bit_of(stages: &[Stage], base: &str, cases: &[&str]) -> Report {
    assert_eq!(stages.len(), cases.len());
    let plain = run(stages[0], base);
    assert!(plain.transfers.is_empty() && !plain.placement.any());
    for (stage, case) in stages.iter().zip(cases) {
        let what = format!("{stage} {base} {case}");
        let away = run(*stage, &format!("{base} {case}"));
        assert_eq!(away.device, "Stand-in GPU", "{what}");
        assert_same(&plain, &away, &what);
        assert!(away.transfers.iter().any(|row| row.bytes > 0), "{what}: nothing has moved");
    }
    plain
}

const OPTIMIZER: [&str; 2] = ["--offload-optimizer cpu", "--offload-optimizer disk --offload-buffers 2"];

/// Placements for ZeRO-3, in pairs.
const PAIRS: [&str; 6] = [
    "--offload-parameters cpu",
    "--offload-parameters disk --offload-buffers 2",
    "--offload-optimizer cpu --offload-parameters cpu --offload-buffers 1",
    "--offload-optimizer cpu --offload-parameters disk",
    "--offload-optimizer disk --offload-parameters cpu --offload-buffers 2",
    "--offload-optimizer disk --offload-parameters disk --offload-buffers 5",
];

#[test]
fn an_optimizer_beyond_the_gpu_changes_no_bit_of_any_stage() {
    standin_or_return!(&[DOZE]);
    // Each stage and each precision uses both places, but not in every combination. DDP and ZeRO-1
    // learn the same bits, and so do ZeRO-2 and ZeRO-3.
    for (stages, [first, second]) in STAGES.chunks(2).zip([OPTIMIZER, [OPTIMIZER[1], OPTIMIZER[0]]]) {
        none_changes_a_bit_of(stages, &flags(2, ""), &[first, second]);
        let narrow = flags(2, "--precision bf16 --sub-group-size 1000");
        none_changes_a_bit_of(stages, &narrow, &[second, first]);
    }
}

#[test]
fn whatever_zero3_moves_it_learns_the_same() {
    standin_or_return!(&[DOZE]);
    none_changes_a_bit(Stage::Zero3, &flags(2, ""), &PAIRS);
    // Pairs 2 and 5 run in bf16 in the variants below; 0 and 1 run only in f32.
    none_changes_a_bit(Stage::Zero3, &flags(2, "--precision bf16 --sub-group-size 700"), &PAIRS[3..5]);
    none_changes_a_bit(Stage::Zero3, &flags(1, ""), &PAIRS[2..3]);
}

#[test]
fn offload_composes_with_zero3s_variants() {
    standin_or_return!(&[DOZE]);
    for (world, variant, cases) in [
        (4, "--strategy hybrid-shard --shard-group-size 2", [PAIRS[2], PAIRS[5]].as_slice()),
        (4, "--secondary-shard-size 2 --precision bf16", &[PAIRS[5]]),
        (2, "--param-persistence-threshold 400 --precision bf16 --wrap parameter", &[PAIRS[2], PAIRS[5]]),
    ] {
        none_changes_a_bit(Stage::Zero3, &flags(world, variant), cases);
    }
}

/// A skipped step keeps the states that were fetched ahead.
#[test]
fn skipped_steps_move_less_and_as_predicted() {
    standin_or_return!(&[DOZE]);
    let base = flags(2, "--precision fp16 --initial-scale-power 9 --inject overflow@rank1,step1");
    let plain = none_changes_a_bit(Stage::Zero3, &base, &[PAIRS[2], PAIRS[5]]);
    assert_eq!(plain.skipped_steps, 1);
}

#[test]
fn activations_leave_and_come_back_as_they_were() {
    standin_or_return!(&[DOZE]);
    for stage in [Stage::Ddp, Stage::Zero3] {
        let base = flags(2, "--checkpoint-activations block");
        none_changes_a_bit(stage, &base, &["--offload-activations cpu", "--offload-activations disk"]);
    }
    let base = flags(2, "--checkpoint-activations block --precision bf16");
    let all = "--offload-activations disk --offload-optimizer disk --offload-parameters disk";
    none_changes_a_bit(Stage::Zero3, &base, &[all]);
}
