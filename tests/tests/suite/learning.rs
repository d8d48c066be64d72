//! The stages do not only agree: they learn.

use planner::Stage;
use settings::cli::GenerateArgs;
use settings::corpus;
use tests::train;

#[test]
fn three_hundred_steps_teach_the_grammar() {
    let dir = tempfile::tempdir().unwrap();
    train(Stage::Zero3, &format!("--gpus 4 --steps 300 --save {}", dir.path().display())).unwrap();
    let args = GenerateArgs {
        from: dir.path().into(),
        prompt: "\n".into(),
        tokens: 125,
        temperature: 0.8,
        seed: 1,
        samples: 100,
        threads: None,
    };
    let texts = trainer::generate::<zero3::Zero3>(&args).unwrap();
    let counts = texts.iter().map(|text| corpus::count_sentences(text));
    let (all, good) = counts.fold((0, 0), |(a, g), (all, good)| (a + all, g + good));
    println!("{good} of {all} generated sentences parse");
    assert!(all > 100, "{all} sentences are too few to judge");
    assert!(good * 100 >= all * 80, "{good} of {all} generated sentences parse");
}

/// nanoGPT's setting for a laptop: 4 layers of width 128, 64 characters of context, 12 sequences
/// per step, on Shakespeare. There 2000 steps reach a validation loss of 1.88 nats per character;
/// here half as many have to.
#[test]
fn a_small_model_learns_shakespeare() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data/tinyshakespeare.txt");
    let report = train(
        Stage::Zero3,
        &format!(
            "--data {data} --gpus 4 --batch-size 3 --seq-len 64 --steps 1000 --lr 4e-3 --shuffle-seed 1 \
             --val-fraction 0.1 --eval-every 1000 --eval-batches 145"
        ),
    )
    .unwrap();
    let seconds: f64 = report.steps.iter().map(|row| row.seconds).sum();
    let loss = report.evaluations.last().unwrap().loss;
    println!("validation loss {loss:.4} after {seconds:.0} s");
    assert!(report.predictions_hold());
    assert!(loss <= 1.88, "validation loss {loss}");
}
