//! A failing rank makes its peers end quickly, and the error names it.

use crate::without_model;
use events::{Operation, Progress, What};
use std::time::{Duration, Instant};
use tests::job::desync;
use tests::{STAGES, losses, recorded, train};

const RUN: &str =
    of_odd!("--gpus 4 --steps 5 --batch-size 1 --seq-len 16 --threads 1 --device cpu --timeout 60");

/// Every phase of a run, with the flags that it needs.
const PHASES: [(&str, &str); 8] = [
    ("setup", ""),
    ("data", ""),
    ("forward", ""),
    ("backward", ""),
    ("recompute", "--checkpoint-activations selective"),
    ("step", ""),
    ("evaluate", "--val-fraction 0.1 --eval-every 3 --eval-batches 1"),
    ("save", ""),
];

/// Trains with a fault. Returns the failure's text and the time it took.
fn fail(stage: prediction::Stage, flags: &str) -> (String, Duration) {
    let started = Instant::now();
    let failure = train(stage, &format!("{RUN} {flags}")).expect_err("the fault must surface");
    assert_eq!(failure.code(), 1, "{failure}");
    (failure.to_string(), started.elapsed())
}

#[test]
fn a_panic_in_any_phase_ends_all_ranks_within_five_seconds_and_names_the_culprit() {
    for stage in STAGES {
        for (phase, flags) in PHASES {
            let step = if phase == "setup" { 0 } else { 2 };
            let (text, took) = fail(stage, &format!("--inject panic@rank2,step{step},{phase} {flags}"));
            assert!(text.starts_with("rank 2: panic at "), "{stage} {phase}: {text}");
            assert!(text.to_lowercase().contains(&format!("injected panic in {phase}")), "{text}");
            assert!(took < Duration::from_secs(5), "{stage} {phase} took {took:?}");
        }
    }
}

/// The only group that rank 2 and rank 0 share is the world.
#[test]
fn a_failure_in_one_group_ends_the_others_too() {
    for groups in ["--strategy hybrid-shard --shard-group-size 2", "--secondary-shard-size 2"] {
        for phase in ["forward", "backward", "step"] {
            let (text, took) =
                fail(prediction::Stage::Zero3, &format!("{groups} --inject panic@rank2,step1,{phase}"));
            assert!(text.starts_with("rank 2: panic at "), "{groups} {phase}: {text}");
            assert!(took < Duration::from_secs(5), "{groups} {phase} took {took:?}");
        }
        let (text, took) = fail(
            prediction::Stage::Zero3,
            &format!("{groups} --timeout 1 --inject stall@rank1,step1,backward"),
        );
        assert!(text.contains("for rank 1"), "{text}");
        assert!(took < Duration::from_secs(10), "{groups}: {took:?}");
    }
}

#[test]
fn an_error_on_one_rank_is_the_error_of_the_run() {
    for stage in STAGES {
        for phase in ["forward", "backward", "step"] {
            let (text, _) = fail(stage, &format!("--inject error@rank1,step1,{phase}"));
            assert!(text.starts_with("rank 1: injected error"), "{stage} {phase}: {text}");
        }
    }
}

#[test]
fn a_rank_with_other_weights_is_found_before_the_first_step() {
    for (culprit, other) in [(3, 0), (0, 1)] {
        let (text, _) = fail(prediction::Stage::Zero3, &format!("--inject seed@rank{culprit}"));
        let named = format!("rank {culprit} starts from different weights than rank {other}");
        assert!(text.starts_with(&named), "{text}");
    }
}

/// Returns fingerprints of the parameters that each rank computes with, step by step.
fn fingerprints(stage: prediction::Stage, flags: &str) -> Vec<Vec<u64>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    train(stage, &format!("{RUN} --contributions {flags} --record {}", file.path().display())).unwrap();
    let mut steps = vec![vec![0; 4]; 5];
    for event in recorded(file.path()) {
        if let What::Contributed(part) = event.what {
            steps[part.step as usize][event.rank as usize] = part.parameters;
        }
    }
    steps
}

/// If each rank keeps its own parameters, they stay different. An all-gather after the update makes
/// all ranks equal, and one before forward does so from the start. No rank recovers the correct
/// weights.
#[test]
fn other_weights_that_nobody_compares_show_for_as_long_as_a_rank_keeps_its_own() {
    for (stage, apart) in STAGES.into_iter().zip([5, 1, 1, 0]) {
        let healthy = fingerprints(stage, "");
        let ill = fingerprints(stage, "--inject seed@rank2,step0");
        for (step, (ill, healthy)) in ill.iter().zip(&healthy).enumerate() {
            assert!(healthy.iter().all(|rank| *rank == healthy[0]), "{stage} {step}: {healthy:x?}");
            assert!(ill[0] == ill[1] && ill[0] == ill[3], "{stage} {step}: {ill:x?}");
            assert_eq!(ill[2] != ill[0], step < apart, "{stage} {step}: {ill:x?}");
            let right = step == 0 && stage != prediction::Stage::Zero3;
            assert_eq!(ill[0] == healthy[0], right, "{stage} {step}: {ill:x?} {healthy:x?}");
            assert_ne!(ill[2], healthy[2], "{stage} {step}");
        }
    }
}

#[test]
fn another_seed_than_that_of_saved_weights_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved").display().to_string();
    train(prediction::Stage::Ddp, &format!("{RUN} --save {saved}")).unwrap();
    let seed = format!("{} --init-from {saved} --inject seed@rank1", without_model(RUN));
    let refused = train(prediction::Stage::Ddp, &seed).unwrap_err();
    let named = format!("--inject seed@rank1: with --init-from {saved} no weight comes from a seed");
    assert!(refused.code() == 2 && refused.to_string().contains(&named), "{refused}");
}

/// Returns the number and the operation of the first collective of a step that moves data, in a run
/// without faults.
fn first_collective(stage: prediction::Stage, step: u32) -> (u64, Operation) {
    let file = tempfile::NamedTempFile::new().unwrap();
    train(stage, &format!("{RUN} --record {}", file.path().display())).unwrap();
    let mut own = recorded(file.path()).into_iter().filter(|event| event.rank == 0).map(|event| event.what);
    own.find(|what| matches!(what, What::StepStarted { step: begun } if *begun == step)).unwrap();
    let moves = |what: What| match what {
        What::Collective(event) if event.progress == Progress::Issued && !event.units.is_empty() => {
            Some((event.sequence, event.operation))
        }
        _ => None,
    };
    own.find_map(moves).unwrap()
}

#[test]
fn a_rank_that_leaves_out_a_collective_is_named_with_what_it_left_out() {
    for (stage, culprit) in STAGES.into_iter().zip([0, 1, 2, 3]) {
        let (text, took) = fail(stage, &format!("--inject skip@rank{culprit},step2"));
        let (number, operation) = first_collective(stage, 2);
        assert_eq!(desync(&text, culprit, operation.label()), number, "{stage}: {text}");
        assert!(took < Duration::from_secs(5), "{stage} took {took:?}");
    }
    let groups = "--strategy hybrid-shard --shard-group-size 2 --inject skip@rank3,step1";
    let (text, _) = fail(prediction::Stage::Zero3, groups);
    assert!(text.starts_with("collective #"), "{text}");
    assert!(text.contains("differs between ranks: rank 3 issued all-gather"), "{text}");
    let alone = RUN.replace("--gpus 4", "--gpus 1");
    let refused = train(prediction::Stage::Zero3, &format!("{alone} --inject skip@rank0,step1")).unwrap_err();
    assert!(refused.code() == 2 && refused.to_string().contains("--gpus 2"), "{refused}");
}

#[test]
fn a_stalled_rank_is_named_after_the_deadline() {
    let (text, took) = fail(prediction::Stage::Zero2, "--timeout 1 --inject stall@rank1,step1,backward");
    assert!(text.contains("for rank 1") && !text.contains("injected"), "{text}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn running_out_of_memory_is_explained_foreseen_or_not() {
    for (flags, word) in [("", "training would run out of memory"), ("--ignore-plan", "are in use")] {
        let (text, _) = fail(prediction::Stage::Ddp, &format!("--device-memory 800kB {flags}"));
        for part in [word, "parameters", "What would help", "cargo run -p zero3"] {
            assert!(text.contains(part), "{part} missing in: {text}");
        }
        assert!(text.lines().count() <= 24, "one screen: {text}");
    }
}

#[test]
fn silent_faults_raise_no_error_and_all_but_a_slow_rank_change_what_is_learned() {
    for stage in STAGES {
        let healthy = train(stage, RUN).unwrap();
        for kind in ["stale", "divisor", "data", "drop", "slow"] {
            if (stage, kind) == (prediction::Stage::Ddp, "stale") {
                continue;
            }
            let ill = train(stage, &format!("{RUN} --inject {kind}@rank2,step2")).unwrap();
            assert!(ill.predictions_hold(), "{stage} {kind}");
            assert_eq!(losses(&ill)[..2], losses(&healthy)[..2], "{stage} {kind}: it begins in step 2");
            let same = ill.weights_blake3 == healthy.weights_blake3;
            assert_eq!(same, kind == "slow", "{stage} {kind}");
        }
        let (text, _) = fail(stage, "--inject nan@rank2,step2");
        assert!(text.contains("NaN in step 2"), "{stage}: {text}");
    }
}

#[test]
fn a_phase_that_a_step_does_not_have_is_refused() {
    let refused = [
        ("recompute", "--checkpoint-activations"),
        ("evaluate", "--val-fraction"),
        ("evaluate --val-fraction 0.1 --eval-every 2", "--eval-every"),
    ];
    for (phase, word) in refused {
        let flags = format!("{RUN} --inject panic@rank2,step2,{phase}");
        let failure = train(prediction::Stage::Zero2, &flags).expect_err(phase);
        assert_eq!(failure.code(), 2, "{failure}");
        let fault = phase.split(' ').next().unwrap();
        assert!(failure.to_string().contains(&format!("step2,{fault}: ")), "{failure}");
        assert!(failure.to_string().contains(word), "{phase}: {failure}");
    }
}

#[test]
fn a_rank_can_only_be_stale_where_something_newer_would_come() {
    let refused = [
        (prediction::Stage::Ddp, "stale@rank1,step2", "DDP"),
        (prediction::Stage::Zero1, "stale@rank1,step0", "step1"),
        (prediction::Stage::Zero3, "stale@rank1,step2 --precision bf16", "fp32"),
        (prediction::Stage::Zero3, "stale@rank0,step2 --gpus 1", "--gpus 2"),
    ];
    for (stage, fault, word) in refused {
        let flags = RUN.replace("--gpus 4 ", if fault.contains("--gpus") { "" } else { "--gpus 4 " });
        let failure = train(stage, &format!("{flags} --inject {fault}")).expect_err(fault);
        assert_eq!(failure.code(), 2, "{failure}");
        assert!(failure.to_string().contains(word), "{fault}: {failure}");
    }
}
