//! Lines are wrapped, numbers shortened, and control characters made visible.

use events::say::{SHOWN, digits, fitted, shortened, time, visible};
use proptest::prelude::*;

#[test]
fn lines_are_wrapped_between_words() {
    assert_eq!(fitted("as it is", 8), "as it is");
    assert_eq!(fitted("as it is now", 8), "as it is\n  now");
    assert_eq!(fitted("  so many words here", 10), "  so many\n    words\n    here");
    assert_eq!(fitted("name          what it does", 16), "name\n  what it does");
    assert_eq!(fitted("unbreakable it is", 5), "unbreakable\n  it\n  is");
    assert_eq!(fitted("Ψ und Σ über ein", 8), "Ψ und Σ\n  über\n  ein");
    let drawn = format!("      0 └{}", "─".repeat(20));
    assert_eq!(fitted(&drawn, 29), drawn);
}

#[test]
fn numbers_have_three_significant_digits() {
    for (value, text) in [
        (1234.5, "1234"),
        (999.6, "1000"),
        (12.345, "12.3"),
        (5.5449, "5.54"),
        (0.99951, "1.00"),
        (0.99949, "0.999"),
        (0.5, "0.500"),
        (0.0125, "0.0125"),
        (-0.001712, "-0.00171"),
        (1.714e-5, "1.71e-5"),
        (0.0, "0.00"),
    ] {
        assert_eq!(digits(value), text);
    }
    assert_eq!([digits(f64::NAN), digits(f64::INFINITY)], ["NaN", "inf"]);
}

#[test]
fn a_message_repeats_a_value_on_one_short_line() {
    assert_eq!(shortened("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
    let (fits, longer) = ("ü".repeat(SHOWN), "ü".repeat(SHOWN + 1));
    assert_eq!([shortened(&fits), shortened(&longer)], [fits.clone(), fits + "…"]);
}

#[test]
fn a_text_of_others_commands_no_terminal() {
    let text = "\x1b]0;title\x07\u{9b}2J\ttab\nline\r\u{7f}Ψ";
    assert_eq!(visible(text), "\\x1b]0;title\\x07\\x9b2J\ttab\nline\\x0d\\x7fΨ");
}

proptest! {
    #[test]
    fn no_word_is_lost_and_no_line_too_long(text in "[ a-zé]{0,120}", columns in 1usize..60) {
        let fitted = fitted(&text, columns);
        prop_assert_eq!(fitted.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        for line in fitted.lines().filter(|line| line.chars().count() > columns) {
            prop_assert_eq!(line.split_whitespace().count(), 1, "{:?}", line);
        }
    }
}

#[test]
fn a_time_has_the_unit_that_its_digits_round_to() {
    let times = [0.9994, 0.9996, 0.000_999_4, 0.000_999_6].map(time);
    assert_eq!(times, ["999 ms", "1.00 s", "999 µs", "1.00 ms"]);
}
