//! Mixed precision: with any element types the stages agree, and use exactly what the planner
//! predicted.

use events::Class;
use prediction::Stage;
use settings::float_type::PrecisionName;
use tests::random::Random;
use tests::{
    STAGES, STEADY_RATE, assert_same, farthest_step, fixture, largest_difference, losses, run, train,
};
use trainer::Report;

fn odd(world: usize, more: &str) -> String {
    format!(
        "--model {} --gpus {world} --batch-size {} --seq-len 16 --threads 1 {more}",
        fixture("odd.json"),
        12 / world
    )
}

fn stages_agree(flags: &str) -> Report {
    let [first, others @ ..] = STAGES.map(|stage| run(stage, flags));
    others.iter().for_each(|other| assert_same(&first, other, flags));
    first
}

#[test]
fn stages_agree_bit_for_bit_in_16_bits() {
    for precision in ["bf16", "fp16"] {
        for world in 1..=4 {
            let report = stages_agree(&odd(world, &format!("--steps 8 --precision {precision}")));
            let learned = losses(&report);
            assert!(learned[7] < learned[0] - 0.1, "{precision}: {} to {}", learned[0], learned[7]);
            assert_eq!((report.precision.label(), report.communicated_bytes), (precision, 2));
            assert_eq!(report.skipped_steps, 0);
        }
    }
}

/// Storage, traffic and predictions are the same as in fp32; only the results differ.
#[test]
fn stages_agree_bit_for_bit_where_products_alone_are_rounded() {
    for world in [1, 3] {
        let flags = odd(world, "--steps 8");
        let (wide, report) =
            (run(Stage::Ddp, &flags), stages_agree(&format!("{flags} --precision autocast")));
        let peaks = |report: &Report| report.memory.iter().map(|row| row.peak_bytes).collect::<Vec<_>>();
        assert_eq!((report.precision, report.communicated_bytes), (PrecisionName::Autocast, 4));
        assert_eq!(peaks(&report), peaks(&wide));
        let apart = largest_difference(&losses(&report), &losses(&wide));
        assert!((1e-5..2e-2).contains(&apart), "losses are {apart} from fp32's");
    }
}

#[test]
fn stages_agree_bit_for_bit_whatever_gradients_are_kept_and_sent_in() {
    for types in [
        "--precision bf16 --grad-dtype fp32",
        "--precision bf16 --reduce-dtype fp32",
        "--precision bf16 --grad-dtype fp32 --reduce-dtype bf16",
        "--precision fp16 --reduce-dtype bf16",
        "--precision fp32 --reduce-dtype fp16",
        "--precision autocast --grad-dtype bf16",
    ] {
        stages_agree(&odd(3, &format!("--steps 6 {types}")));
    }
}

/// Bytes per parameter and class: 16-bit parameters and gradients, three f32 numbers in the
/// optimizer.
#[test]
fn a_replica_takes_two_two_and_twelve_bytes_per_parameter() {
    let report = run(Stage::Ddp, &odd(2, "--steps 1 --precision bf16"));
    let parameters = report.model.parameters;
    for (class, bytes) in [(Class::Parameters, 2), (Class::Gradients, 2), (Class::Optimizer, 12)] {
        let row = report.memory.iter().find(|row| row.class == class).unwrap();
        assert_eq!(row.peak_bytes, bytes * parameters, "{class}");
    }
}

/// Returns a small Llama of any shape.
fn shape(random: &mut Random) -> String {
    let kv_heads = 1 + random.below(3);
    let heads = kv_heads * (1 + random.below(3));
    format!(
        r#"{{"model_type": "llama", "vocab_size": 256, "hidden_size": {}, "intermediate_size": {},
        "num_hidden_layers": {}, "num_attention_heads": {heads}, "num_key_value_heads": {kv_heads}, "head_dim": {},
        "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": {}}}"#,
        heads * (1 + random.below(8)),
        1 + random.below(60),
        1 + random.below(3),
        2 * (1 + random.below(5)),
        random.below(2) == 0,
    )
}

#[test]
fn predictions_hold_for_random_combinations() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.json");
    let mut random = Random::new(20);
    for _ in 0..32 {
        std::fs::write(&config, shape(&mut random)).unwrap();
        let types = ["fp32", "bf16", "fp16"];
        let precisions = ["fp32", "bf16", "fp16", "autocast"];
        let mut flags = format!(
            "--model {} --gpus {} --batch-size {} --seq-len {} --grad-accum {} --steps 2 --threads 1 --precision {} \
             --grad-dtype {} --reduce-dtype {}",
            config.display(),
            1 + random.below(5),
            1 + random.below(3),
            1 + random.below(12),
            1 + random.below(3),
            random.pick(&precisions),
            random.pick(&types),
            random.pick(&types),
        );
        if random.below(2) == 0 {
            flags.push_str(&format!(" --reduce-bucket {}", 1 + random.below(20_000)));
        }
        let kept = random.pick(&["none", "block", "selective"]);
        flags.push_str(&format!(" --checkpoint-activations {kept}"));
        if random.below(3) == 0 {
            flags.push_str(" --val-fraction 0.2 --eval-every 1 --eval-batches 2");
        }
        let [ddp, zero1, zero2, zero3] = STAGES.map(|stage| run(stage, &flags));
        assert_same(&ddp, &zero1, &flags);
        assert_same(&zero2, &zero3, &flags);
        if flags.contains("--grad-accum 1") {
            assert_same(&ddp, &zero2, &flags);
        }
    }
}

/// Returns the mean loss of the last twenty steps.
fn final_loss(flags: &str) -> f64 {
    let losses = losses(&run(Stage::Zero2, flags));
    losses[losses.len() - 20..].iter().sum::<f64>() / 20.0
}

#[test]
fn sixteen_bits_learn_as_much_as_thirty_two() {
    let flags = odd(2, "--steps 200");
    let full = final_loss(&flags);
    for precision in ["bf16", "fp16", "autocast"] {
        let half = final_loss(&format!("{flags} --precision {precision}"));
        assert!((half / full - 1.0).abs() < 0.02, "{precision} reaches {half}, fp32 {full}");
    }
}

#[test]
fn an_overflow_on_one_rank_skips_the_step_on_all_and_training_recovers() {
    let flags = odd(3, "--steps 20 --precision fp16 --hysteresis 1 --loss-scale-window 8");
    let report = stages_agree(&format!("{flags} --inject overflow@rank1,step5"));
    let skipped: Vec<u32> = report.steps.iter().filter(|row| row.skipped).map(|row| row.step).collect();
    assert_eq!((skipped, report.skipped_steps), (vec![5], 1));
    assert!(!report.steps[5].grad_norm.is_finite());
    let scales: Vec<f64> = report.steps.iter().map(|row| row.loss_scale.unwrap()).collect();
    assert_eq!(scales[4..7], [65536.0, 65536.0, 32768.0]);
    assert_eq!(scales[14..16], [32768.0, 65536.0], "a clean step and eight more double it again");
    let learned = losses(&report);
    assert!(learned[19] < learned[0] - 0.5, "{learned:?}");
    assert_eq!(report.steps[6].lr, run(Stage::Ddp, &flags).steps[5].lr, "the schedule waits for an update");
}

/// A skipped step updates nothing: the next one computes its loss with the same weights.
#[test]
fn a_skipped_step_changes_no_weight() {
    let one = odd(2, "--precision fp16 --steps 2 --warmup-steps 0");
    let skipping =
        stages_agree(&format!("{one} --inject overflow@rank0,step0 --inject overflow@rank1,step1"));
    let untrained = run(Stage::Ddp, &format!("{one} --lr 1e-30 --weight-decay 0"));
    assert_eq!(losses(&skipping), losses(&untrained));
    assert_eq!(skipping.weights_blake3, untrained.weights_blake3);
}

#[test]
fn an_overflow_at_the_smallest_scale_ends_the_run() {
    let faults: String = (0..4).map(|step| format!(" --inject overflow@rank1,step{step}")).collect();
    for stage in STAGES {
        let failure =
            train(stage, &odd(2, &format!("--steps 9 --precision fp16 --initial-scale-power 2{faults}")));
        let failure = failure.unwrap_err();
        assert_eq!(failure.code(), 1);
        let text = failure.to_string();
        for part in ["minimum, 1;", "steps skipped: 4", "--precision bf16"] {
            assert!(text.contains(part), "{stage}: {part:?} missing in {text}");
        }
    }
}

#[test]
fn without_a_scaled_loss_an_overflow_is_an_error() {
    let failure = train(Stage::Zero3, &odd(2, "--steps 3 --precision bf16 --inject overflow@rank1,step1"));
    assert!(failure.unwrap_err().to_string().contains("gradient norm is"));
}

#[test]
fn a_fixed_scale_trains_as_well_and_never_changes() {
    let report =
        stages_agree(&odd(2, "--steps 8 --precision fp16 --loss-scale 1000 --inject overflow@rank0,step2"));
    assert!(report.steps.iter().all(|row| row.loss_scale == Some(1000.0)));
    assert_eq!(report.skipped_steps, 1);
}

/// `gpu-check` compares losses to 1e-4 at a learning rate at which a different summation order
/// changes little. At `tiny`'s own rate it changes more.
#[test]
fn training_does_not_amplify_rounding_where_a_gpu_is_held_to_it() {
    let [one, four] = [1, 4].map(|world| {
        let flags = format!(
            "--model tiny --gpus {world} --batch-size {} --seq-len 64 --steps 50 --lr {STEADY_RATE} --device cpu",
            16 / world
        );
        losses(&run(Stage::Ddp, &flags))
    });
    let apart = farthest_step(&one, &four, false);
    assert!(0.0 < apart && apart < 2e-5, "losses of 4 ranks are {apart} from one's");
    assert!(one[49] < one[0] / 2.0, "the loss falls from {} to {}", one[0], one[49]);
}

/// `gpu-check`'s measure of losses: the difference in a later step is not hidden by the first step,
/// nor that of a small loss by a large one.
#[test]
fn losses_are_compared_step_by_step() {
    let expected = [8.0, 4.0, 0.5];
    for (got, apart, share) in [
        ([8.0, 4.0, 0.5], 0.0, 0.0),
        ([8.0, 4.0, 0.625], 0.125, 0.25),
        ([8.0, 3.0, 0.5], 1.0, 0.25),
        ([8.0, f64::NAN, 0.5], f64::INFINITY, f64::INFINITY),
        ([8.0, 4.0, f64::NEG_INFINITY], f64::INFINITY, f64::INFINITY),
    ] {
        assert_eq!(
            [false, true].map(|relative| farthest_step(&expected, &got, relative)),
            [apart, share],
            "{got:?}"
        );
    }
    let steps = |expected: &[f64], got: &[f64]| farthest_step(expected, got, false);
    assert_eq!(
        [steps(&expected, &[8.0, 4.0]), steps(&[8.0], &expected), steps(&[], &[])],
        [f64::INFINITY; 3]
    );
}
