//! What a run leaves: the weights that it ended with, and their hash.

use checkpoint::Reader;
use model::Layout;
use std::path::Path;
use tests::{STAGES, fixture, run};

/// The hash that a report has of the weights saved in `dir`: f32, little-endian, unpadded, in Hugging Face's order.
fn hash(dir: &Path) -> String {
    let reader = Reader::open(dir).unwrap();
    let mut hasher = blake3::Hasher::new();
    for tensor in &Layout::new(&reader.config().unwrap()).tensors {
        let mut values = vec![0.0; tensor.elements()];
        reader.read(tensor, 0..values.len(), &mut values).unwrap();
        for value in values {
            hasher.update(&value.to_le_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}

#[test]
fn a_reports_hash_is_that_of_the_saved_weights_which_training_goes_on_from() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    // Every sample is the same, so that a validation says what the next step begins with.
    std::fs::write(&text, "every rank waits".repeat(400)).unwrap();
    let shape = format!("--data {} --batch-size 1 --seq-len 16 --threads 1 --device cpu", text.display());
    for (stage, model) in STAGES.into_iter().zip(["odd.json", "odd-tied.json", "odd.json", "odd-tied.json"]) {
        let saved = dir.path().join(stage.package());
        let flags = format!(
            "--model {} --gpus 3 --steps 4 {shape} --val-fraction 0.5 --eval-every 4 --save {}",
            fixture(model),
            saved.display()
        );
        let report = run(stage, &flags);
        assert_eq!(report.weights_blake3, hash(&saved), "{stage}");
        let on = run(stage, &format!("--init-from {} --gpus 2 --steps 1 {shape}", saved.display()));
        let apart = (on.steps[0].loss - report.evaluations[0].loss).abs();
        assert!(apart < 1e-9, "{stage}: training goes on {apart} beside where it ended");
        assert_ne!(on.weights_blake3, report.weights_blake3, "{stage}: a step changes weights");
    }
}
