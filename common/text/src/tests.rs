//! Tokens and conversations of a tokenizer, and tokenizers that are missing or wrong.

use super::*;
use serde_json::Value;
use std::process::Command;

const DEFINITION: &str = r#"{
    "version": "1.0", "added_tokens": [{"id": 4, "content": "</s>", "special": true, "single_word": false,
    "lstrip": false, "rstrip": false, "normalized": false}], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": {"type": "Fuse"}, "truncation": null, "padding": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, " ": 2, "ab": 3}, "merges": ["a b"]}
}"#;

#[test]
fn a_file_gives_its_tokens_and_the_one_that_ends_a_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, DEFINITION).unwrap();
    let open = || Tokenizer::open(Some(&path)).unwrap();
    assert_eq!(open().encode("ab ba").unwrap(), [3, 2, 1, 0]);
    assert_eq!(open().encode("</s>ab").unwrap(), [4, 3], "the name of a special token is that token");
    assert_eq!(open().decode(&[3, 2, 1, 0, 4]).unwrap(), "ab ba");
    assert_eq!(open().end(), None);
    let special = dir.path().join("special_tokens_map.json");
    std::fs::write(&special, r#"{"eos_token": {"content": "</s>"}}"#).unwrap();
    assert_eq!(open().end(), Some(4));
    std::fs::write(&special, r#"{"eos_token": "b"}"#).unwrap();
    for token in [r#""</s>""#, r#"{"content": "</s>", "lstrip": false}"#] {
        std::fs::write(dir.path().join("tokenizer_config.json"), format!(r#"{{"eos_token": {token}}}"#))
            .unwrap();
        assert_eq!(open().end(), Some(4), "{token}");
        let pair = r#"{"prompt": "ab", "completion": "ba"}"#;
        assert_eq!(open().encode_record(pair, MARK).unwrap(), [3 | MARK, 1, 0, 4]);
    }
}

/// Transformers reads special tokens that `tokenizer_config.json` does not name from
/// `special_tokens_map.json`.
#[test]
fn a_chat_template_sees_the_special_tokens_of_either_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, DEFINITION).unwrap();
    std::fs::write(dir.path().join("special_tokens_map.json"), r#"{"bos_token": {"content": "</s>"}}"#)
        .unwrap();
    let template = r#"{{ bos_token }}{{ messages[0]['content'] }}"#;
    let settings = serde_json::json!({ "bos_token": null, "chat_template": template });
    std::fs::write(dir.path().join("tokenizer_config.json"), settings.to_string()).unwrap();
    let line = r#"{"messages": [{"role": "user", "content": "ab"}]}"#;
    assert_eq!(Tokenizer::open(Some(&path)).unwrap().encode_record(line, 0).unwrap(), [4, 3]);
}

#[test]
fn a_record_that_nothing_ends_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, DEFINITION).unwrap();
    let text = r#"{"text": "ab"}"#;
    for settings in ["{}", r#"{"eos_token": null}"#, r#"{"eos_token": "<unknown>"}"#] {
        std::fs::write(dir.path().join("tokenizer_config.json"), settings).unwrap();
        let tokenizer = Tokenizer::open(Some(&path)).unwrap();
        let warning = tokenizer.unended(text).unwrap();
        assert!(warning.contains("has no token that ends a text"), "{warning}");
        assert_eq!(tokenizer.unended(r#"{"messages": []}"#), None);
    }
    std::fs::write(dir.path().join("tokenizer_config.json"), r#"{"eos_token": "</s>"}"#).unwrap();
    assert_eq!(Tokenizer::open(Some(&path)).unwrap().unended(text), None);
    assert_eq!(Tokenizer::Bytes.unended(text), None);
}

#[test]
fn a_file_beside_a_tokenizer_that_cannot_be_read_is_an_input_error() {
    for name in ["tokenizer_config.json", "special_tokens_map.json"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        std::fs::write(&path, DEFINITION).unwrap();
        let refused = |why: &str| {
            let error = Tokenizer::open(Some(&path)).err().unwrap();
            assert!(matches!(&error, TextError::Input(said) if said.contains(name)), "{why}: {error}");
        };
        std::fs::write(dir.path().join(name), "{\"eos_token\": ").unwrap();
        refused("cut short");
        std::fs::remove_file(dir.path().join(name)).unwrap();
        std::fs::create_dir(dir.path().join(name)).unwrap();
        refused("a directory");
        std::fs::remove_dir(dir.path().join(name)).unwrap();
        assert!(Command::new("mkfifo").arg(dir.path().join(name)).status().unwrap().success());
        refused("a pipe");
    }
}

/// A tokenizer that begins each text with a word-start marker, as in Llama 2 and Mistral.
#[test]
fn a_prompt_and_its_completion_are_one_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    let prepends = r#""pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}"#;
    let definition = DEFINITION.replace("\" \": 2", "\"▁\": 2").replace("\"pre_tokenizer\": null", prepends);
    std::fs::write(&path, definition).unwrap();
    let tokenizer = Tokenizer::open(Some(&path)).unwrap();
    assert_eq!(tokenizer.encode("abba").unwrap(), [2, 3, 1, 0]);
    let pair = |prompt: &str, completion: &str| {
        let line = serde_json::json!({ "prompt": prompt, "completion": completion }).to_string();
        [MARK, 0].map(|mark| tokenizer.encode_record(&line, mark).unwrap())
    };
    assert_eq!(pair("ab", "ba"), [vec![2 | MARK, 3 | MARK, 1, 0], vec![2, 3, 1, 0]]);
    assert_eq!(pair("ab", " a"), [vec![2 | MARK, 3 | MARK, 2, 0], vec![2, 3, 2, 0]]);
    // A token of both parts carries a loss.
    assert_eq!(pair("ba", "b"), [vec![2 | MARK, 1 | MARK, 3], vec![2, 1, 3]]);
}

#[test]
fn conversations_become_what_transformers_makes_of_them() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/chat");
    let cases: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(fixture.join("cases.json")).unwrap()).unwrap();
    assert_eq!(cases.len(), 7);
    for case in &cases {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let tokenizer = fixture.join(format!("{}.json", case["tokenizer"].as_str().unwrap()));
        std::fs::copy(tokenizer, &path).unwrap();
        std::fs::write(dir.path().join("tokenizer_config.json"), case["config"].to_string()).unwrap();
        if let Some(template) = case["chat_template.jinja"].as_str() {
            std::fs::write(dir.path().join("chat_template.jinja"), template).unwrap();
        }
        let tokenizer = Tokenizer::open(Some(&path)).unwrap();
        let template = chat::ChatTemplate::beside(&path, &case["config"]).unwrap();
        for example in case["examples"].as_array().unwrap() {
            compare(&tokenizer, &template, example, &case["name"]);
        }
    }
}

/// Compares the tokens of a conversation with those from Transformers.
fn compare(tokenizer: &Tokenizer, template: &chat::ChatTemplate, example: &Value, name: &Value) {
    let line = example["line"].as_str().unwrap();
    let chat = conversation::Conversation::read(line).unwrap();
    if let Some(error) = example["error"].as_str() {
        let said = tokenizer.encode_record(line, 0).unwrap_err().to_string();
        assert!(said.starts_with("cannot be rendered by") && said.contains(error), "{name}: {said}");
        return;
    }
    let rendered = template.render(&chat, false).map(|rendering| rendering.text);
    assert_eq!(rendered.as_deref().ok(), example["text"].as_str(), "{name}");
    let ids: Vec<u32> = serde_json::from_value(example["ids"].clone()).unwrap();
    assert_eq!(tokenizer.encode_record(line, 0).unwrap(), ids, "{name}");
    match (tokenizer.encode_record(line, MARK), example["learned"].as_str()) {
        (Ok(tokens), Some(learned)) => {
            let marks = learned.chars().map(|learned| if learned == '1' { 0 } else { MARK });
            let expected: Vec<u32> = ids.into_iter().zip(marks).map(|(id, mark)| id | mark).collect();
            assert_eq!(tokens, expected, "{name}: {line}");
        }
        (Err(error), None) => {
            let error = error.to_string();
            assert!(error.contains("cannot tell from its prompt"), "{name}: {error}");
        }
        (said, expected) => panic!("{name}: {line}: {said:?}, not {expected:?}"),
    }
}

#[test]
fn a_template_that_is_missing_or_wrong_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, DEFINITION).unwrap();
    let said =
        |line: &str| Tokenizer::open(Some(&path)).unwrap().encode_record(line, 0).unwrap_err().to_string();
    let line = r#"{"messages": [{"role": "user", "content": "a"}]}"#;
    let missing = said(line);
    for name in ["chat_template.jinja", "tokenizer_config.json"] {
        assert!(missing.contains(&dir.path().join(name).display().to_string()), "{missing}");
    }
    let template = dir.path().join("chat_template.jinja");
    std::fs::write(&template, "{% for message in messages %}").unwrap();
    assert!(said(line).contains("chat_template.jinja cannot be read: "), "{}", said(line));
    std::fs::write(&template, "a\n{{ messages[0].content.a.b }}").unwrap();
    assert!(said(line).contains("cannot be rendered by the chat template in "), "{}", said(line));
    std::fs::write(&template, "{% generation %}{{ messages[0].content }}{% endgeneration %}").unwrap();
    let marked = said(r#"{"messages": [{"role": "user", "content": "\uFDD0b\ufdd1"}]}"#);
    assert!(marked.contains("U+FDD0"), "{marked}");
}

#[test]
fn a_file_that_is_no_tokenizer_is_an_input_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    for contents in ["", "{}", r#"{"model": {"type": "BPE"}}"#] {
        std::fs::write(&path, contents).unwrap();
        let error = Tokenizer::open(Some(&path)).err().unwrap();
        assert!(
            matches!(error, TextError::Input(_)) && error.to_string().starts_with("cannot read --tokenizer "),
            "{error}"
        );
    }
}
