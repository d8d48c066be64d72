//! A run that resumes from a checkpoint learns the bits of an uninterrupted run, whatever stage and
//! strategy wrote the checkpoint and resumes from it.

use checkpoint::StateReader;
use model::{Layout, TrainingState};
use planner::Stage;
use std::path::Path;
use tests::{STAGES, config, fixture, losses, run, train};
use trainer::Report;

const RUN: &str = "--gpus 4 --batch-size 1 --seq-len 16 --threads 1 --device cpu --steps 6";

/// Runs `broken` until a panic in step 5, with checkpoints in `dir`, the last after 4 steps. Then
/// resumes with `then` and runs to the end.
fn broken_and_resumed((broken, then): (Stage, Stage), flags: &str, dir: &Path) -> Report {
    let flags = format!("{RUN} {flags} --checkpoint {} --checkpoint-every 2", dir.display());
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
    // After an overflow the norm is NaN, which equals nothing: compare bits.
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

/// One overflow before the checkpoint, so that the scale is no longer the initial one, and one
/// after it, so that the scale halves again.
#[test]
fn a_scaled_loss_resumes_with_its_scale() {
    let dir = tempfile::tempdir().unwrap();
    let flags = "--precision fp16 --initial-scale-power 9 --hysteresis 1 --loss-scale-window 3 \
                 --inject overflow@rank2,step1 --inject overflow@rank0,step5";
    let whole = run(Stage::Zero2, &format!("{RUN} {flags}"));
    let resumed = broken_and_resumed((Stage::Zero3, Stage::Zero2), flags, dir.path());
    is_the_end_of(&whole, &resumed, flags);
    let scales = |report: &Report| report.steps.iter().map(|row| row.loss_scale).collect::<Vec<_>>();
    assert_eq!(scales(&whole), [512., 512., 256., 256., 256., 512.].map(Some));
    assert_eq!(scales(&resumed), scales(&whole)[4..]);
}

/// However parameters are cut into units and sharded.
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

/// [`run`] compares the bytes sent with the prediction, also between two steps.
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
        let calls = |report: &Report| report.traffic.iter().map(|row| row.calls).sum::<u64>();
        assert!(stage == Stage::Ddp || calls(&report) > calls(&run(stage, RUN)), "{stage} {flags}");
    }
}

/// The same batch of the same tokens: 4 ranks × 1 sequence, and 2 ranks × 2.
#[test]
fn fewer_ranks_resume_with_the_same_batch() {
    let dir = tempfile::tempdir().unwrap();
    let whole = run(Stage::Zero3, RUN);
    let flags = format!("{RUN} --checkpoint {} --checkpoint-every 2", dir.path().display());
    train(Stage::Zero3, &format!("{flags} --inject panic@rank1,step5,backward")).unwrap_err();
    let two = flags.replace("--gpus 4 --batch-size 1", "--gpus 2 --batch-size 2");
    let resumed = run(Stage::Zero1, &two);
    assert_eq!(resumed.steps.len(), 2);
    for (one, other) in losses(&resumed).iter().zip(&losses(&whole)[4..]) {
        assert!((one - other).abs() < 1e-5, "{one} {other}");
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

/// The last checkpoint holds the weights whose hash the report has, and moments that are not all
/// zero.
#[test]
fn the_last_checkpoint_is_what_training_has_made() {
    let dir = tempfile::tempdir().unwrap();
    let model = format!("--model {}", fixture("odd-tied.json"));
    let flags = format!("{RUN} {model} --checkpoint {}", dir.path().display());
    let report = run(Stage::Zero3, &flags);
    let layout = Layout::new(&config(&flags).unwrap().model);
    let reader = StateReader::open(dir.path()).unwrap().unwrap();
    let mut hasher = blake3::Hasher::new();
    for tensor in &layout.tensors {
        let read = |state| {
            let mut values = vec![0.0; tensor.elements()];
            reader.read(state, tensor, 0..values.len(), &mut values).unwrap();
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
    let further = run(Stage::Ddp, &flags.replace("--steps 6", "--steps 7"));
    assert_eq!(further.steps[0].step, 6);
}

#[test]
fn what_cannot_be_resumed_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let flags = format!("{RUN} --checkpoint {}", dir.path().display());
    run(Stage::Zero1, &flags.replace("--steps 6", "--steps 1"));
    let file = dir.path().join("state.safetensors");
    let kept = std::fs::read(&file).unwrap();
    let refused = |flags: &str, words: &str| {
        let failure = train(Stage::Zero3, flags).unwrap_err();
        assert_eq!(failure.code(), 2, "{failure}");
        assert!(failure.to_string().contains(words) && failure.to_string().lines().count() <= 3, "{failure}");
    };
    refused(&format!("{flags} --model {}", fixture("odd.json")), "a checkpoint of another model");
    for (key, other) in [("num_hidden_layers", "2"), ("rope_theta", "500.0"), ("tie_word_embeddings", "true")]
    {
        let mut model = config(&flags).unwrap().model.to_hugging_face();
        model[key] = serde_json::from_str(other).unwrap();
        model["rope_parameters"]["rope_theta"] = model["rope_theta"].clone();
        let file = dir.path().join("config.json");
        std::fs::write(&file, model.to_string()).unwrap();
        refused(&format!("{flags} --model {}", file.display()), "a checkpoint of another model");
    }
    assert_eq!(std::fs::read(&file).unwrap(), kept);
    std::os::unix::fs::symlink(dir.path().join("nowhere"), dir.path().join("link")).unwrap();
    std::fs::rename(dir.path().join("link"), &file).unwrap();
    refused(&flags, "cannot open");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, &kept[..kept.len() - 1]).unwrap();
    refused(&flags, "cut short");
    for (word, other, words) in
        [("progress", "regressp", "is not a checkpoint"), ("steps", "stops", "damaged")]
    {
        let mut changed = kept.clone();
        let at = kept.windows(word.len()).position(|bytes| bytes == word.as_bytes()).unwrap();
        changed[at..at + word.len()].copy_from_slice(other.as_bytes());
        std::fs::write(&file, &changed).unwrap();
        refused(&flags, words);
    }
}
