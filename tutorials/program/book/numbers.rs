//! Numbers in the book's sentences. Each one that says how much must be in something that a program made for the same
//! chapter, or be computed in an equation beside it.

use super::equations;
use std::collections::BTreeSet;

/// Units behind which even a small number says how much was measured.
const UNITS: [&str; 8] = ["kB", "MB", "GB", "TB", "MiB", "GiB", "bytes", "%"];

/// Sentences whose numbers nothing in the chapter founds, and equations that do not hold.
pub(super) fn unfounded(chapter: &str) -> Vec<String> {
    let (own, made) = divide(chapter);
    let paragraphs = paragraphs(&own);
    let computed = paragraphs.iter().flat_map(|text| equations::find(text)).filter(|equation| equation.holds);
    let mut founded: BTreeSet<u64> = computed.flat_map(|equation| equation.numbers).map(value).collect();
    // Shares are written with their sign wherever they are made, so bytes that happen to be as many found none.
    let mut shares = founded.clone();
    for (number, rest) in made.iter().flat_map(|line| numbers(line)) {
        founded.insert(value(number));
        if is_share(rest) {
            shares.insert(value(number));
        }
    }
    let mut problems = Vec::new();
    for paragraph in paragraphs {
        let equations = equations::find(&paragraph);
        problems.extend(
            equations
                .iter()
                .filter(|e| !e.holds)
                .map(|e| format!("does not hold: {} in: {paragraph}", e.numbers.join(" … "))),
        );
        for (number, rest) in numbers(&paragraph) {
            let founded = if is_share(rest) { &shares } else { &founded };
            if says_how_much(number, rest) && !founded.contains(&value(number)) {
                problems.push(format!("nothing made {number} in: {paragraph}"));
            }
        }
    }
    problems
}

/// Lines that a person wrote, and lines that a program made. Inline code counts as made: it quotes the programs.
fn divide(chapter: &str) -> (Vec<String>, Vec<&str>) {
    let (mut own, mut made) = (Vec::new(), Vec::new());
    let (mut fence, mut place) = (false, false);
    for line in chapter.lines() {
        let is_fence = line.trim_start().starts_with("```");
        if line.starts_with("<!-- ") {
            place = line != "<!-- end -->"
                && ["code", "diff", "table", "predict", "answers", "quiz"]
                    .iter()
                    .any(|word| line.starts_with(&format!("<!-- {word}: ")));
            continue;
        }
        fence ^= is_fence;
        if fence || is_fence || place && !line.starts_with("**`") {
            made.push(line);
        } else {
            own.push(line.split('`').step_by(2).collect::<Vec<_>>().join("`"));
        }
    }
    (own, made)
}

/// Paragraphs, list items and rows of tables, each on one line.
fn paragraphs(lines: &[String]) -> Vec<String> {
    let mut paragraphs: Vec<String> = vec![String::new()];
    for line in lines {
        let begins = line.is_empty() || line.starts_with(['*', '-', '|', '#']) || is_numbered(line);
        match paragraphs.last_mut() {
            Some(last) if !begins => *last = format!("{last} {}", line.trim()),
            _ => paragraphs.push(line.clone()),
        }
    }
    paragraphs.retain(|paragraph| !paragraph.trim().is_empty());
    paragraphs
}

fn is_numbered(line: &str) -> bool {
    line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

/// The numbers of a text, each with what follows it.
fn numbers(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(|c: char| c.is_ascii_digit()).map(|offset| at + offset) {
        let length = equations::number_length(&text[start..]);
        at = start + length;
        let glued =
            text[..start].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '§');
        if !glued {
            found.push((&text[start..at], &text[at..]));
        }
    }
    found
}

/// A number's bits, the same for `49` and `49.00`.
fn value(number: &str) -> u64 {
    number.replace(',', "").parse::<f64>().unwrap_or(f64::NAN).to_bits()
}

fn is_share(rest: &str) -> bool {
    rest.trim_start_matches([' ', '\u{a0}']).starts_with('%')
}

fn says_how_much(number: &str, rest: &str) -> bool {
    let word = rest.trim_start_matches([' ', '\u{a0}']);
    let unit: String = word.chars().take_while(|c| c.is_alphabetic() || *c == '%').collect();
    number.contains([',', '.']) || number.len() >= 4 && !is_year(number) || UNITS.contains(&unit.as_str())
}

fn is_year(number: &str) -> bool {
    number.len() == 4 && (number.starts_with("19") || number.starts_with("20"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_something_made_may_say_how_much() {
        let page = |own: &str| format!("{own}\n\n```console\n$ x\n45.8 MB 19.5 %\n```\n");
        for fine in [
            "45.8 MB at its peak",
            "19.5 % of it",
            "four ranks, 2 of them",
            "2 × 22.9 MB = 45.8 MB",
            "see `--x 12.5`",
            "1. try\n\n   ```\n   x --bytes 12345\n   ```\n",
            "in 2020",
        ] {
            assert_eq!(unfounded(&page(fine)), Vec::<String>::new());
        }
        for wrong in
            ["45.9 MB at its peak", "45.8 % of it", "about 7 GB", "2 × 22.9 MB = 45.9 MB", "12,345 tokens"]
        {
            assert!(!unfounded(&page(wrong)).is_empty(), "{wrong}");
        }
    }
}
