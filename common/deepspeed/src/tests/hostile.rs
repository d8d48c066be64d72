//! Malformed and malicious files.

use super::*;
use crate::table::keys;
use proptest::prelude::*;

#[test]
fn hostile_files_are_one_short_error_that_names_the_file() {
    let deep = |open: &str| format!("{{\"fp16\": {}", open.repeat(100_000));
    for (text, word) in [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("{", "EOF"),
        ("{'fp16': 3}", "section of keys"),
        ("// a comment\n{]", "expected a key, at line 2 column 2"),
        (r#"{"fp16" {}}"#, "colon"),
        (r#"{"zero_optimization": {"stage": "4"}}"#, "from 0 to 3"),
        (r#"{"zero_optimization": {"reduce_bucket_size": "5e8"}}"#, "without quotes"),
        ("[]", "section of keys"),
        ("3", "section of keys"),
        ("null", "section of keys"),
        (r#"{"train_batch_size": 8, "train_batch_size": 8}"#, "twice"),
        (r#"{"fp16": {"enabled": true, "enabled": false}}"#, "twice"),
        (r#"{"zero_optimization": 3}"#, "section of keys"),
        (r#"{"optimizer": {"type": "auto"}}"#, "AdamW"),
        (r#"{"zero_optimization": {"stage": 7}}"#, "0 to 3"),
        (r#"{"zero_optimization": {"stage": "three"}}"#, "0 to 3"),
        (r#"{"train_batch_size": 1e400}"#, "range"),
        (r#"{"train_batch_size": 1e300}"#, "train_batch_size"),
        (r#"{"train_micro_batch_size_per_gpu": 9007199254740992}"#, "batch"),
        (r#"{"train_batch_size": -8}"#, "from 1"),
        (r#"{"train_batch_size": 8.5}"#, "whole number"),
        (r#"{"optimizer": {"type": "Lamb"}}"#, "AdamW"),
        (r#"{"scheduler": {"type": "OneCycle"}}"#, "WarmupCosineLR"),
        (r#"{"scheduler": {"type": "WarmupDecayLR"}}"#, "total_num_steps"),
        (r#"{"fp16": {"enabled": true}, "bf16": {"enabled": true}}"#, "choose one"),
        (r#"{"optimizer": {"params": {"lr": 0}}}"#, "above 0"),
        (r#"{"fp16": {"enabled": True}}"#, "line 1"),
        (&deep("["), "recursion"),
        (&deep("{\"a\":"), "recursion"),
        (&format!("{{\"x\": \"{}\"}}", "y".repeat(2 << 20)), "too long"),
    ] {
        let shown: String = text.chars().take(60).collect();
        let error = json(text, "").and_then(|config| {
            prediction::predict(&settings::planned::job(Stage::Zero1, &config)).map_err(Failure::usage)
        });
        let error = error.unwrap_err();
        assert_eq!(error.code(), 2);
        let error = error.to_string();
        assert!(error.contains(word) && error.len() < 600, "{shown}: {error}");
    }
    let inner = r#"{"deepspeed_config": {"deepspeed_config_file": "no/such/inner.json"}}"#;
    let error = json(inner, "").unwrap_err().to_string();
    assert!(
        error.contains("ds.json: deepspeed_config.deepspeed_config_file") && error.contains("inner.json"),
        "{error}"
    );
    let path = File::json("");
    std::fs::write(&path.path, [0xff, 0xfe, b'{']).unwrap();
    assert!(path.config("").unwrap_err().to_string().contains("ds.json: not text in UTF-8"));
    let missing = settings::cli::Cli::parse_from(["zero", "--config", "no/such.json"]).train;
    assert!(configure(missing).unwrap_err().to_string().starts_with("cannot read --config no/such.json: "));
}

#[test]
fn a_configuration_that_is_no_regular_file_is_refused_without_waiting() {
    let file = File::json("");
    let pipe = file.path.with_file_name("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for special in [&pipe, std::path::Path::new("/dev/zero"), std::path::Path::new("/dev")] {
        let named = settings::cli::Cli::parse_from(["zero", "--config", special.to_str().unwrap()]).train;
        let error = configure(named).unwrap_err();
        let expected = format!("cannot read --config {}: it is not a regular file", special.display());
        assert!(error.code() == 2 && error.to_string().starts_with(&expected), "{error}");
    }
    let inner = format!(r#"{{"deepspeed_config": {{"deepspeed_config_file": {pipe:?}}}}}"#);
    std::fs::write(&file.path, inner).unwrap();
    let error = file.config("").unwrap_err().to_string();
    assert!(error.contains("pipe: it is not a regular file"), "{error}");
}

#[test]
fn unknown_keys_are_warnings_that_stay_on_one_short_line() {
    let many: Vec<String> = (0..500).map(|i| format!("\"unknown{i}\": {i}")).collect();
    let config = json(&format!("{{{}}}", many.join(",")), "").unwrap();
    assert_eq!(config.findings.warnings.len(), 21);
    assert!(config.findings.warnings[20].contains("480 more"));
    let config =
        json(&format!(r#"{{"a\n\u001b[2J": 1, "fp16.enabled": true, "{}": 2}}"#, "z".repeat(5000)), "")
            .unwrap();
    assert_eq!(config.findings.warnings.len(), 3);
    for warning in &config.findings.warnings {
        assert!(warning.len() < 200 && !warning.contains(char::is_control), "{warning}");
    }
    assert_eq!(config.findings.check(Stage::Zero3), Ok(()));
}

/// Values of every sort, most of them wrong for most keys.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_string()),
        Just("\"auto\"".into()),
        Just("\"none\"".into()),
        any::<bool>().prop_map(|b| b.to_string()),
        (0u64..40).prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("JSON has no infinities", |f| f.is_finite()).prop_map(|f| format!("{f:e}")),
        Just("[0.9, 0.95]".into()),
        Just("{}".into()),
        "[a-zA-Z ]{0,8}".prop_map(|text| format!("{text:?}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_keys_resolve_or_name_a_key(
        entries in prop::collection::btree_map(0..keys().count(), value(), 0..7),
        gpus in 1usize..9,
    ) {
        let mut root = node::Node::Section(Vec::new());
        let mut names = Vec::new();
        for (index, value) in &entries {
            let path = keys().nth(*index).unwrap().path;
            names.extend([path.split('.').next().unwrap(), path.rsplit('.').next().unwrap()]);
            root.insert(path, hjson::parse(value).unwrap());
        }
        let text = serde_json::to_string(&root).unwrap();
        let flags = format!("--gpus {gpus}");
        let names_a_key = |error: &Failure| names.iter().any(|name| error.to_string().contains(name));
        match json(&text, &flags) {
            Err(error) => prop_assert!(names_a_key(&error), "{text}: {error}"),
            Ok(config) => {
                let stage = config.findings.stage.unwrap_or(Stage::Zero3);
                match print(&config, stage) {
                    Err(error) => prop_assert!(names_a_key(&error), "{text}: {error}"),
                    Ok(printed) => {
                        let again = json(&printed, &flags).unwrap();
                        prop_assert_eq!(print(&again, stage).unwrap(), printed);
                    }
                }
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[ -~\n]{0,80}", yaml in any::<bool>()) {
        let file = File::new(if yaml { "a.yaml" } else { "a.json" }, &text);
        if let Err(error) = file.config("") {
            prop_assert!(error.to_string().contains("a."), "{}", error);
        }
    }
}
