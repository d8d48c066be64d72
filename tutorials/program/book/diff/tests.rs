//! Hunks, and the sentences that belong to them.

use super::*;

/// Splits a diff that is given as the signs of its lines, with a dot for an unchanged one.
fn cut(signs: &str) -> Vec<String> {
    let lines = signs.chars().map(|sign| sign.to_string().replace('.', "  same"));
    let signs = |hunk: Vec<String>| hunk.concat().replace("  same", ".");
    hunks(lines.collect()).into_iter().map(signs).collect()
}

#[test]
fn changes_far_from_each_other_are_two_hunks_and_no_line_is_lost() {
    assert_eq!(cut("........+-...."), ["........+-...."]);
    assert_eq!(cut("+......+"), ["+......+"]);
    assert_eq!(cut(".-.......+."), [".-...", "....+."]);
    assert_eq!(cut("+.......+........-"), ["+...", "....+...", ".....-"]);
}

#[test]
fn a_hunk_without_a_sentence_and_a_sentence_without_a_hunk_are_problems() {
    let root = tempfile::tempdir().unwrap();
    let stage = |name: &str, first: u8, last: u8| {
        let body = "    0;\n".repeat(7);
        let text =
            format!("//! {name}.\n\npub struct A {{\n}}\n\nfn f() {{\n    {first};\n{body}    {last};\n}}\n");
        std::fs::create_dir_all(root.path().join(name).join("src")).unwrap();
        std::fs::write(root.path().join(name).join("src/lib.rs"), text).unwrap();
    };
    stage("one", 1, 2);
    stage("two", 3, 4);
    let said = |old: &[&str]| {
        let mut problems = Vec::new();
        let lines = blocks(root.path(), "one two", old, &mut problems).unwrap();
        (lines, problems)
    };
    let told = ["**`//!`** Name.", "**`fn f`, 1 of 2** Begins.", "**`fn f`, 2 of 2** Ends."];
    let (lines, problems) = said(&told);
    assert!(problems.is_empty() && told.iter().all(|line| lines.iter().any(|l| l == line)), "{lines:?}");
    assert_eq!(said(&told[..2]).1, ["diff: one two: `fn f`, 2 of 2 changes and no sentence says how"]);
    let (_, problems) = said(&[told[0], told[1], told[2], "**`fn f`** Whole.", "**aside** no title"]);
    assert_eq!(problems, ["diff: one two: `fn f` does not change"]);
}

/// Every line of a source belongs to a part, so that no change can be missed.
#[test]
fn every_line_of_a_stage_is_in_a_part() {
    for stage in ["zero0-ddp", "zero1", "zero2", "zero3"] {
        let text = code::read(&crate::workspace::root().join(stage).join("src/lib.rs")).unwrap();
        let parts = parts(&text);
        let told: usize = parts.iter().map(|(_, lines)| lines.iter().filter(|l| !l.is_empty()).count()).sum();
        // The other lines open and close impl blocks.
        let is_frame = |line: &&str| line.starts_with("impl ") || **line == *"}";
        let frames = text.lines().filter(is_frame).count();
        let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
        assert_eq!(told + frames - 1, lines, "{stage}: the type's own closing bracket is in its part");
    }
}
