//! Evaluates the equations between marks: `918,656 × 4 bytes = 3,674,624 bytes`.

const UNITS: [(&str, f64); 6] =
    [("bytes", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("GiB", 1073741824.0), ("%", 0.01)];

/// Returns the fault of `text`, which should be an equation.
pub(crate) fn fault(text: &str) -> Option<&'static str> {
    let mut reader = Reader { rest: text, digit: 0.0 };
    match reader.equation() {
        Some(holds) if reader.rest.trim().is_empty() => (!holds).then_some("does not hold"),
        _ => Some("is not an equation"),
    }
}

/// Returns the value of `text`, which should be one side of an equation.
pub(crate) fn value(text: &str) -> Option<f64> {
    let mut reader = Reader { rest: text, digit: 0.0 };
    let value = reader.sum()?;
    reader.rest.trim().is_empty().then_some(value)
}

/// Parses expressions from the beginning of a text.
struct Reader<'a> {
    rest: &'a str,
    /// Half a unit of the last digit of the latest number: the maximum rounding error.
    digit: f64,
}

impl Reader<'_> {
    /// True if the sides agree to the digits that are written on the right; `≈` allows 2 %.
    fn equation(&mut self) -> Option<bool> {
        let left = self.sum()?;
        let slack = if self.sign("=≈")? == '≈' { 0.02 } else { 1e-9 };
        let right = self.sum()?;
        Some((left - right).abs() <= self.digit.max(slack * right.abs()))
    }

    fn sum(&mut self) -> Option<f64> {
        let mut value = self.product()?;
        while let Some(sign) = self.sign("+−") {
            let other = self.product()?;
            value += if sign == '+' { other } else { -other };
        }
        Some(value)
    }

    fn product(&mut self) -> Option<f64> {
        let mut value = self.factor()?;
        while let Some(sign) = self.sign("×/") {
            let other = self.factor()?;
            value = if sign == '×' { value * other } else { value / other };
        }
        Some(value)
    }

    /// Returns the value of a number or a parenthesised expression with its unit.
    fn factor(&mut self) -> Option<f64> {
        let value = if self.sign("(").is_some() {
            let sum = self.sum()?;
            self.sign(")").map(|_| sum)?
        } else {
            self.number()?
        };
        let unit = self.unit();
        self.digit *= unit;
        Some(value * unit)
    }

    fn number(&mut self) -> Option<f64> {
        let text = self.rest.trim_start();
        let (number, rest) = text.split_at(number_length(text));
        let plain = number.replace(',', "");
        let decimals = plain.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
        (self.rest, self.digit) = (rest, 0.5001 * 10f64.powi(-decimals));
        plain.parse().ok()
    }

    fn unit(&mut self) -> f64 {
        let text = self.rest.trim_start();
        let end = text.find(|c: char| !c.is_alphabetic() && c != '%').unwrap_or(text.len());
        let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == &text[..end]) else { return 1.0 };
        self.rest = &text[end..];
        *factor
    }

    /// Takes one of `signs`, if it comes next.
    fn sign(&mut self, signs: &str) -> Option<char> {
        let text = self.rest.trim_start();
        let sign = text.chars().next().filter(|&sign| signs.contains(sign))?;
        self.rest = &text[sign.len_utf8()..];
        Some(sign)
    }
}

/// Returns the length in bytes of the number at the start of `text`: grouped digits, decimals and
/// exponent.
pub(crate) fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is = |at: usize, signs: &[u8]| bytes.get(at).is_some_and(|byte| signs.contains(byte));
    let mut at = 0;
    while digit(at) || is(at, b",.") && digit(at + 1) {
        at += 1;
    }
    if is(at, b"e") && (digit(at + 1) || is(at + 1, b"-") && digit(at + 2)) {
        at += 2;
        while digit(at) {
            at += 1;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_computed_with_their_units() {
        for (text, expected) in [
            ("918,656 × 4 bytes = 3,674,624 bytes", None),
            ("918,656 × 4 bytes = 3,674,625 bytes", Some("does not hold")),
            ("3,674,624 bytes / 4 = 918,656 bytes", None),
            ("7e9 × (2 + 2 + 12) bytes = 112 GB", None),
            ("7e9 × 16 bytes = 104.3 GiB", None),
            ("7e9 × 16 bytes = 104.4 GiB", Some("does not hold")),
            ("2 × (4 − 1) / 4 = 1.5", None),
            ("10 / 3 ≈ 3.3", None),
            ("12 / 15 ≈ 80 %", None),
            ("2 × 3 = 6 apples", Some("is not an equation")),
            ("N = 4", Some("is not an equation")),
            ("2 × (3 = 6", Some("is not an equation")),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
    }
}
