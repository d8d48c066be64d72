//! Compares with PyTorch's loss curve on weights that Transformers saved.
//! `tests/peers/make_curve.py` produced the curve.

use prediction::Stage;
use serde_json::Value;
use tests::{fixture, largest_difference, losses, train};

fn floats(run: &Value, key: &str) -> Vec<f64> {
    run[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Returns the run with `micro_batches` micro-batches per step, in f32 or in autocast.
fn curve(micro_batches: u64, autocast: bool) -> Value {
    let text = std::fs::read_to_string(fixture("curve/curve.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let mut runs = json["runs"].as_array().unwrap().iter();
    let is_meant = |run: &&Value| run["accumulation"] == micro_batches && run["autocast"] == autocast;
    runs.find(is_meant).unwrap().clone()
}

#[test]
fn training_follows_pytorch_from_the_same_weights() {
    for micro_batches in [1, 2] {
        let run = curve(micro_batches, false);
        let [expected, norms, rates] =
            ["losses", "gradient_norms", "learning_rates"].map(|key| floats(&run, key));
        assert_eq!((expected.len(), rates.len()), (50, 50));
        for stage in Stage::ALL {
            let report = train(
                stage,
                &format!(
                    "--gpus 4 --init-from {0} --data {0}/text.txt --batch-size 2 --seq-len 32 --steps 50 \
                     --grad-accum {micro_batches} --lr 3e-3 --warmup-steps 10 --threads 1",
                    fixture("curve"),
                ),
            )
            .unwrap();
            let apart = largest_difference(&losses(&report), &expected);
            assert!(apart < 1e-4, "{stage}, accumulation {micro_batches}: losses differ by {apart}");
            let first = (report.steps[0].grad_norm - norms[0]).abs() / norms[0];
            assert!(first < 1e-4, "{stage}: the first gradient norm differs by {first}");
            for ((row, norm), rate) in report.steps.iter().zip(&norms).zip(&rates) {
                let apart = (row.grad_norm - norm).abs() / norm;
                assert!(apart < 0.01, "{stage}: the gradient norm of step {} differs by {apart}", row.step);
                assert!((row.lr - rate).abs() < 1e-12, "{stage}: step {} at a rate of {}", row.step, row.lr);
                assert_eq!(row.tokens, 4 * micro_batches * 2 * 32, "{stage}: step {}", row.step);
            }
        }
    }
}

/// PyTorch also rounds the results of products to bf16, and so has different rounding errors. Our
/// distance from f32 must be half to one and a half times PyTorch's, and we must be no farther from
/// PyTorch than that. This tests the size of the errors, not their place.
#[test]
fn autocast_follows_pytorchs() {
    let flags = format!(
        "--gpus 4 --init-from {0} --data {0}/text.txt --batch-size 2 --seq-len 32 --steps 50 --lr 3e-3 \
         --warmup-steps 10 --threads 1 --precision autocast",
        fixture("curve"),
    );
    let ours = train(Stage::Zero3, &flags).unwrap();
    let [theirs, exact] = [true, false].map(|autocast| curve(1, autocast));
    let apart = |key, ours: &[f64], other: &Value| largest_difference(ours, &floats(other, key));
    let norms: Vec<f64> = ours.steps.iter().map(|row| row.grad_norm).collect();
    for (key, ours) in [("losses", &losses(&ours)), ("gradient_norms", &norms)] {
        let rounding = apart(key, &floats(&theirs, key), &exact);
        let (to_theirs, to_exact) = (apart(key, ours, &theirs), apart(key, ours, &exact));
        let [least, most] = [rounding / 2.0, rounding * 1.5];
        assert!((least..most).contains(&to_exact), "{key}: {to_exact} from f32, PyTorch {rounding}");
        assert!(to_theirs < most, "{key}: {to_theirs} from PyTorch, which is {rounding} from f32");
    }
}

/// Prompt tokens are PyTorch's `ignore_index`. The loss is averaged over all ranks and
/// micro-batches. `tests/peers/make_masked.py` produced the curve.
#[test]
fn prompts_carry_no_loss_as_in_pytorch() {
    let text = std::fs::read_to_string(fixture("curve/masked.json")).unwrap();
    let expected = floats(&serde_json::from_str(&text).unwrap(), "losses");
    let flags = format!(
        "--gpus 4 --init-from {0} --data {0}/masked.jsonl --data-format jsonl --batch-size 2 --seq-len 32 \
         --steps 20 --grad-accum 2 --lr 3e-3 --warmup-steps 10 --threads 1",
        fixture("curve"),
    );
    let mut weights = Vec::new();
    for stage in Stage::ALL {
        let report = train(stage, &format!("{flags} --mask-prompt")).unwrap();
        let apart = largest_difference(&losses(&report), &expected);
        assert!(apart < 1e-4, "{stage}: losses differ by {apart}");
        weights.push(report.weights_blake3);
    }
    // DDP and ZeRO-1 sum the micro-batches before the ranks; ZeRO-2 and ZeRO-3 sum them after the
    // ranks.
    assert!(weights[0] == weights[1] && weights[2] == weights[3], "{weights:?}");
    let all = losses(&train(Stage::Ddp, &flags).unwrap());
    assert!(largest_difference(&all, &expected) > 1e-2, "the mask makes a difference");
}
