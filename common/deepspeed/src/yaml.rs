//! Reads the part of YAML that Accelerate writes: sections by indentation, plain and quoted
//! scalars, and lists of these.
//!
//! Anything else (sections in lists, anchors, tags, text over several lines) is an error that names
//! the line. A complete YAML crate would cost several seconds of a cold build for files of twenty
//! lines.

use crate::node::Node;
use events::say::shortened;

/// The deepest nesting of sections.
const DEEPEST: usize = 16;

/// The key of a line that is an item of a list.
const ITEM: &str = "-";

/// A line with a key.
struct Line<'a> {
    number: usize,
    indent: usize,
    key: String,
    value: &'a str,
}

/// Reads `text`. Returns a sentence for each repeated key: as in Accelerate, the last one counts.
pub(crate) fn parse(text: &str) -> Result<(Node, Vec<String>), String> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(line) = read_line(index + 1, line)? {
            lines.push(line);
        }
    }
    let mut lines = lines.as_slice();
    let indent = lines.first().map_or(0, |line| line.indent);
    let mut repeated = Vec::new();
    let node = section(&mut lines, indent, 1, &mut repeated)?;
    match lines.first() {
        None => Ok((node, repeated)),
        Some(line) => {
            Err(format!("line {}: {} is indented less than what precedes it", line.number, line.key))
        }
    }
}

/// Reads the section at `indent` that `lines` starts with, and removes its lines.
fn section(
    lines: &mut &[Line<'_>],
    indent: usize,
    depth: usize,
    repeated: &mut Vec<String>,
) -> Result<Node, String> {
    let mut entries: Vec<(String, Node)> = Vec::new();
    while let Some((line, rest)) = lines.split_first().filter(|(line, _)| line.indent >= indent) {
        let fail = |what: &str| Err(format!("line {}: {} {what}", line.number, shortened(&line.key)));
        if line.indent > indent {
            return fail("is indented more than its neighbours");
        }
        if line.key == ITEM {
            return fail("begins an item of a list that has no key");
        }
        if let Some(first) = entries.iter().position(|(key, _)| *key == line.key) {
            entries.remove(first);
            let (number, key) = (line.number, shortened(&line.key));
            repeated.push(format!("line {number}: {key} is given twice: the last counts"));
        }
        *lines = rest;
        let inner = rest.first().map(|next| next.indent).filter(|&next| next > indent);
        let value = match inner {
            _ if line.value.is_empty() && rest.first().is_some_and(|next| is_item(next, line.indent)) => {
                items(lines)?
            }
            Some(_) if !line.value.is_empty() => return fail("has both a value and a section"),
            Some(_) if depth == DEEPEST => return fail("is nested too deeply"),
            Some(inner) => section(lines, inner, depth + 1, repeated)?,
            None => scalar(line.value).map_err(|what| format!("line {}: {what}", line.number))?,
        };
        entries.push((line.key.clone(), value));
    }
    Ok(Node::Section(entries))
}

/// True if `line` is an item of the list of a key that is indented by `indent`.
fn is_item(line: &Line<'_>, indent: usize) -> bool {
    line.key == ITEM && line.indent >= indent
}

/// Reads the list that `lines` starts with, one item a line, and removes its lines.
fn items(lines: &mut &[Line<'_>]) -> Result<Node, String> {
    let indent = lines.first().map_or(0, |line| line.indent);
    let end = lines.iter().position(|line| line.key != ITEM || line.indent != indent).unwrap_or(lines.len());
    let (items, rest) = lines.split_at(end);
    *lines = rest;
    let item = |line: &Line<'_>| scalar(line.value).map_err(|what| format!("line {}: {what}", line.number));
    items.iter().map(item).collect::<Result<_, _>>().map(Node::List)
}

/// Reads `key: value`; `None` if the line is blank, a comment or a document's start.
fn read_line(number: usize, line: &str) -> Result<Option<Line<'_>>, String> {
    let content = without_comment(line).trim_end();
    let body = content.trim_start_matches(' ');
    if body.is_empty() || body == "---" {
        return Ok(None);
    }
    let fail = |what: &str| Err(format!("line {number}: {what}"));
    if body.starts_with('\t') {
        return fail("a tab indents it: YAML indents with spaces");
    }
    let indent = content.len() - body.len();
    if let Some(value) = body.strip_prefix("- ") {
        return match split_key(value) {
            Some(_) if !value.starts_with(['"', '\'']) => fail("sections in lists are not read"),
            _ => Ok(Some(Line { number, indent, key: ITEM.into(), value })),
        };
    }
    let Some((key, value)) = split_key(body) else { return fail("not of the form `key: value`") };
    let key = match scalar(key) {
        Ok(Node::Text(key)) => key,
        Ok(_) => key.to_owned(),
        Err(what) => return fail(&what),
    };
    Ok(Some(Line { number, indent, key, value: value.trim() }))
}

/// Splits at the colon that ends the key: it is the last character or followed by a space.
fn split_key(body: &str) -> Option<(&str, &str)> {
    if let Some((key, rest)) = body.split_once(": ") {
        return Some((key.trim_end(), rest));
    }
    body.strip_suffix(':').map(|key| (key.trim_end(), ""))
}

/// Cuts the line at a `#` that is not inside quotes and follows a space or nothing.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '#' && before.is_whitespace() => return &line[..at],
            None if (c == '"' || c == '\'') && !before.is_alphanumeric() => quote = Some(c),
            _ => {}
        }
        before = c;
    }
    line
}

fn scalar(text: &str) -> Result<Node, String> {
    let text = text.trim();
    let inside = |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    if let Some(text) = inside('"', '"').or_else(|| inside('\'', '\'')) {
        return Ok(Node::text(text));
    }
    if let Some(items) = inside('[', ']') {
        let items = items.split(',').map(str::trim).filter(|item| !item.is_empty());
        return items.map(plain).collect::<Result<_, _>>().map(Node::List);
    }
    if inside('{', '}').is_some_and(|inner| inner.trim().is_empty()) {
        return Ok(Node::Section(Vec::new()));
    }
    plain(text)
}

fn plain(text: &str) -> Result<Node, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Node::Null,
        "true" | "True" | "TRUE" => Node::Flag(true),
        "false" | "False" | "FALSE" => Node::Flag(false),
        _ if text.starts_with(['&', '*', '!', '|', '>', '%', '@', '`', '{', '[', '"', '\'']) => {
            return Err(format!(
                "{} is YAML that is not read here: write plain values, and sections line by line, indented",
                shortened(text)
            ));
        }
        _ => number(text).map_or_else(|| Node::text(text), Node::Number),
    })
}

fn number(text: &str) -> Option<f64> {
    let starts = text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+' || c == '.');
    starts.then(|| text.parse::<f64>().ok()).flatten().filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests;
