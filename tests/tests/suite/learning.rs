//! The stages not only agree but also learn.

use prediction::Stage;
use settings::cli::GenerateArgs;
use settings::corpus;
use tests::{fixture, train};

#[test]
fn four_hundred_steps_teach_two_narrow_blocks_the_grammar() {
    let dir = tempfile::tempdir().unwrap();
    let (model, to) = (fixture("narrow.json"), dir.path().display());
    let flags = format!(
        "--model {model} --gpus 4 --steps 400 --lr 6e-3 --batch-size 2 --seq-len 128 --device cpu --save {to}"
    );
    train(Stage::Zero3, &flags).unwrap();
    let args = GenerateArgs {
        tokenizer: None,
        from: dir.path().into(),
        prompt: "\n".into(),
        tokens: 125,
        temperature: 0.8,
        seed: 1,
        samples: 60,
        threads: None,
    };
    let mut shown = String::new();
    let on_part = |part: &str| {
        shown += part;
        true
    };
    let texts = trainer::generate(stages::of(Stage::Zero3), &args, on_part).unwrap();
    assert_eq!(shown, texts[0]);
    let counts = texts.iter().map(|text| corpus::count_sentences(text));
    let (all, good) = counts.fold((0, 0), |(a, g), (all, good)| (a + all, g + good));
    println!("{good} of {all} generated sentences parse");
    assert!(all > 60, "{all} sentences are too few to judge");
    assert!(good * 100 >= all * 80, "{good} of {all} generated sentences parse");
}

/// Trains nanoGPT's setting for a laptop on Shakespeare with ZeRO-3: 4 layers of width 128, 64
/// characters of context, 12 sequences per step. Returns the validation loss in nats per character
/// over `batches` batches of 12 sequences.
fn loss_on_shakespeare(steps: u32, batches: u32) -> f64 {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data/tinyshakespeare.txt");
    let report = train(
        Stage::Zero3,
        &format!(
            "--data {data} --gpus 4 --batch-size 3 --seq-len 64 --steps {steps} --lr 4e-3 --shuffle-seed 1 \
             --val-fraction 0.1 --eval-every {steps} --eval-batches {batches}"
        ),
    )
    .unwrap();
    assert!(report.predictions_hold());
    let loss = report.evaluations.last().unwrap().loss;
    println!("validation loss {loss:.4} after {steps} steps");
    loss
}

/// Measured: 2.221, and 2.226 to 2.238 in bf16 or with a rate that differs by 0.03 %. The bound is
/// below the 2.48 of a character bigram model, and below the loss of faulty runs: 2.280 if a rank
/// reads another rank's samples, 2.304 at a quarter of the rate, 2.328 if a rank's gradients are
/// dropped, 2.331 if a rank divides its loss incorrectly.
#[test]
fn a_small_model_learns_shakespeare() {
    let loss = loss_on_shakespeare(200, 20);
    assert!(loss <= 2.27, "validation loss {loss}");
}

/// nanoGPT reaches 1.88 in 2000 steps. Here 1000 steps must suffice, over all of the held-out text.
#[test]
#[ignore = "takes a minute on two cores; the test above holds the same on a fifth of the steps"]
fn a_small_model_learns_shakespeare_in_half_of_nanogpts_steps() {
    let loss = loss_on_shakespeare(1000, 145);
    assert!(loss <= 1.88, "validation loss {loss}");
}
