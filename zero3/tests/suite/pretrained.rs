//! Pretrained models with something wrong in them.

use crate::cli::{SHORT, refuses, text, zero3};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Saves a model in `out`, and replaces `old` in its `config.json` with `new`.
fn saved(out: &Path, old: &str, new: &str) {
    assert!(zero3(&format!("{SHORT} --save {}", out.display())).status.success());
    let config = fs::read_to_string(out.join("config.json")).unwrap();
    assert!(config.contains(old), "{config}");
    fs::write(out.join("config.json"), config.replace(old, new)).unwrap();
}

/// The lines of standard error of training and of sampling from the model in `from`.
fn warnings(from: &Path) -> [Vec<String>; 2] {
    let (from, to) = (from.display(), from.with_extension("next"));
    let train = format!("{SHORT} --init-from {from} --save {}", to.display());
    [train, format!("generate --from {from} --tokens 1")].map(|flags| {
        let output = zero3(&flags);
        let lines = text(&output.stderr);
        assert!(output.status.success(), "{flags}\n{lines}");
        lines.lines().map(str::to_string).collect()
    })
}

#[test]
fn a_head_that_is_stored_beside_a_tied_one_is_used_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    let key = "\"tie_word_embeddings\": ";
    saved(&model, &format!("{key}false"), &format!("{key}true"));
    for lines in warnings(&model) {
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.starts_with("warning: ") && line.contains("lm_head.weight"), "{line}");
        assert!(
            line.contains("model.embed_tokens.weight") && line.contains("used as it is stored"),
            "{line}"
        );
    }
    // What is saved says what it is, so nothing is left to warn of.
    let next = model.with_extension("next");
    assert!(fs::read_to_string(next.join("config.json")).unwrap().contains(&format!("{key}false")));
    assert_eq!(warnings(&next), [vec![], vec![]] as [Vec<String>; 2]);
}

#[test]
fn tensors_that_the_model_does_not_have_are_counted_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    saved(&model, "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 3");
    for lines in warnings(&model) {
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.starts_with("warning: ") && line.contains(" has 9 tensors that "), "{line}");
        assert!(line.contains("`model.layers.3.") && line.ends_with(" and 6 more"), "{line}");
    }
}

#[test]
fn bytes_for_a_model_with_a_tokenizer_are_doubted() {
    let dir = tempfile::tempdir().unwrap();
    let [json, model, ids] = ["wide.json", "model", "ids.bin"].map(|name| dir.path().join(name));
    let config = r#"{"model_type": "llama", "vocab_size": 300, "hidden_size": 24, "intermediate_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}"#;
    fs::write(&json, config).unwrap();
    fs::write(&ids, [1; 400]).unwrap();
    let train = zero3(&format!("{SHORT} --model {} --save {}", json.display(), model.display()));
    assert!(train.status.success() && train.stderr.is_empty(), "{}", text(&train.stderr));
    let doubts = |flags: &str| {
        let output = zero3(&format!("{SHORT} --init-from {} {flags}", model.display()));
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    assert_eq!(doubts(""), "", "it has no tokenizer");
    fs::write(model.join("tokenizer.json"), "{}").unwrap();
    let data = format!("--data {}", ids.display());
    for (flags, name) in [("", "the built-in text"), (data.as_str(), data.as_str())] {
        let (found, tokenizer) = (doubts(flags), model.join("tokenizer.json"));
        assert!(found.starts_with(&format!("warning: {name} is read as bytes")), "{found}");
        assert!(found.contains(&format!("give --tokenizer {}", tokenizer.display())), "{found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
    assert_eq!(doubts(&format!("{data} --data-format u16")), "");
}

/// Writes `value` into the file of weights at `path`, as an element of a tensor.
fn set(path: &Path, tensor: &str, element: usize, value: f32) {
    let mut bytes = fs::read(path).unwrap();
    let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..data]).unwrap();
    let start = header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    let at = data + start + 4 * element;
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_weight_that_is_no_number_ends_the_run_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    saved(&model, "{", "{");
    let weights = model.join("model.safetensors");
    let whole = fs::read(&weights).unwrap();
    // The first and the last element of a rank's part, in tensors that only one rank reads.
    for (tensor, element, value, words) in [
        ("model.layers.2.mlp.up_proj.weight", 128 * 383 + 127, f32::NAN, "NaN at [383, 127]"),
        ("model.embed_tokens.weight", 0, f32::INFINITY, "inf at [0, 0]"),
        ("model.norm.weight", 127, f32::NEG_INFINITY, "-inf at [127]"),
    ] {
        set(&weights, tensor, element, value);
        let named = [tensor, words, "earlier save"];
        refuses(&format!("{SHORT} --init-from {}", model.display()), 1, &named);
        refuses(&format!("generate --from {} --tokens 1", model.display()), 1, &named);
        fs::write(&weights, &whole).unwrap();
    }
}

#[test]
fn no_text_grows_longer_than_the_window_of_attention() {
    let dir = tempfile::tempdir().unwrap();
    let [json, model] = ["mistral.json", "model"].map(|name| dir.path().join(name));
    let config = r#"{"model_type": "mistral", "vocab_size": 256, "hidden_size": 26, "intermediate_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "sliding_window": 16}"#;
    fs::write(&json, config).unwrap();
    let train = zero3(&format!("{SHORT} --model {} --save {}", json.display(), model.display()));
    assert!(train.status.success(), "{}", text(&train.stderr));
    let from = format!("generate --from {} --prompt 0123456789", model.display());
    refuses(&from, 2, &["--tokens 400", "409 tokens", "last 16 only", "at most 7 after", "--tokens 7"]);
    refuses(&format!("{from} --tokens 8"), 2, &["17 tokens", "--tokens 7"]);
    for (prompt, tokens) in [("", 7), ("0123456", 0)] {
        let sampled = zero3(&format!("{from}{prompt} --tokens {tokens}"));
        assert!(sampled.status.success(), "{}", text(&sampled.stderr));
        assert!(text(&sampled.stdout).starts_with("0123456789"), "{}", text(&sampled.stdout));
    }
    refuses(&format!("{from}0123456 --tokens 1"), 2, &["17 tokens", "a prompt of at most 16 tokens"]);
}

#[test]
fn a_run_that_names_no_model_says_that_it_takes_the_checkpoint_s() {
    let kept = tempfile::tempdir().unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/three-heads.json");
    let note = format!(
        "note: no --model is given: the model is that of the checkpoints in {}\n",
        kept.path().display()
    );
    for (flags, said) in [(format!("--model {model}"), ""), ("--steps 9".into(), note.as_str())] {
        let output =
            zero3(&format!("{SHORT} {flags} --resume-with steps --checkpoint {}", kept.path().display()));
        assert!(output.status.success() && text(&output.stderr) == said, "{}", text(&output.stderr));
    }
}
