//! Checks the numbers in the book's sentences. A mark, invisible on the rendered page, names the
//! proof of each number.
//!
//! * `918,656<!--parameters-->`: a line that a program generated for this chapter contains
//!   `parameters` and this number.
//! * `<!--=-->2 × 3 bytes = 6 bytes<!--/-->`: both sides are computed and agree in the digits that
//!   are written.
//! * `6<!--equation-->`: an equation of this chapter contains this number.

use crate::equation::{self, number_length};

/// Units after which even a small number is a quantity.
const UNITS: [&str; 8] = ["kB", "MB", "GB", "TB", "MiB", "GiB", "bytes", "%"];
/// Directives whose lines a program generates.
const MADE: [&str; 6] = ["code", "diff", "table", "predict", "answers", "quiz"];

/// Returns the problems of a chapter's numbers. Its pictures have the text rows `frames`.
pub(super) fn unproven(chapter: &str, frames: &[String]) -> Vec<String> {
    let (sentences, mut made) = divide(chapter);
    made.extend(frames.iter().map(String::as_str));
    let equations = sentences.iter().flat_map(|text| pieces(text)).filter(|(mark, _)| *mark == "=");
    let equations: Vec<&str> = equations.map(|(_, equation)| equation).collect();
    let proven = |name: &str, number: &str, is_share: bool| {
        let same = |(other, rest): (&str, &str)| value(other) == value(number) && (!is_share || share(rest));
        let has = |line: &&str| numbers(line).into_iter().any(same);
        match name {
            "equation" => equations.iter().any(has),
            name => made.iter().filter(|line| line.contains(name)).any(has),
        }
    };
    let mut problems = Vec::new();
    for text in &sentences {
        let mut problem = |what: String| problems.push(format!("{what} in: {text}"));
        let pieces = pieces(text);
        for (index, (mark, piece)) in pieces.iter().enumerate() {
            let next = pieces.get(index + 1);
            if *mark == "=" {
                if let Some(fault) = equation::fault(piece) {
                    problem(format!("{piece} {fault}"));
                }
                continue;
            }
            let mut unmarked = numbers(piece);
            if let Some((name, behind)) = next.filter(|(name, _)| !["=", "/"].contains(name)) {
                match unmarked.pop() {
                    Some((number, "")) if proven(name, number, share(behind)) => {}
                    Some((number, "")) => problem(format!("no made line has {name:?} and {number}")),
                    _ => problem(format!("no number stands before <!--{name}-->")),
                }
            }
            unmarked.retain(|(number, rest)| says_how_much(number, rest));
            unmarked.iter().for_each(|(number, _)| problem(format!("{number} is not marked")));
        }
    }
    problems
}

/// Returns the text split at its marks: each mark, the first one empty, with the text after it.
fn pieces(text: &str) -> Vec<(&str, &str)> {
    let (first, rest) = text.split_once("<!--").unwrap_or((text, ""));
    let marked = rest.split("<!--").filter_map(|piece| piece.split_once("-->"));
    [("", first)].into_iter().chain(marked).collect()
}

/// Returns the paragraphs that a person wrote, without inline code and addresses, and the generated
/// lines.
fn divide(chapter: &str) -> (Vec<String>, Vec<&str>) {
    let (mut own, mut made) = (vec![String::new()], Vec::new());
    let (mut fence, mut place) = (false, false);
    for line in chapter.lines() {
        if let Some(directive) = line.strip_prefix("<!-- ") {
            place = MADE.iter().any(|word| directive.starts_with(&format!("{word}: ")));
            continue;
        }
        let is_fence = line.trim_start().starts_with("```");
        fence ^= is_fence;
        if fence || is_fence || place && !line.starts_with("**`") {
            made.push(line);
            continue;
        }
        let words = without_addresses(&line.split('`').step_by(2).collect::<Vec<_>>().join("`"));
        let is_numbered = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let begins = line.is_empty() || line.starts_with(['*', '-', '|', '#']) || is_numbered;
        match own.last_mut() {
            Some(last) if !begins => *last = format!("{last} {}", words.trim()),
            _ => own.push(words),
        }
    }
    (own, made)
}

/// Returns a line without the addresses of its links.
fn without_addresses(line: &str) -> String {
    let mut pieces = line.split("](");
    let first = pieces.next().unwrap_or_default().to_string();
    let after = |piece: &str| piece.split_once(')').map_or(String::new(), |(_, rest)| rest.into());
    pieces.fold(first, |text, piece| text + "]" + &after(piece))
}

/// Returns the numbers of a text, each with the text after it.
fn numbers(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(|c: char| c.is_ascii_digit()).map(|offset| at + offset) {
        at = start + number_length(&text[start..]);
        let before = text[..start].chars().next_back();
        if !before.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '§') {
            found.push((&text[start..at], &text[at..]));
        }
    }
    found
}

/// Returns a number's bits, which are the same for `49` and `49.00`.
fn value(number: &str) -> u64 {
    number.replace(',', "").parse::<f64>().unwrap_or(f64::NAN).to_bits()
}

/// True if the number before `rest` is a share, which an equal number of bytes does not prove.
fn share(rest: &str) -> bool {
    rest.trim_start().starts_with('%')
}

fn says_how_much(number: &str, rest: &str) -> bool {
    let unit = rest.trim_start().split(|c: char| !c.is_alphabetic() && c != '%').next();
    let is_year = number.len() == 4 && (number.starts_with("19") || number.starts_with("20"));
    number.contains([',', '.']) || number.len() > 3 && !is_year || unit.is_some_and(|u| UNITS.contains(&u))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(own: &str) -> Vec<String> {
        let page = format!("{own}\n\n```console\n$ x\npeak  45.8 MB\nshare  19.5 %\n```\n");
        unproven(&page, &["rank 0  73 %".to_string()])
    }

    #[test]
    fn what_is_marked_and_proven_passes() {
        for fine in [
            "45.8<!--peak--> MB at its peak",
            "19.5<!--share--> % of it, 73<!--rank 0--> % there",
            "four ranks, 2 of them",
            "<!--=-->2 × 22.9 MB = 45.8 MB<!--/-->, and 22.9<!--equation--> MB",
            "so <!--=-->2 ×\n3 = 6<!--/-->",
            "see `--x 12.5`",
            "see [it](https://example.org/1234.5678) and [that](12345.md), 45.8<!--peak--> MB",
            "1. try\n\n   ```\n   x --bytes 12345\n   ```\n",
            "in 2020",
        ] {
            assert_eq!(problems(fine), Vec::<String>::new());
        }
    }

    #[test]
    fn what_is_not_marked_or_not_proven_is_named() {
        for (wrong, said) in [
            ("45.8 MB at its peak", "45.8 is not marked"),
            ("about 7 GB", "7 is not marked"),
            ("[about](https://example.org) 7 GB", "7 is not marked"),
            ("12,345 tokens", "12,345 is not marked"),
            ("2 × 22.9 MB = 45.8 MB", "22.9 is not marked"),
            ("45.9<!--peak--> MB", "has \"peak\" and 45.9"),
            ("45.8<!--share--> MB", "has \"share\" and 45.8"),
            ("45.8<!--peak--> % of it", "has \"peak\" and 45.8"),
            ("22.9<!--equation--> MB", "has \"equation\" and 22.9"),
            ("<!--=-->2 × 22.9 MB = 45.9 MB<!--/-->", "does not hold"),
            ("<!--=-->2 × 3 = 6 and so on", "is not an equation"),
            ("2 of the peak<!--peak-->", "before <!--peak-->"),
        ] {
            let problems = problems(wrong);
            assert!(problems.first().is_some_and(|first| first.contains(said)), "{wrong}: {problems:?}");
        }
    }
}
