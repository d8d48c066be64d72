//! Models of families other than Llama: stages agree on them, their memory and traffic are
//! predicted, and the saved model is the same model.

use checkpoint::Reader;
use model::{Layout, Wrap};
use prediction::{Job, Stage};
use tests::{STAGES, assert_same, fixture, run, train};

/// Each has a feature that Llama lacks: biases, head norms, a window, scaled rotations.
const MODELS: [&str; 4] = ["qwen2.json", "qwen3.json", "mistral.json", "llama3.json"];

fn flags(model: &str, more: &str) -> String {
    let shape = "--gpus 3 --batch-size 2 --seq-len 8 --steps 4 --threads 1 --device cpu";
    format!("--model {} {shape} {more}", fixture(model))
}

/// Checks that all stages agree bit for bit. [`run`] checks that every prediction holds to the
/// byte.
fn stages_agree(flags: &str) {
    let [first, others @ ..] = STAGES.map(|stage| run(stage, flags));
    others.iter().for_each(|other| assert_same(&first, other, flags));
}

#[test]
fn stages_agree_on_every_family() {
    MODELS.iter().for_each(|model| stages_agree(&flags(model, "")));
}

#[test]
fn stages_agree_however_units_are_cut_and_whatever_is_kept() {
    for model in ["qwen2.json", "qwen3.json"] {
        for more in [
            "--wrap parameter --checkpoint-activations block --param-persistence-threshold 30",
            "--wrap module --checkpoint-activations selective",
            "--precision bf16 --val-fraction 0.1 --eval-every 2 --wrap size:300",
        ] {
            stages_agree(&flags(model, more));
        }
    }
}

/// The planner counts by position in a block, and training by name.
#[test]
fn units_are_those_that_the_planner_names() {
    for (model, part) in [("qwen2.json", "block 1 k_proj.bias"), ("qwen3.json", "block 1 q_norm")] {
        let config = tests::config(&flags(model, "")).unwrap().model;
        for wrap in [Wrap::Block, Wrap::Module, Wrap::Parameter, Wrap::Size(300)] {
            let ours = sharding::Partition::new(&Layout::new(&config), wrap, 3).units;
            let job = Job { wrap, ..Job::new(config.clone(), Stage::Zero3, 3) };
            let planned = prediction::Partition::of(&job).units;
            let names = |unit: &sharding::Unit| (unit.name.clone(), unit.padded as u64);
            let planned: Vec<_> = planned.into_iter().map(|unit| (unit.name, unit.padded)).collect();
            assert_eq!(ours.iter().map(names).collect::<Vec<_>>(), planned, "{model}, {wrap}");
            assert_eq!(planned.iter().any(|(name, _)| name == part), wrap == Wrap::Parameter);
        }
    }
}

#[test]
fn what_is_saved_is_the_model_that_was_trained() {
    for model in MODELS {
        let dir = tempfile::tempdir().unwrap();
        let trained = run(Stage::Zero3, &flags(model, &format!("--save {}", dir.path().display())));
        let saved = Reader::open(dir.path()).unwrap().config().unwrap();
        let config = tests::config(&flags(model, "")).unwrap().model;
        assert_eq!((saved.family, saved.rope_scaling), (config.family, config.rope_scaling));
        assert_eq!((saved.window, saved.head_dim), (config.window, config.head_dim));
        let from = flags(model, "").replace("--model", "--init-from");
        let from = from.replace(&fixture(model), &dir.path().display().to_string());
        let on = run(Stage::Ddp, &from);
        assert!(on.steps[0].loss < trained.steps[0].loss, "{model}: training goes on where it ended");
    }
}

#[test]
fn a_sequence_longer_than_the_window_is_refused() {
    let flags = flags("mistral.json", "").replace("--seq-len 8", "--seq-len 32");
    let failure = train(Stage::Ddp, &flags).unwrap_err();
    assert_eq!(failure.code(), 2);
    assert!(failure.to_string().contains("--seq-len"), "{failure}");
}
