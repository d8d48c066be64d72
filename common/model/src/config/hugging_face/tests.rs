//! Configs as Transformers 4 and 5 write them, and requests that are refused.

use super::*;
use proptest::prelude::*;

/// SmolLM2-135M's config as Transformers 4 writes it, without keys that do not describe the model.
const VERSION_4: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 0,
    "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
    "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
    "transformers_version": "4.40.1", "vocab_size": 49152
}"#;

fn read(text: &str) -> Result<ModelConfig, ModelError> {
    ModelConfig::from_hugging_face(text, "m")
}

/// Returns the error of a `config.json` with `key` set to `value`.
fn refused(key: &str, value: Value) -> String {
    let mut object: Value = serde_json::from_str(VERSION_4).unwrap();
    object[key] = value;
    read(&object.to_string()).unwrap_err().to_string()
}

#[test]
fn a_long_value_is_shortened() {
    let said = refused("hidden_act", "x".repeat(100_000).into());
    assert!(said.contains("`hidden_act`: \"xxxxxx") && said.contains("…, but"), "{said}");
    assert!(said.chars().count() < 200, "{said}");
    let said = read(&format!("\"{}\"", "x".repeat(100_000))).unwrap_err().to_string();
    assert!(said.contains("not a JSON object") && said.chars().count() < 200, "{said}");
}

#[test]
fn version_4_is_read() {
    let preset = ModelConfig::preset("smollm2-135m").unwrap();
    let read = ModelConfig::from_hugging_face(VERSION_4, "smollm2-135m").unwrap();
    // The preset's initial weights have the usual deviation.
    let (batch_size, initializer_range) = (read.batch_size, 0.041666666666666664);
    assert_eq!(read, ModelConfig { batch_size, initializer_range, ..preset });
}

#[test]
fn version_5_is_read() {
    let config = read(include_str!("../../../tests/fixtures/tied/config.json")).unwrap();
    let expected = ModelConfig {
        name: "m".into(),
        family: Family::Llama,
        vocabulary: 41,
        width: 30,
        layers: 2,
        heads: 3,
        kv_heads: 1,
        head_dim: 10,
        feed_forward: 35,
        sequence_length: 64,
        batch_size: 1,
        max_positions: 64,
        norm_eps: 1e-6,
        rope_theta: 500_000.0,
        rope_scaling: RopeScaling::None,
        window: None,
        tied: true,
        initializer_range: 0.02,
    };
    assert_eq!(config, expected);
}

#[test]
fn theta_is_where_version_5_writes_it_before_where_version_4_does() {
    let mut object: Value = serde_json::from_str(VERSION_4).unwrap();
    assert_eq!(read(&object.to_string()).unwrap().rope_theta, 100_000.0);
    object["rope_parameters"] = json!({ "rope_type": "default", "rope_theta": 7e6 });
    assert_eq!(read(&object.to_string()).unwrap().rope_theta, 7e6);
    object["rope_theta"] = Value::Null;
    assert_eq!(read(&object.to_string()).unwrap().rope_theta, 7e6);
}

/// Expected values are from Transformers 5.24 for the same keys. Transformers 4 reads only
/// `rope_scaling`.
#[test]
fn rope_scaling_goes_before_rope_parameters_unless_it_is_empty() {
    let scaling = json!({ "type": "linear", "factor": 4.0 });
    let parameters = json!({ "rope_type": "linear", "factor": 2.0, "rope_theta": 5.0 });
    let with_theta = json!({ "type": "linear", "factor": 4.0, "rope_theta": 9.0 });
    for (old, new, theta, factor) in [
        (&scaling, &parameters, 7.0, 4.0),
        (&with_theta, &parameters, 9.0, 4.0),
        (&with_theta, &Value::Null, 9.0, 4.0),
        (&json!({}), &parameters, 5.0, 2.0),
        (&Value::Null, &parameters, 5.0, 2.0),
        (&scaling, &json!({ "rope_type": "yarn" }), 7.0, 4.0),
    ] {
        let mut object: Value = serde_json::from_str(VERSION_4).unwrap();
        (object["rope_scaling"], object["rope_parameters"]) = (old.clone(), new.clone());
        object["rope_theta"] = 7.0.into();
        let read = read(&object.to_string()).unwrap();
        let expected = (theta, RopeScaling::Linear(factor));
        assert_eq!((read.rope_theta, read.rope_scaling), expected, "{old} {new}");
    }
    let mut object: Value = serde_json::from_str(VERSION_4).unwrap();
    object["rope_parameters"] = json!({});
    assert_eq!(read(&object.to_string()).unwrap().rope_theta, 100_000.0);
}

/// Returns SmolLM2's config, which has 30 layers, as one of `family` with `keys` added.
fn with_keys(family: Family, keys: &Value) -> Result<ModelConfig, ModelError> {
    let mut object: Value = serde_json::from_str(VERSION_4).unwrap();
    object["model_type"] = family.model_type().into();
    object["architectures"] = json!([family.class()]);
    object.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    read(&object.to_string())
}

#[test]
fn a_qwen_has_a_window_where_a_layer_of_it_has_one() {
    let full = vec!["full_attention"; 30];
    let mixed = [&full[1..], &["sliding_attention"]].concat();
    for (keys, windowed) in [
        (json!({}), false),
        (json!({ "use_sliding_window": false, "max_window_layers": 0 }), false),
        (json!({ "use_sliding_window": false, "layer_types": mixed }), false),
        (json!({ "use_sliding_window": true }), true),
        (json!({ "use_sliding_window": true, "max_window_layers": 29 }), true),
        (json!({ "use_sliding_window": true, "max_window_layers": 30 }), false),
        (json!({ "use_sliding_window": true, "max_window_layers": 30, "layer_types": mixed }), true),
        (json!({ "use_sliding_window": true, "max_window_layers": 0, "layer_types": full }), false),
    ] {
        for family in [Family::Qwen2, Family::Qwen3] {
            let window = |keys: &Value| with_keys(family, keys).unwrap().window;
            assert_eq!(window(&keys), windowed.then_some(4096), "{keys}");
            for (stated, expected) in [(json!(100), windowed.then_some(100)), (Value::Null, None)] {
                let mut keys = keys.clone();
                keys["sliding_window"] = stated;
                assert_eq!(window(&keys), expected, "{keys}");
            }
        }
    }
}

/// Transformers reads layer types only in Qwen2 and Qwen3.
#[test]
fn a_mistral_has_its_window_in_all_layers_and_a_llama_none() {
    let full = json!(vec!["full_attention"; 30]);
    for types in [Value::Null, full, json!(vec!["sliding_attention"; 30]), json!(["chunked_attention"])] {
        let keys = json!({ "layer_types": types });
        assert_eq!(with_keys(Family::Mistral, &keys).unwrap().window, Some(4096), "{keys}");
        assert_eq!(with_keys(Family::Llama, &keys).unwrap().window, None, "{keys}");
    }
}

#[test]
fn heads_need_not_divide_the_width_but_in_a_llama() {
    let mut object: Value = serde_json::from_str(VERSION_4).unwrap();
    (object["num_attention_heads"], object["num_key_value_heads"]) = (7.into(), 7.into());
    object["head_dim"] = 64.into();
    assert!(read(&object.to_string()).unwrap_err().to_string().contains("in a Llama `heads` must divide"));
    for family in &Family::ALL[1..] {
        object["model_type"] = family.model_type().into();
        object["architectures"] = json!([family.class()]);
        let config = read(&object.to_string()).unwrap();
        assert_eq!((config.width, config.heads, config.head_dim), (576, 7, 64), "{family:?}");
    }
    // If the head size is omitted, it is rounded down.
    object["head_dim"] = Value::Null;
    object["model_type"] = "mistral".into();
    object["architectures"] = Value::Null;
    assert_eq!(read(&object.to_string()).unwrap().head_dim, 82);
}

/// Expected values are from Transformers 5.24, whose Mistral refuses null. Version 4's does not.
#[test]
fn key_value_heads_that_are_left_out_are_the_familys_and_null_means_the_query_heads() {
    let families = [(Family::Llama, 64), (Family::Mistral, 8), (Family::Qwen2, 32), (Family::Qwen3, 32)];
    for (family, left_out) in families {
        let mut object: Value = serde_json::from_str(VERSION_4).unwrap();
        (object["num_attention_heads"], object["num_key_value_heads"]) = (64.into(), Value::Null);
        object["hidden_size"] = 640.into();
        object["model_type"] = family.model_type().into();
        object["architectures"] = json!([family.class()]);
        assert_eq!(read(&object.to_string()).unwrap().kv_heads, 64, "{family:?}");
        object.as_object_mut().unwrap().remove("num_key_value_heads");
        assert_eq!(read(&object.to_string()).unwrap().kv_heads, left_out, "{family:?}");
    }
}

#[test]
fn what_is_written() {
    let config = ModelConfig::preset("smollm2-135m").unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&config.to_hugging_face()).unwrap());
}

#[test]
fn what_the_model_does_not_do_is_refused() {
    let yarn = json!({ "rope_type": "yarn", "factor": 4.0 });
    let llama3 = json!({ "rope_type": "llama3", "rope_theta": 500000.0 });
    let errors = [
        refused("rope_scaling", yarn),
        refused("rope_parameters", llama3),
        refused("rope_scaling", json!({ "factor": 2.0 })),
        refused("attention_bias", json!(true)),
        refused("mlp_bias", json!(true)),
        refused("is_causal", json!(false)),
        refused("hidden_act", json!("gelu")),
        refused("model_type", json!("mistral")),
        refused("model_type", json!("gemma2")),
        refused("architectures", json!(["LlamaForSequenceClassification"])),
        with_keys(Family::Qwen2, &json!({ "layer_types": ["chunked_attention"] })).unwrap_err().to_string(),
        refused("quantization_config", json!({ "bits": 4 })),
        refused("hidden_size", json!("wide")),
        refused("num_hidden_layers", json!(-1)),
        refused("rope_theta", json!([1])),
        refused("initializer_range", json!("small")),
        refused("tie_word_embeddings", json!(1)),
        refused("vocab_size", Value::Null),
        refused("num_attention_heads", json!(7)),
        read("[1, 2").unwrap_err().to_string(),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_is_read_back(
        (kv_heads, group, half_head, feed_forward) in (1usize..5, 1usize..5, 1usize..70, 1usize..5000),
        (layers, vocabulary, times, max_positions) in (1usize..100, 1usize..200_000, 1usize..9, 1usize..9000),
        (norm_eps, rope_theta, initializer_range) in (1e-8f32..1e-3, 1f32..1e7, 0f64..1.0),
        tied: bool,
        windowed: bool,
        family in prop::sample::select(Family::ALL.to_vec()),
        rope_scaling in prop::sample::select(vec![
            RopeScaling::None,
            RopeScaling::Linear(4.0),
            RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, positions: 8192 },
        ]),
    ) {
        let heads = kv_heads * group;
        let config = ModelConfig {
            name: "m".into(), family, rope_scaling,
            window: (windowed && family != Family::Llama).then_some(max_positions),
            vocabulary, width: heads * times, layers, heads, kv_heads, head_dim: 2 * half_head, feed_forward,
            sequence_length: max_positions.min(512), batch_size: 1, max_positions, norm_eps, rope_theta, tied,
            initializer_range,
        };
        prop_assert_eq!(read(&config.to_hugging_face().to_string()).unwrap(), config);
    }
}
