//! What Accelerate writes is read, and the rest is refused by line.

use super::*;
use crate::hjson;

#[test]
fn reads_what_accelerate_writes() {
    let text = "---\ncompute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  # a comment\n  zero_stage: 2  # ZeRO-2\n\n  \
                reduce_bucket_size: 5e8\n  path: '/a #b'\n  url: http://x#y\nmixed_precision: 'no'\ntpu_env: []\n\
                fsdp_config: {}\nbetas: [0.9, 1]\nempty:\ndebug: false\n";
    let expected = r#"{"compute_environment": "LOCAL_MACHINE", "deepspeed_config": {"zero_stage": 2,
            "reduce_bucket_size": 5e8, "path": "/a #b", "url": "http://x#y"}, "mixed_precision": "no", "tpu_env": [],
            "fsdp_config": {}, "betas": [0.9, 1], "empty": null, "debug": false}"#;
    assert_eq!(read(text), hjson::parse(expected).unwrap());
    let lists = "a:\n- x\n- 'y: z'\nb:\n  c:\n    - 1\n  d: 2\n";
    let expected = r#"{"a": ["x", "y: z"], "b": {"c": [1], "d": 2}}"#;
    assert_eq!(read(lists), hjson::parse(expected).unwrap());
    assert_eq!(read(""), Node::Section(vec![]));
    assert_eq!(read("  a: 1\n  b: 2"), hjson::parse(r#"{"a": 1, "b": 2}"#).unwrap());
}

fn read(text: &str) -> Node {
    let (node, repeated) = parse(text).unwrap();
    assert_eq!(repeated, Vec::<String>::new());
    node
}

#[test]
fn the_last_of_two_counts_and_is_said() {
    let (node, repeated) = parse("a:\n  b: 1\n  c: 2\n  b: 3\n").unwrap();
    assert_eq!(node, hjson::parse(r#"{"a": {"c": 2, "b": 3}}"#).unwrap());
    assert_eq!(repeated, ["line 4: b is given twice: the last counts"]);
}

#[test]
fn refuses_the_rest_by_line() {
    let deep: String = (0..20).map(|depth| format!("{}k:\n", " ".repeat(depth))).collect();
    for (text, words) in [
        ("a: 1\n  b: 2", ["line 1", "both a value"]),
        ("a:\n  b: 1\n   c: 2", ["line 2", "both a value"]),
        ("a:\n   b: 1\n  c: 2", ["line 3", "more"]),
        ("  a: 1\nb: 2", ["line 2", "less"]),
        ("- a", ["line 1", "no key"]),
        ("a:\n- b: 1", ["line 2", "sections in lists"]),
        ("a:\n  - b\n c: 1", ["line 3", "more than"]),
        ("a: &x 1", ["line 1", "not read"]),
        ("a: |\n  text", ["line 2", "key: value"]),
        ("a: {b: 1}", ["line 1", "not read"]),
        ("\ta: 1", ["line 1", "tab"]),
        ("just words", ["line 1", "key: value"]),
        (deep.as_str(), ["nested", "line 16"]),
    ] {
        let error = parse(text).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{text:?}: {error}");
    }
}
