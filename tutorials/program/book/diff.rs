//! The changes from one stage's source to the next, item by item and hunk by hunk.

use super::code;
use similar::{Algorithm, ChangeTag, capture_diff_slices};
use std::path::Path;
use trainer::{Failure, Result};

/// Unchanged lines around a change that belong to its hunk, as in `diff -u`.
const CONTEXT: usize = 3;

/// Returns the hunks between two stages' items, each after its sentence from `old`:
/// `diff: zero1 zero2`.
///
/// A hunk without a sentence, or a sentence without a hunk, is a problem.
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
        let hunks = hunks(changes(from, to));
        let count = hunks.len();
        for (index, hunk) in hunks.into_iter().enumerate() {
            let title = title(&name, index, count);
            let sentence = sentence(old, &title);
            if sentence.is_empty() {
                problems.push(format!("diff: {arguments}: {title} changes and no sentence says how"));
            }
            out.push(String::new());
            out.push(format!("**{title}** {sentence}").trim_end().to_string());
            out.extend([String::new(), "```diff".to_string()]);
            out.extend(hunk);
            out.push("```".to_string());
            shown.push(title);
        }
    }
    out.push(String::new());
    let orphans =
        old.iter().filter_map(|line| named(line)).filter(|(title, _)| !shown.iter().any(|s| s == title));
    problems.extend(orphans.map(|(title, _)| format!("diff: {arguments}: {title} does not change")));
    Ok(out)
}

/// Returns the title of a hunk: the item's name, and the hunk's number if the item has several.
fn title(name: &str, index: usize, count: usize) -> String {
    match count {
        1 => format!("`{name}`"),
        _ => format!("`{name}`, {} of {count}", index + 1),
    }
}

/// Returns the title and the sentence of a line that introduces a hunk.
fn named(line: &str) -> Option<(&str, &str)> {
    let (title, sentence) = line.strip_prefix("**")?.split_once("**")?;
    title.starts_with('`').then_some((title, sentence.trim()))
}

fn sentence(old: &[&str], title: &str) -> String {
    old.iter()
        .filter_map(|line| named(line))
        .find(|(t, _)| *t == title)
        .map_or_else(String::new, |(_, s)| s.into())
}

/// An item and its lines.
type Part = (String, Vec<String>);

/// Returns a stage's source in order: its documentation (`//!`), modules and imports (`use`), then
/// the items: types, constants and functions, with those in impl blocks as separate items. The
/// stage's own name is replaced by `Self`.
fn parts(text: &str) -> Vec<Part> {
    let own =
        text.lines().find_map(|line| line.strip_prefix("pub struct ")?.strip_suffix(" {")).unwrap_or("Self");
    let text = text.replace(own, "Self");
    let names = text.lines().filter_map(item_name);
    let documentation = text.lines().filter(|line| line.starts_with("//!")).map(String::from).collect();
    let mut parts: Vec<Part> = vec![("//!".into(), documentation)];
    let imports = |line: &&str| line.starts_with("use ") || line.starts_with("pub mod ");
    let begins = |line: &&str| line.starts_with("///") || line.starts_with("pub ") && !imports(line);
    let imports = text.lines().skip_while(|line| !imports(line)).take_while(|line| !begins(line));
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

/// Returns all names in the order of the later source. Removed ones keep their place.
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

/// Returns every line of both sides with its sign. Common lines appear once.
fn changes(from: &[String], to: &[String]) -> Vec<String> {
    let ops = capture_diff_slices(Algorithm::Myers, from, to);
    let changes = ops.iter().flat_map(|op| op.iter_changes(from, to));
    let line = |tag, text: &String| match tag {
        ChangeTag::Equal => format!("  {text}").trim_end().to_string(),
        sign => format!("{sign} {text}"),
    };
    changes.map(|change| line(change.tag(), change.value_ref())).collect()
}

/// Splits a diff wherever the unchanged lines between two changes are too many for one hunk.
fn hunks(diff: Vec<String>) -> Vec<Vec<String>> {
    let changed = |line: &String| line.starts_with(['+', '-']);
    let (mut hunks, mut hunk, mut unchanged) = (Vec::new(), Vec::<String>::new(), 0);
    for line in diff {
        if changed(&line) && unchanged > 2 * CONTEXT && hunk.len() > unchanged {
            let next = hunk.split_off(hunk.len() - unchanged + CONTEXT);
            hunks.push(std::mem::replace(&mut hunk, next));
        }
        unchanged = if changed(&line) { 0 } else { unchanged + 1 };
        hunk.push(line);
    }
    hunks.push(hunk);
    hunks
}

#[cfg(test)]
mod tests;
