//! What changes from one stage's source to the next, item by item.

use super::code;
use std::path::Path;
use trainer::{Failure, Result};

/// Diffs of two stages' items, each after the sentence that `old` has for it: `diff: zero1 zero2`.
///
/// An item without a sentence, and a sentence without an item, is a problem.
pub(super) fn blocks(
    root: &Path,
    arguments: &str,
    old: &[&str],
    problems: &mut Vec<String>,
) -> Result<Vec<String>> {
    let (before, after) = arguments
        .split_once(' ')
        .ok_or_else(|| Failure::run(format!("diff: {arguments}: name two stages")))?;
    let source = |stage: &str| code::read(&root.join(stage).join("src/lib.rs"));
    let (before, after) = (parts(&source(before)?), parts(&source(after)?));
    let mut out = Vec::new();
    let mut shown = Vec::new();
    for name in names(&before, &after) {
        let (from, to) = (lines_of(&before, &name), lines_of(&after, &name));
        if from == to {
            continue;
        }
        let sentence = sentence(old, &name);
        if sentence.is_empty() {
            problems.push(format!("diff: {arguments}: `{name}` changes and no sentence says how"));
        }
        out.push(String::new());
        out.push(format!("**`{name}`** {sentence}").trim_end().to_string());
        out.extend([String::new(), "```diff".to_string()]);
        out.extend(changes(from, to));
        out.push("```".to_string());
        shown.push(name);
    }
    out.push(String::new());
    let orphans =
        old.iter().filter_map(|line| named(line)).filter(|(name, _)| !shown.iter().any(|s| s == name));
    problems.extend(orphans.map(|(name, _)| format!("diff: {arguments}: `{name}` does not change")));
    Ok(out)
}

/// The name and the sentence of a line that introduces a diff.
fn named(line: &str) -> Option<(&str, &str)> {
    let (name, sentence) = line.strip_prefix("**`")?.split_once("`**")?;
    Some((name, sentence.trim()))
}

fn sentence(old: &[&str], name: &str) -> String {
    old.iter()
        .filter_map(|line| named(line))
        .find(|(n, _)| *n == name)
        .map_or_else(String::new, |(_, s)| s.into())
}

/// An item and its lines.
type Part = (String, Vec<String>);

/// A stage's source in order: the module's documentation (`//!`), the imports (`use`), then the items: types, constants and
/// functions, those of impl blocks on their own. The stage's own name is replaced by `Self`.
fn parts(text: &str) -> Vec<Part> {
    let own =
        text.lines().find_map(|line| line.strip_prefix("pub struct ")?.strip_suffix(" {")).unwrap_or("Self");
    let text = text.replace(own, "Self");
    let names = text.lines().filter_map(item_name);
    let documentation = text.lines().filter(|line| line.starts_with("//!")).map(String::from).collect();
    let mut parts: Vec<Part> = vec![("//!".into(), documentation)];
    let imports = text.lines().skip_while(|line| !line.starts_with("use "));
    let imports = imports.take_while(|line| !line.starts_with("///") && !line.starts_with("pub "));
    parts.push(("use".into(), imports.filter(|line| !line.is_empty()).map(String::from).collect()));
    for name in names {
        if let (Some(lines), false) = (code::item(&text, &name), parts.iter().any(|(n, _)| *n == name)) {
            parts.push((name, lines));
        }
    }
    parts
}

fn item_name(line: &str) -> Option<String> {
    let indent = code::indentation(line);
    if indent != 0 && indent != 4 {
        return None;
    }
    let bare = line.trim_start();
    let bare = bare.strip_prefix("pub ").unwrap_or(bare);
    let word = ["struct ", "fn ", "const "].into_iter().find(|word| bare.starts_with(word))?;
    let name: String = bare[word.len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    Some(format!("{word}{name}"))
}

fn lines_of<'a>(parts: &'a [Part], name: &str) -> &'a [String] {
    parts.iter().find(|(n, _)| n == name).map_or(&[], |(_, lines)| lines)
}

/// All names, in the order of the later source; what is gone comes where it was.
fn names(before: &[Part], after: &[Part]) -> Vec<String> {
    let mut names: Vec<String> = after.iter().map(|(name, _)| name.clone()).collect();
    for (index, (name, _)) in before.iter().enumerate() {
        if !names.contains(name) {
            let previous = before[..index].iter().rev().find_map(|(n, _)| names.iter().position(|m| m == n));
            names.insert(previous.map_or(0, |at| at + 1), name.clone());
        }
    }
    names
}

/// A diff with every line, by the longest common subsequence.
fn changes(from: &[String], to: &[String]) -> Vec<String> {
    let mut common = vec![vec![0usize; to.len() + 1]; from.len() + 1];
    for i in (0..from.len()).rev() {
        for j in (0..to.len()).rev() {
            common[i][j] = if from[i] == to[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < from.len() || j < to.len() {
        if i < from.len() && j < to.len() && from[i] == to[j] {
            out.push(format!("  {}", from[i]).trim_end().to_string());
            (i, j) = (i + 1, j + 1);
        } else if j == to.len() || i < from.len() && common[i + 1][j] >= common[i][j + 1] {
            out.push(format!("- {}", from[i]));
            i += 1;
        } else {
            out.push(format!("+ {}", to[j]));
            j += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever stands in the sources stands in a part: nothing changes unseen.
    #[test]
    fn every_line_of_a_stage_is_in_a_part() {
        for stage in ["zero0-ddp", "zero1", "zero2", "zero3"] {
            let text = code::read(&crate::book::root().join(stage).join("src/lib.rs")).unwrap();
            let parts = parts(&text);
            let told: usize =
                parts.iter().map(|(_, lines)| lines.iter().filter(|l| !l.is_empty()).count()).sum();
            // What is left opens and closes impl blocks.
            let is_frame = |line: &&str| line.starts_with("impl ") || **line == *"}";
            let frames = text.lines().filter(is_frame).count();
            let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
            assert_eq!(told + frames - 1, lines, "{stage}: the type's own closing bracket is in its part");
        }
    }

    #[test]
    fn a_diff_gives_back_both_sides() {
        let lines = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let (from, to) = (lines("abcde"), lines("axcdy"));
        let diff = changes(&from, &to);
        let side = |sign: &str| -> Vec<String> {
            diff.iter()
                .filter(|l| l.starts_with(sign) || l.starts_with("  "))
                .map(|l| l[2..].into())
                .collect()
        };
        assert_eq!((side("- "), side("+ ")), (from, to));
    }
}
