//! Equations in sentences, computed: `918,656 × 4 bytes = 3,674,624 bytes`.

/// A piece of a sentence.
#[derive(Clone, Debug, PartialEq)]
enum Token<'a> {
    /// A number, its unit's factor, and how far its last digit reaches.
    Number {
        value: f64,
        precision: f64,
        text: &'a str,
    },
    Sign(char),
    Word,
}

/// An equation in a text: which numbers it holds, and whether it holds.
#[derive(Debug, PartialEq)]
pub(super) struct Equation<'a> {
    /// Its numbers, as written.
    pub(super) numbers: Vec<&'a str>,
    /// Whether both sides are equal, to the digits that are written.
    pub(super) holds: bool,
}

const UNITS: [(&str, f64); 11] = [
    ("bytes", 1.0),
    ("byte", 1.0),
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("%", 0.01),
];

/// The equations in `text`.
pub(super) fn find(text: &str) -> Vec<Equation<'_>> {
    let tokens = tokens(text);
    let mut equations = Vec::new();
    for at in 0..tokens.len() {
        let Token::Sign('=' | '≈') = tokens[at] else { continue };
        let before = tokens[..at].iter().rev().take_while(|token| operand(token)).count();
        let after = tokens[at + 1..].iter().take_while(|token| operand(token)).count();
        let lefts = (at - before..at).map(|from| &tokens[from..at]);
        let rights = (at + 1..=at + 1 + after).rev().map(|to| &tokens[at + 1..to]);
        let Some((left, a)) = lefts.filter_map(valued).next() else { continue };
        let Some((right, b)) = rights.filter_map(valued).next() else { continue };
        let precision = last_number(right).unwrap_or(0.0).max(1e-9 * b.abs());
        let slack = if tokens[at] == Token::Sign('≈') { 0.02 * b.abs() } else { 0.0 };
        let numbers = left.iter().chain(right).filter_map(|token| match token {
            Token::Number { text, .. } => Some(*text).filter(|text| !text.is_empty()),
            _ => None,
        });
        equations.push(Equation { numbers: numbers.collect(), holds: (a - b).abs() <= precision.max(slack) });
    }
    equations
}

fn operand(token: &Token<'_>) -> bool {
    match token {
        Token::Number { .. } => true,
        Token::Sign(sign) => "+−-×·/÷()".contains(*sign),
        Token::Word => false,
    }
}

fn last_number(tokens: &[Token<'_>]) -> Option<f64> {
    tokens.iter().rev().find_map(|token| match token {
        Token::Number { precision, .. } => Some(*precision),
        Token::Sign(_) | Token::Word => None,
    })
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_digit() {
            let length = number_length(rest);
            let text = &rest[..length];
            rest = &rest[length..];
            let (factor, used) = unit(rest);
            rest = &rest[used..];
            tokens.push(number(text, factor));
        } else if first.is_alphabetic() {
            let length = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
            let (factor, used) = unit(rest);
            // `(2 + 2) bytes`: a unit of a whole bracket.
            if used > 0 && tokens.last() == Some(&Token::Sign(')')) {
                tokens.extend([Token::Sign('×'), Token::Number { value: factor, precision: 0.0, text: "" }]);
            } else {
                tokens.push(Token::Word);
            }
            rest = &rest[length..];
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Sign(first));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    tokens
}

/// Bytes of the number that `text` begins with, grouped digits, decimals and exponent included.
pub(super) fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 0;
    while digit(at) || matches!(bytes.get(at), Some(b',' | b'.')) && digit(at + 1) {
        at += 1;
    }
    if matches!(bytes.get(at), Some(b'e'))
        && (digit(at + 1) || matches!(bytes.get(at + 1), Some(b'-')) && digit(at + 2))
    {
        at += 2;
        while digit(at) {
            at += 1;
        }
    }
    at
}

fn unit(rest: &str) -> (f64, usize) {
    let bare = rest.trim_start_matches([' ', '\u{a0}']);
    let length = bare.find(|c: char| !c.is_alphabetic() && c != '%').unwrap_or(bare.len());
    let found = UNITS.iter().find(|(name, _)| *name == &bare[..length]);
    found.map_or((1.0, 0), |(_, factor)| (*factor, rest.len() - bare.len() + length))
}

fn number(text: &str, factor: f64) -> Token<'_> {
    let plain = text.replace(',', "");
    let decimals = plain.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
    let value = plain.parse::<f64>().unwrap_or(f64::NAN) * factor;
    Token::Number { value, precision: 0.5001 * 10f64.powi(-decimals) * factor, text }
}

/// An expression with its value, `None` if it is none.
fn valued<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<(&'t [Token<'a>], f64)> {
    value(tokens).map(|value| (tokens, value))
}

/// The value of an expression, `None` if it is none.
fn value(tokens: &[Token<'_>]) -> Option<f64> {
    let mut at = 0;
    let value = sum(tokens, &mut at)?;
    (at == tokens.len()).then_some(value)
}

fn sum(tokens: &[Token<'_>], at: &mut usize) -> Option<f64> {
    let mut value = product(tokens, at)?;
    while let Some(Token::Sign(sign @ ('+' | '−' | '-'))) = tokens.get(*at) {
        *at += 1;
        let other = product(tokens, at)?;
        value += if *sign == '+' { other } else { -other };
    }
    Some(value)
}

fn product(tokens: &[Token<'_>], at: &mut usize) -> Option<f64> {
    let mut value = factor(tokens, at)?;
    while let Some(Token::Sign(sign @ ('×' | '·' | '/' | '÷'))) = tokens.get(*at) {
        *at += 1;
        let other = factor(tokens, at)?;
        value = if matches!(sign, '×' | '·') { value * other } else { value / other };
    }
    Some(value)
}

fn factor(tokens: &[Token<'_>], at: &mut usize) -> Option<f64> {
    let token = tokens.get(*at)?;
    *at += 1;
    match token {
        Token::Number { value, .. } => Some(*value),
        Token::Sign('(') => {
            let value = sum(tokens, at)?;
            let closed = tokens.get(*at) == Some(&Token::Sign(')'));
            *at += 1;
            closed.then_some(value)
        }
        Token::Sign(_) | Token::Word => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_computed_with_their_units() {
        for (text, holds) in [
            ("so 918,656 × 4 bytes = 3,674,624 bytes, and", true),
            ("so 918,656 × 4 bytes = 3,674,625 bytes, and", false),
            ("that is 3,674,624 bytes / 4 = 918,656 bytes.", true),
            ("7e9 × (2 + 2 + 12) bytes = 112 GB", true),
            ("7e9 × 16 bytes = 104.3 GiB", true),
            ("7e9 × 16 bytes = 104.4 GiB", false),
            ("2 × (4 − 1) / 4 = 1.5", true),
            ("10 / 3 ≈ 3.3", true),
            ("(so 2 × 3 = 6)", true),
        ] {
            let found = find(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].holds, holds, "{text}");
        }
        assert!(find("where N = the number of ranks").is_empty());
    }
}
