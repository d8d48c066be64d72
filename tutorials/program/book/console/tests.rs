//! Outputs as a block shows them, and commands whose exit status is an error.

use super::*;

#[test]
fn stretches_are_shown_with_what_is_left_out_marked() {
    let lines: Vec<String> = ["a", "b", "c", "d"].map(String::from).into();
    assert_eq!(shown(&lines, Some("b .. c")).unwrap(), ["…", "b", "c", "…"]);
    assert_eq!(shown(&lines, Some("a; d")).unwrap(), ["a", "…", "d"]);
    for (show, said) in [("x", "is not"), ("b; a", "above"), ("b .. x", "is not")] {
        assert!(shown(&lines, Some(show)).unwrap_err().contains(said), "{show}");
    }
}

#[test]
fn a_pattern_that_matches_two_lines_is_refused() {
    let lines: Vec<String> =
        ["918,656 parameters", "parameters  459,328", "end", "end"].map(String::from).into();
    for show in ["parameters", "918 .. end"] {
        assert!(shown(&lines, Some(show)).unwrap_err().contains("2 times"), "{show}");
    }
    assert_eq!(shown(&lines, Some("parameters  ")).unwrap()[1], lines[1]);
}

/// Returns a console whose programs are all this shell script. A shell reads it, since a file
/// that is still open for writing cannot be executed.
fn console(script: &str) -> Console {
    let root = tempfile::tempdir().unwrap();
    let console = Console::new(root.path(), "/bin/sh".into()).unwrap();
    // The command is `sh program PACKAGE …`.
    std::fs::write(console.folder.path().join("program"), script).unwrap();
    console
}

fn fresh(script: &str, old: &[&str], options: &[(&'static str, &'static str)]) -> Result<Vec<String>> {
    console(script).block(old, &options.iter().copied().collect())
}

#[test]
fn what_a_command_says_now_takes_the_place_of_what_it_said() {
    let command = "$ cargo run -p zero3 -- --steps 2";
    let said = "1234 tokens/s, loss 5.4321, peak 918,656, aaaaaaaaaaaaaaaa";
    let block = fresh(&format!("echo '{said}'"), &[command, "nothing of that"], &[]).unwrap();
    assert_eq!(block, [command, "… tokens/s, loss 5.4321, peak 918,656, aaaaaaaaaaaaaaaa"]);
    let more = fresh("echo one; echo two", &[command, "one"], &[]).unwrap();
    assert_eq!(more, [command, "one", "two"]);
}

#[test]
fn a_command_must_end_as_the_block_says() {
    let (command, fails) = ("$ cargo run -p zero3", [("fails", "2")]);
    assert!(fresh("exit 0", &[command], &[]).is_ok());
    assert!(fresh("exit 2", &[command], &fails).is_ok());
    for (script, options) in [("exit 1", &[][..]), ("exit 0", &fails), ("exit 1", &fails)] {
        assert!(fresh(script, &[command], options).unwrap_err().to_string().contains("ended with"));
    }
    let background = "$ cargo run -p zero3 &";
    assert!(fresh("exit 0", &[background], &[]).is_ok());
    assert!(fresh("exit 1", &[background], &[]).unwrap_err().to_string().contains("ended with"));
    assert!(fresh("exit 0", &["$ rm -r x"], &[]).unwrap_err().to_string().contains("cargo run"));
}
