//! The numbers of the claims' second column, computed by hand.

use planner::claims::{claims, table};
use shell::table::Format;

/// Returns the numbers next to the one claim that contains `words`.
fn beside(words: &str) -> Vec<f64> {
    let found = claims().into_iter().filter(|claim| claim.says.contains(words)).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{words}");
    found[0].numbers.clone()
}

#[track_caller]
fn holds(words: &str, expected: &[f64]) {
    let numbers = beside(words);
    assert_eq!(numbers.len(), expected.len(), "{words}");
    for (number, expected) in numbers.iter().zip(expected) {
        assert!((number - expected).abs() < 5e-3, "{words}: {numbers:?}");
    }
}

#[test]
fn savings() {
    holds("ZeRO-1 saves", &[16.0 / 7.0, 16.0 / 5.5, 16.0 / 4.1875]);
    holds("ZeRO-2 saves", &[16.0 / 5.5, 16.0 / 3.75, 16.0 / 2.21875]);
    holds("ZeRO-3 saves", &[4.0, 8.0, 64.0]);
    holds("33 %", &[37.5, 56.25, 75.0]);
}

#[test]
fn sizes() {
    holds("32 bytes", &[12.0, 8.0]);
    holds("500 MB", &[1.0, 2.0]);
    holds("70 GB", &[84.0, 112.0]);
    holds("14 + 14 = 28", &[3.5, 14.0, 17.5, 3.5, 21.0, 24.5]);
    holds("about 21 GB", &[21.0, 28.0]);
    holds("SHARD_GRAD_OP", &[0.1387, 0.03125]);
    holds("136 to 166", &[16.0, 112.0, 122.0, 152.0]);
    holds("48.5 GB", &[48.5, 2.0 * 2.0 * 0.202_383_36, 35.31]);
    holds("some of the layers", &[202.383, 25.298]);
}

#[test]
fn traffic() {
    holds("ZeRO-2 all-reduces", &[2.0, 3.0]);
    holds("in backward", &[3.0, 4.0]);
    holds("as much as DDP", &[3.0, 2.0, 2.0]);
    holds("never use ZeRO-1", &[2.0, 9.0]);
    holds("ShardedLinear", &[78.905]);
}

#[test]
fn advice_and_exercises() {
    holds("13B needs ZeRO-3", &[48.75]);
    holds("7B to 30B", &[112.5, 60.0]);
    holds("108.96", &[71.5, 48.75, 26.0]);
    holds("89.41", &[89.41, 142.0, 132.25]);
}

#[test]
fn the_table() {
    insta::assert_snapshot!(table().render(Format::Terminal));
}
