//! Finds items of the workspace's sources by name: the name is the marker.
//!
//! The sources are formatted, so an item ends at the first line with its own indentation that
//! closes it. A JSON file is one item, `{`.

use std::path::Path;
use trainer::{Failure, Result};

/// Returns a fenced block with the items that `arguments` name: a file, then items such as
/// `fn step` or `struct Zero3`, separated by commas.
pub(super) fn block(root: &Path, arguments: &str) -> Result<Vec<String>> {
    let (file, names) = arguments
        .split_once(' ')
        .ok_or_else(|| Failure::run(format!("code: {arguments}: name a file and items")))?;
    let text = read(&root.join(file))?;
    let language = if file.ends_with(".json") { "json" } else { "rust" };
    let mut out = vec![format!("```{language}")];
    for (index, name) in names.split(", ").enumerate() {
        let item =
            item(&text, name).ok_or_else(|| Failure::run(format!("code: {file} has no item `{name}`")))?;
        if index > 0 {
            out.push(String::new());
        }
        out.extend(item);
    }
    out.push("```".into());
    Ok(out)
}

/// Maximum number of lines that an item may move before its link is stale. Every edit above moves
/// it.
const NEAR: usize = 20;

/// Returns a link to the line of `file` at which the item `name` begins.
pub(super) fn link(root: &Path, file: &str, name: &str) -> Result<String> {
    let text = read(&root.join(file))?;
    let at = text.lines().position(|line| begins(line, name));
    let at = at.ok_or_else(|| Failure::run(format!("{file} has no item `{name}`")))?;
    Ok(format!("[`{name}`](../../{file}#L{})", at + 1))
}

/// True if two generated places differ only in links to lines near each other.
pub(super) fn alike(old: &[&str], fresh: &[String]) -> bool {
    let near = |(old, fresh): (&str, &str)| {
        let ((a, old), (b, fresh)) = (line_number(old), line_number(fresh));
        old == fresh && a.abs_diff(b) <= NEAR
    };
    let pieces = |(old, fresh): (&&str, &String)| {
        old.split("#L").count() == fresh.split("#L").count()
            && old.split("#L").zip(fresh.split("#L")).all(near)
    };
    old.len() == fresh.len() && old.iter().zip(fresh).all(pieces)
}

/// Splits `text` after the number that it begins with. The number is 0 if there is none.
fn line_number(text: &str) -> (usize, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (text[..digits].parse().unwrap_or(0), &text[digits..])
}

pub(super) fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|e| Failure::run(format!("cannot read {}: {e}", file.display())))
}

/// Returns the lines of the item `name` with its documentation, without its indentation.
pub(super) fn item(text: &str, name: &str) -> Option<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| begins(line, name))?;
    let first = documentation(&lines, at);
    let last = end(&lines, at)?;
    let indent = indentation(lines[at]);
    Some(lines[first..=last].iter().map(|line| line.get(indent..).unwrap_or("").to_string()).collect())
}

fn begins(line: &str, name: &str) -> bool {
    let bare = ["pub(crate) ", "pub(super) ", "pub ", "unsafe "]
        .iter()
        .fold(line.trim_start(), |bare, prefix| bare.strip_prefix(prefix).unwrap_or(bare));
    bare.strip_prefix(name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn documentation(lines: &[&str], at: usize) -> usize {
    let above = lines[..at].iter().rev();
    at - above
        .take_while(|line| line.trim_start().starts_with("///") || line.trim_start().starts_with("#["))
        .count()
}

/// Returns the index of the last line of the item that begins at line `at`.
fn end(lines: &[&str], at: usize) -> Option<usize> {
    let indent = indentation(lines[at]);
    if lines[at].ends_with(';') || lines[at].ends_with("{}") {
        return Some(at);
    }
    if lines[at].ends_with('=') {
        return lines[at..].iter().position(|line| line.ends_with(';')).map(|length| at + length);
    }
    let closes = |line: &&str| indentation(line) == indent && line.trim_start().starts_with(['}', ']', ')']);
    // A `)` or `]` may be followed by the body's brace on the same line.
    let mut from = at + 1;
    loop {
        let found = from + lines[from..].iter().position(closes)?;
        if !lines[found].ends_with('{') {
            return Some(found);
        }
        from = found + 1;
    }
}

pub(super) fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests;
