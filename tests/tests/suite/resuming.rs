//! A run that resumes from a checkpoint learns the bits of an uninterrupted run, whichever stages
//! and strategies wrote and read the checkpoint.

use crate::without_model;
use checkpoint::{Checkpoints, OpenCheckpoint};
use events::{Class, Place};
use model::{Layout, TrainingState};
use prediction::Stage;
use report::MemoryRow;
use std::path::Path;
use std::sync::Arc;
use tests::{STAGES, config, copy_directory, fixture, losses, run, train};
use trainer::Report;

const RUN: &str = of_odd!("--gpus 4 --batch-size 1 --seq-len 16 --threads 1 --device cpu --steps 6");

/// Runs stage `broken` until a panic in step 5, with checkpoints in `dir`, the last one after 4
/// steps. Then resumes with stage `then` and runs to the end.
fn broken_and_resumed((broken, then): (Stage, Stage), flags: &str, dir: &Path) -> Report {
    let flags =
        format!("{RUN} {flags} --checkpoint {} --checkpoint-wait --checkpoint-every 2", dir.display());
    let failure = train(broken, &format!("{flags} --inject panic@rank1,step5,backward")).unwrap_err();
    assert!(failure.to_string().contains("injected panic"), "{failure}");
    let report = run(then, &flags);
    assert_eq!(
        report.steps.iter().map(|row| row.step).collect::<Vec<_>>(),
        [4, 5],
        "{broken} {then} {flags}"
    );
    report
}

/// Asserts that `resumed` is the end of the uninterrupted run `whole`, bit for bit.
fn is_the_end_of(whole: &Report, resumed: &Report, what: &str) {
    assert_eq!(losses(resumed), losses(whole)[4..], "{what}");
    assert_eq!(resumed.weights_blake3, whole.weights_blake3, "{what}");
    // After an overflow the norm is NaN, which is not equal to itself: compare bits.
    let steps = |report: &Report| -> Vec<(f64, u64)> {
        report.steps.iter().map(|row| (row.lr, row.grad_norm.to_bits())).collect()
    };
    assert_eq!(steps(resumed), steps(whole)[4..], "{what}");
}

#[test]
fn any_stage_resumes_from_any_other_with_the_bits_of_one_run() {
    let dir = tempfile::tempdir().unwrap();
    for flags in ["", "--precision bf16"] {
        let whole = run(Stage::Zero1, &format!("{RUN} {flags}"));
        for (number, broken) in STAGES.into_iter().enumerate() {
            for then in [broken, STAGES[(number + 1) % 4]] {
                let kept = tempfile::tempdir_in(&dir).unwrap();
                let resumed = broken_and_resumed((broken, then), flags, kept.path());
                is_the_end_of(&whole, &resumed, &format!("{broken}, then {then} {flags}"));
            }
        }
    }
}

/// The first 16 samples repeat a few letters, and the next 16 are noise. A run that skipped samples
/// or went back would miss the noise.
#[test]
fn another_batch_goes_on_after_the_last_token_that_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.txt");
    let mut random = tests::random::Random::new(1);
    let noise: String = (0..16 * 16).map(|_| random.below(94) as u8 + b' ').map(char::from).collect();
    let letters = "abcdefgh".repeat(16 * 16 / 8);
    std::fs::write(&data, [&*letters, &*noise, &*letters.repeat(9)].concat()).unwrap();
    let flags = |batch, steps| {
        format!(
            "{RUN} --gpus 2 --batch-size {batch} --steps {steps} --lr 1e-2 --warmup-steps 1 --data {} --checkpoint {}",
            data.display(),
            dir.path().join("kept").display()
        )
        .replace("--gpus 4 --batch-size 1", "")
        .replace("--steps 6", "")
    };
    let before = losses(&run(Stage::Zero3, &flags(1, 8)));
    let after = losses(&run(Stage::Zero2, &format!("{} --resume-with lr,steps,batch", flags(2, 15))));
    let easy = *before.last().unwrap();
    assert!(after[..4].iter().all(|&loss| loss > easy + 1.0), "noise follows: {before:?} {after:?}");
    assert!(after[6] < after[0] - 1.0, "then letters again: {after:?}");
}

/// Of ten slices of 4 elements, the last begins beyond the end of the 35 elements.
#[test]
fn a_rank_whose_slice_is_padding_saves_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let model = fixture("uneven.json");
    let flags = format!(
        "--model {model} --gpus 10 --batch-size 1 --seq-len 8 --steps 2 --wrap parameter --device cpu"
    );
    let whole = run(Stage::Zero3, &flags);
    for more in ["", "--host-memory 100kB --ignore-plan"] {
        let kept = tempfile::tempdir_in(&dir).unwrap();
        let saving = format!(
            "{flags} {more} --checkpoint {} --checkpoint-wait --checkpoint-every 1",
            kept.path().display()
        );
        let failure =
            train(Stage::Zero3, &format!("{saving} --inject panic@rank1,step1,backward")).unwrap_err();
        assert!(failure.to_string().contains("injected panic"), "{failure}");
        let rest = run(Stage::Zero1, &saving);
        assert_eq!((rest.steps.len(), rest.weights_blake3), (1, whole.weights_blake3.clone()), "{more}");
    }
}

/// One overflow before the checkpoint, so that the scale is no longer the initial one, and one
/// after it, so that the scale halves again.
#[test]
fn a_scaled_loss_resumes_with_its_scale() {
    let dir = tempfile::tempdir().unwrap();
    let flags = "--precision fp16 --initial-scale-power 9 --hysteresis 1 --loss-scale-window 2 \
                 --inject overflow@rank2,step1 --inject overflow@rank0,step5";
    let whole = run(Stage::Zero2, &format!("{RUN} {flags}"));
    let resumed = broken_and_resumed((Stage::Zero3, Stage::Zero2), flags, dir.path());
    is_the_end_of(&whole, &resumed, flags);
    let scales = |report: &Report| report.steps.iter().map(|row| row.loss_scale).collect::<Vec<_>>();
    assert_eq!(scales(&whole), [512., 512., 256., 256., 256., 512.].map(Some));
    assert_eq!(scales(&resumed), scales(&whole)[4..]);
}

/// Parameters are split into units and sharded in different ways.
#[test]
fn strategies_resume_too() {
    let dir = tempfile::tempdir().unwrap();
    let whole = run(Stage::Ddp, RUN);
    for flags in [
        "--strategy hybrid-shard --shard-group-size 2",
        "--strategy shard-grad-op --wrap module",
        "--secondary-shard-size 2 --wrap model",
        "--param-persistence-threshold 1000 --wrap size:30000",
    ] {
        let kept = tempfile::tempdir_in(&dir).unwrap();
        let resumed = broken_and_resumed((Stage::Zero3, Stage::Zero3), flags, kept.path());
        is_the_end_of(&whole, &resumed, flags);
    }
}

/// [`run`] compares bytes sent and memory peaks with the prediction, including those of copies.
#[test]
fn checkpoints_change_no_bit_and_are_predicted() {
    let dir = tempfile::tempdir().unwrap();
    let whole = run(Stage::Ddp, RUN);
    let strategies = [
        "--strategy hybrid-shard --shard-group-size 2",
        "--secondary-shard-size 2",
        "--param-persistence-threshold 1000 --wrap module",
    ];
    let runs = STAGES.map(|stage| (stage, "")).into_iter();
    for (stage, flags) in runs.chain(strategies.map(|flags| (Stage::Zero3, flags))) {
        let kept = tempfile::tempdir_in(&dir).unwrap();
        let flags = format!("{RUN} {flags} --checkpoint {} --checkpoint-every 1", kept.path().display());
        let report = run(stage, &flags);
        assert_eq!(report.weights_blake3, whole.weights_blake3, "{stage} {flags}");
        let is_copy = |row: &&MemoryRow| (row.place, row.class) == (Place::Host, Class::Workspace);
        let copies: u64 = report.memory.iter().filter(is_copy).map(|row| row.peak_bytes).sum();
        let pages = 4 * 4096;
        assert!(
            (12 * report.model.parameters..12 * report.model.parameters + pages).contains(&copies),
            "{copies}"
        );
        let calls = |report: &Report| report.traffic.iter().map(|row| row.calls).sum::<u64>();
        assert_eq!(
            calls(&report),
            calls(&run(stage, &flags[..flags.find("--checkpoint").unwrap()])),
            "{stage} {flags}"
        );
    }
}

/// The same batch of the same tokens: 4 ranks × 1 sequence, and 2 ranks × 2 sequences.
#[test]
fn fewer_ranks_resume_with_the_same_batch() {
    let dir = tempfile::tempdir().unwrap();
    let whole = run(Stage::Zero3, RUN);
    let flags = format!("{RUN} --checkpoint {} --checkpoint-wait --checkpoint-every 2", dir.path().display());
    train(Stage::Zero3, &format!("{flags} --inject panic@rank1,step5,backward")).unwrap_err();
    let two = flags.replace("--gpus 4 --batch-size 1", "--gpus 2 --batch-size 2");
    let resumed = run(Stage::Zero1, &two);
    assert_eq!(resumed.steps.len(), 2);
    for (one, other) in losses(&resumed).iter().zip(&losses(&whole)[4..]) {
        assert!((one - other).abs() < 1e-5, "{one} {other}");
    }
}

/// Returns the bytes of all ranks' files of the checkpoint after `steps` steps.
fn rank_files(dir: &Path, steps: u32, ranks: usize) -> Vec<Vec<u8>> {
    let file =
        |rank| dir.join(format!("step-{steps:08}")).join(format!("rank-{rank:05}-of-{ranks:05}.safetensors"));
    (0..ranks).map(|rank| std::fs::read(file(rank)).unwrap()).collect()
}

/// Every step after the first save overflows and therefore updates nothing.
#[test]
fn a_state_that_other_ranks_have_resumed_and_saved_comes_back_bit_for_bit() {
    let places = "--offload-optimizer disk --offload-parameters disk";
    for (number, (ranks, others)) in [(3, 4), (4, 3), (1, 3), (4, 2), (2, 1), (3, 2)].into_iter().enumerate()
    {
        let dir = tempfile::tempdir().unwrap();
        let flags = format!(
            "--model {} --seq-len 8 --threads 1 --device cpu --precision fp16 --initial-scale-power 9 --checkpoint {} \
             --checkpoint-keep 3 --resume-with steps",
            fixture("uneven-tied.json"),
            dir.path().display()
        );
        // Not `run`: without an update, memory stays below the prediction for states on disk.
        let skipped = |stage, ranks, steps, more: &str| {
            let batch = format!("--gpus {ranks} --batch-size {}", 12 / ranks);
            let report = train(stage, &format!("{flags} {batch} --steps {steps} {more}")).unwrap();
            report.steps.iter().map(|row| row.skipped).collect::<Vec<_>>()
        };
        let [saver, between] = [STAGES[number % 4], STAGES[(number + 3) % 4]];
        let elsewhere = if between == Stage::Zero3 { places } else { "" };
        assert_eq!(skipped(saver, ranks, 2, ""), [false; 2]);
        let there = format!("{elsewhere} --inject overflow@rank0,step2");
        assert_eq!(skipped(between, others, 3, &there), [true]);
        assert_eq!(skipped(saver, ranks, 4, "--inject overflow@rank0,step3"), [true]);
        let what = format!("{saver} on {ranks}, {between} on {others} {elsewhere}");
        assert_eq!(rank_files(dir.path(), 3, others).len(), others, "{what}");
        assert!(rank_files(dir.path(), 4, ranks) == rank_files(dir.path(), 2, ranks), "{what}");
    }
}

#[test]
fn validations_resume_at_their_steps() {
    let dir = tempfile::tempdir().unwrap();
    let flags = "--val-fraction 0.2 --eval-every 3 --eval-batches 1";
    let whole = run(Stage::Zero3, &format!("{RUN} {flags}"));
    let resumed = broken_and_resumed((Stage::Zero2, Stage::Zero3), flags, dir.path());
    assert_eq!(resumed.evaluations, whole.evaluations[1..]);
    is_the_end_of(&whole, &resumed, flags);
}

/// Returns the newest checkpoint in `dir`, of a model with `layout`'s tensors.
fn newest(dir: &Path, layout: &Layout) -> OpenCheckpoint {
    let checkpoints = Checkpoints::new(dir, Arc::new(storage::Disk::new(1)));
    let name = checkpoints.names().unwrap().swap_remove(0);
    checkpoints.open(&name, checkpoints.manifest(&name).unwrap(), layout).unwrap()
}

/// The last checkpoint holds the weights whose hash is in the report, and moments that are not all
/// zero.
#[test]
fn the_last_checkpoint_is_what_training_has_made() {
    let dir = tempfile::tempdir().unwrap();
    let model = format!("--model {}", fixture("odd-tied.json"));
    let flags = format!("{} {model} --checkpoint {}", without_model(RUN), dir.path().display());
    let report = run(Stage::Zero3, &flags);
    let layout = Layout::new(&config(&flags).unwrap().model);
    let reader = newest(dir.path(), &layout);
    let mut hasher = blake3::Hasher::new();
    for (id, tensor) in layout.tensors.iter().enumerate() {
        let read = |state| {
            let mut values = vec![0.0; tensor.elements()];
            reader.read(state, (id, tensor), 0..values.len(), &mut values).unwrap();
            values
        };
        read(TrainingState::Weight).iter().for_each(|value: &f32| {
            hasher.update(&value.to_le_bytes());
        });
        assert!(read(TrainingState::Momentum).iter().any(|value| *value != 0.0), "{}", tensor.name);
        assert!(read(TrainingState::Variance).iter().all(|value| *value >= 0.0), "{}", tensor.name);
    }
    assert_eq!(report.weights_blake3, hasher.finalize().to_hex().to_string());
    let failure = train(Stage::Zero3, &flags).unwrap_err();
    assert_eq!(failure.code(), 2);
    assert!(
        failure.to_string().contains("nothing left to do") && failure.to_string().contains("--steps 12"),
        "{failure}"
    );
    let further = run(Stage::Ddp, &flags.replace("--steps 6", "--steps 12 --resume-with steps"));
    assert_eq!(further.steps[0].step, 6);
}

/// Asserts that a run with `flags` is refused with `words`, on one screen.
fn refused(flags: &str, words: &str) {
    let failure = train(Stage::Zero3, flags).unwrap_err();
    assert_eq!(failure.code(), 2, "{failure}");
    assert!(failure.to_string().contains(words) && failure.to_string().lines().count() <= 10, "{failure}");
}

#[test]
fn another_training_does_not_resume_unless_that_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    let flags = format!("{RUN} --checkpoint {}", dir.path().display());
    run(Stage::Zero1, &flags.replace("--steps 6", "--steps 2"));
    let flags = format!("{flags} --resume-with steps");
    refused(&flags.replace("odd.json", "uneven.json"), "a checkpoint of another model");
    let other = dir.path().join("other.txt");
    std::fs::write(&other, "o".repeat(4096)).unwrap();
    for (change, what, both) in [
        ("--shuffle-seed 5".to_string(), "order", "none there, 5 now"),
        (format!("--data {}", other.display()), "data", "4096 tokens"),
        ("--lr 1e-4".into(), "lr", "up to 0.0001 in the usual warm-up"),
        ("--warmup-steps 3".into(), "lr", "in 3 steps"),
        (
            "--weight-decay 0.5".into(),
            "lr",
            "weight decay 0.1 there, betas 0.9 and 0.95, eps 1e-8, weight decay 0.5 now",
        ),
        ("--precision bf16".into(), "precision", "fp32 there, bf16"),
        ("--grad-accum 2".into(), "batch", "64 in sequences of 16 there, 128 in sequences of 16 now"),
        ("--max-grad-norm 0.5".into(), "clipping", "1.0 there, 0.5 now"),
    ] {
        refused(&format!("{flags} {change}"), both);
        let both = if ["data", "order", "lr"].contains(&what) { [what, "steps"] } else { ["steps", what] };
        refused(&format!("{flags} {change}"), &format!("--resume-with {}", both.join(",")));
        let meant = flags.replace("--resume-with steps", &format!("--resume-with steps,{what}"));
        let kept = tempfile::tempdir().unwrap();
        copy_directory(dir.path(), kept.path());
        let meant = meant.replace(&dir.path().display().to_string(), &kept.path().display().to_string());
        assert_eq!(run(Stage::Ddp, &format!("{meant} {change}")).steps.len(), 4, "{change}");
    }
    refused(
        &flags.replace(" --resume-with steps", " --lr 1 --shuffle-seed 4"),
        "--resume-with order,lr,steps",
    );
    let done = flags.replace("--steps 6", "--steps 2").replace("--resume-with steps", "--resume-with batch");
    refused(&done, "--steps 4 --resume-with steps,batch (");
}

/// A decay that ends at the same step, or with the run as before, is the same schedule.
#[test]
fn a_decay_may_end_with_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let config = |total: &str| {
        let path = dir.path().join("ds.json");
        let scheduler =
            r#"{"type": "WarmupDecayLR", "params": {"warmup_num_steps": 2, "total_num_steps": TOTAL}}"#;
        std::fs::write(&path, format!(r#"{{"scheduler": {scheduler}}}"#).replace("TOTAL", total)).unwrap();
        format!("--config {}", path.display())
    };
    for (number, (total, other)) in [(r#""auto""#, "9"), ("6", "7")].into_iter().enumerate() {
        let kept = dir.path().join(number.to_string());
        let flags = |total: &str| format!("{RUN} {} --checkpoint {}", config(total), kept.display());
        run(Stage::Zero2, &flags(total).replace("--steps 6", "--steps 4"));
        refused(&format!("{} --resume-with steps", flags(other)), "the learning rate's decay ends");
        assert_eq!(
            run(Stage::Zero1, &format!("{} --resume-with steps", flags(total))).steps.len(),
            2,
            "{total}"
        );
    }
}

#[test]
fn a_run_that_names_no_model_takes_that_of_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let model = format!("--model {}", fixture("three-heads.json"));
    let whole = run(Stage::Zero1, &format!("{} {model}", without_model(RUN)));
    let flags = format!(
        "{} --checkpoint {} --checkpoint-wait --checkpoint-every 2",
        without_model(RUN),
        dir.path().display()
    );
    train(Stage::Zero2, &format!("{flags} {model} --inject panic@rank1,step5,backward")).unwrap_err();
    is_the_end_of(&whole, &run(Stage::Zero3, &flags), "without --model");
    refused(&format!("{flags} --model tiny"), "a checkpoint of another model");
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    // The default model's shards have several blocks, of which the last is damaged.
    let flags = format!("{} --checkpoint {}", without_model(RUN), dir.path().display());
    let whole = run(Stage::Zero3, without_model(RUN));
    let ends_early =
        format!("{flags} --checkpoint-wait --checkpoint-every 2 --inject panic@rank1,step5,backward");
    train(Stage::Zero2, &ends_early).unwrap_err();
    let layout = Layout::new(&config(&flags).unwrap().model);
    let path = newest(dir.path(), &layout).path().to_path_buf();
    assert!(path.ends_with("step-00000004"), "{}", path.display());
    let file = path.join("rank-00002-of-00004.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let resumed = run(Stage::Zero1, &flags);
    assert_eq!(resumed.steps[0].step, 2);
    assert_eq!(resumed.weights_blake3, whole.weights_blake3);
    std::fs::write(dir.path().join("step-00000006/manifest.json"), "{}").unwrap();
    std::fs::remove_dir_all(dir.path().join("step-00000002")).unwrap();
    refused(&flags, "is intact");
    refused(&flags, "block 2 ");
}
