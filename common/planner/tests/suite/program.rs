//! The program: its exit codes, and the files that it reads.

use planner::cli::run;
use std::fs::{self, File};
use std::process::Command;

#[test]
fn output_to_a_full_disk_is_an_error() {
    let printed = |place: &str| {
        let out = File::options().write(true).open(place).unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_planner")).args(["--model", "tiny"]).stdout(out).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(printed("/dev/null"), (Some(0), String::new()));
    if cfg!(target_os = "linux") {
        let (code, said) = printed("/dev/full");
        assert!(code == Some(1) && said.contains("the disk is full"), "{said}");
    }
}

/// A `config.json` whose arithmetic this project does not compute is planned as one that it does:
/// no byte depends on it.
#[test]
fn the_path_of_a_config_is_a_model_and_arithmetic_is_not_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = r#""model_type": "mistral", "vocab_size": 64, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64"#;
    let unsupported = r#""rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "hidden_act": "gelu",
        "attention_dropout": 0.1, "sliding_window": 4"#;
    let planned = |name: &str, further: &str| {
        let (subdirectory, contents) = (dir.path().join(name), format!("{{{sizes}{further}}}"));
        fs::create_dir(&subdirectory).unwrap();
        let file = subdirectory.join("config.json");
        fs::write(&file, contents).unwrap();
        let json = |path: &std::path::Path| run(["planner", "--json", "--model", path.to_str().unwrap()]);
        assert_eq!(json(&file).unwrap().lines().count(), json(&subdirectory).unwrap().lines().count());
        run(["planner", "--gpus", "4", "--model", file.to_str().unwrap()]).unwrap()
    };
    let (plain, other) = (planned("a", ""), planned("b", &format!(", {unsupported}")));
    assert_eq!(plain.lines().skip(1).collect::<Vec<_>>(), other.lines().skip(1).collect::<Vec<_>>());
}

/// As of every other program: completions and a manual that know the flags, and a version with the
/// commit of the sources.
#[test]
fn shells_get_completions_and_a_manual() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(["planner", "completions", shell]).unwrap();
        assert!(script.contains("offload-optimizer"), "{shell}");
    }
    let manual = run(["planner", "man"]).unwrap();
    for word in [".TH planner 1", "\\-\\-offload\\-optimizer", ".SH COMPLETIONS"] {
        assert!(manual.contains(word), "{word:?} is missing");
    }
    let mixed = run(["planner", "--model", "tiny", "man"]).unwrap_err().to_string();
    assert!(mixed.contains("'man'") && mixed.contains("--model"), "{mixed}");
    let version = run(["planner", "--version"]).unwrap_err().to_string();
    assert_eq!(version.trim(), concat!("planner ", env!("VERSION")));
}
