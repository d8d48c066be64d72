//! A user's model keeps its configuration, generation settings, tokenizer and element type,
//! including over a run of several sessions.

use checkpoint::{ElementType, Reader};
use prediction::Stage;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tests::{fixture, run};

/// Returns a Qwen2 config as its authors publish it: a window only on the second layer, two
/// end-of-text tokens, and keys that this program ignores.
fn theirs() -> Value {
    let mut theirs: Value = serde_json::from_slice(&fs::read(fixture("qwen2.json")).unwrap()).unwrap();
    let more = json!({
        "use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1,
        "layer_types": ["full_attention", "sliding_attention"],
        "bos_token_id": 1, "eos_token_id": [2, 7], "pad_token_id": 0, "initializer_range": 0.041666666666666664,
        "dtype": "bfloat16", "transformers_version": "5.1.0", "use_cache": true, "auto_map": { "a": "b" },
    });
    theirs.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    theirs
}

const SHAPE: &str = "--gpus 2 --batch-size 1 --seq-len 8 --threads 1 --device cpu";

const OTHERS: [&str; 4] =
    ["generation_config.json", "tokenizer.json", "special_tokens_map.json", "chat_template.jinja"];

/// Creates a directory with that model, with weights stored as bf16.
fn pretrained(parent: &Path) -> PathBuf {
    let [json, model] = ["theirs.json", "theirs"].map(|name| parent.join(name));
    fs::write(&json, theirs().to_string()).unwrap();
    let flags = format!("--model {} --steps 1 --save-dtype bf16 --save {}", json.display(), model.display());
    run(Stage::Ddp, &format!("{flags} {SHAPE}"));
    fs::write(model.join("config.json"), theirs().to_string()).unwrap();
    for name in OTHERS {
        fs::write(model.join(name), format!("their {name}")).unwrap();
    }
    model
}

/// Asserts that `out` holds that model after training.
fn assert_theirs(out: &Path) {
    let config: Value = serde_json::from_slice(&fs::read(out.join("config.json")).unwrap()).unwrap();
    assert_eq!(config, theirs(), "{}", out.display());
    for name in OTHERS {
        assert_eq!(fs::read_to_string(out.join(name)).unwrap(), format!("their {name}"), "{}", out.display());
    }
    // The type in which the weights are stored, whatever the config says.
    let stored = Reader::open(out).unwrap().model_files().unwrap().element_type();
    assert_eq!(stored, ElementType::Bf16, "{}", out.display());
}

#[test]
fn a_model_keeps_what_it_brought_over_all_sessions_of_a_run() {
    let parent = tempfile::tempdir().unwrap();
    let model = pretrained(parent.path());
    let [kept, first, second, third, out] =
        ["kept", "first", "second", "third", "out"].map(|name| parent.path().join(name));
    let session = |stage, from: &str, steps: u32, to: &Path| {
        let (kept, to) = (kept.display(), to.display());
        let flags = format!("{from} --steps {steps} --resume-with steps --checkpoint {kept} --save {to}");
        run(stage, &format!("{flags} {SHAPE}"))
    };
    session(Stage::Zero3, &format!("--init-from {}", model.display()), 2, &first);
    assert_theirs(&first);
    // The model is gone, and the file that names its architecture holds nothing else.
    fs::remove_dir_all(&model).unwrap();
    let json = parent.path().join("bare.json");
    let mut bare = theirs();
    bare.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_token_id") && key != "dtype");
    fs::write(&json, bare.to_string()).unwrap();
    let named = format!("--model {}", json.display());
    session(Stage::Zero1, &named, 4, &second);
    assert_theirs(&second);
    session(Stage::Zero3, &named, 6, &third);
    assert_theirs(&third);
    let command = format!("zero export --from {} --to {}", kept.display(), out.display());
    let code = stages::main_from(Stage::Zero3, command.split_whitespace().map(OsString::from));
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS), "{command}");
    assert_theirs(&out);
    let [saved, exported] = [&third, &out].map(|dir| fs::read(dir.join("model.safetensors")).unwrap());
    assert_eq!(saved, exported);
}

#[test]
fn a_tokenizer_of_the_data_is_saved_with_the_weights_and_kept_by_checkpoints() {
    let parent = tempfile::tempdir().unwrap();
    let model = pretrained(parent.path());
    let [kept, first, second, fresh, other, ids] =
        ["kept", "first", "second", "fresh", "other", "ids"].map(|name| parent.path().join(name));
    fs::create_dir(&other).unwrap();
    for name in ["own.json", "tokenizer_config.json"] {
        fs::write(other.join(name), format!("other {name}")).unwrap();
    }
    fs::write(&ids, [1, 0].repeat(200)).unwrap();
    let data = format!("--data {} --data-format u16", ids.display());
    let given = format!("{data} --tokenizer {}", other.join("own.json").display());
    let session = |flags: &str, to: &Path| {
        run(Stage::Zero2, &format!("{flags} --save {} {SHAPE}", to.display()));
        let tokenizer = fs::read_to_string(to.join("tokenizer.json")).unwrap();
        let beside = fs::read_to_string(to.join("tokenizer_config.json")).unwrap();
        assert_eq!([tokenizer.as_str(), &beside], ["other own.json", "other tokenizer_config.json"]);
        assert!(!to.join("special_tokens_map.json").exists(), "the model's own tokenizer is replaced");
    };
    let resumed = format!("--checkpoint {} --resume-with steps", kept.display());
    session(&format!("{given} --init-from {} {resumed} --steps 1", model.display()), &first);
    assert_eq!(
        fs::read_to_string(first.join("generation_config.json")).unwrap(),
        "their generation_config.json"
    );
    session(&format!("{data} --init-from {} {resumed} --steps 2", model.display()), &second);
    session(&format!("{given} --model tiny --steps 1"), &fresh);
}

#[test]
fn a_flag_goes_before_the_type_that_weights_had_and_a_config_alone_has_none() {
    let parent = tempfile::tempdir().unwrap();
    let model = pretrained(parent.path());
    let out = parent.path().join("out");
    for (from, word) in [
        (format!("--init-from {} --save-dtype f32", model.display()), "float32"),
        (format!("--model {}", model.join("config.json").display()), "float32"),
    ] {
        run(Stage::Zero2, &format!("{from} --steps 1 --save {} {SHAPE}", out.display()));
        let config: Value = serde_json::from_slice(&fs::read(out.join("config.json")).unwrap()).unwrap();
        let mut expected = theirs();
        expected["dtype"] = word.into();
        assert_eq!(config, expected, "{from}");
    }
}
