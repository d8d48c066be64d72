//! The order in which a run sees its data.

use super::*;

/// Opens a file of the ids below `length`.
fn ids(length: u16, validation: f64, shuffle: Option<u64>) -> (tempfile::TempDir, Data) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ids.bin");
    std::fs::write(&path, (0..length).flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    let format = TokenFormat::U16;
    let source = DataSource { path: Some(path), format, validation, shuffle, ..DataSource::default() };
    let data = Data::open(&source, length.into(), 8, ProgressOutput::Silent).unwrap();
    (dir, data)
}

fn data(length: u16, shuffle: Option<u64>) -> Data {
    ids(length, 0.0, shuffle).1
}

impl Data {
    fn first(&self, split: Split, g: u64) -> u32 {
        self.sample(split, g, 16).unwrap().tokens[0]
    }
}

#[test]
fn the_order_is_the_documented_one() {
    let data = data(1000, None);
    for g in [0u64, 1, 7, 60, 61, 62, 1000] {
        let start = (g * 16) % (1000 - 16);
        let expected: Vec<u32> = (start as u32..start as u32 + 17).collect();
        assert_eq!(data.sample(Split::Training, g, 16).unwrap().tokens, expected);
    }
}

#[test]
fn a_shuffled_epoch_visits_every_window_once() {
    let data = data(1000, Some(9));
    let windows = (1000 - 1) / 16;
    for epoch in 0..3 {
        let mut starts: Vec<u32> =
            (0..windows).map(|i| data.first(Split::Training, epoch * windows + i)).collect();
        let order = starts.clone();
        starts.sort_unstable();
        assert_eq!(starts, (0..windows as u32).map(|w| w * 16).collect::<Vec<_>>());
        assert_ne!(order, starts, "epoch {epoch} is shuffled");
    }
}

#[test]
fn every_seed_and_every_epoch_has_an_order_of_its_own() {
    let windows: u64 = (1000 - 1) / 16;
    let order = |seed, epoch| -> Vec<u32> {
        let data = data(1000, Some(seed));
        (0..windows).map(|i| data.first(Split::Training, epoch * windows + i)).collect()
    };
    let orders = [order(0, 0), order(0, 1), order(1, 0), order(1, 1), order(u64::MAX, 0)];
    for (index, one) in orders.iter().enumerate() {
        assert!(orders[..index].iter().all(|other| other != one), "order {index} was there before");
    }
    assert_eq!(order(1, 1), orders[3], "the same every time");
}

/// With its last token, a file of two windows has two.
#[test]
fn the_last_whole_window_is_visited() {
    for (length, windows) in [(16 + 1, 1), (2 * 16, 1), (2 * 16 + 1, 2), (3 * 16, 2)] {
        let data = data(length, Some(4));
        let mut starts: Vec<u32> = (0..windows).map(|g| data.first(Split::Training, g)).collect();
        starts.sort_unstable();
        assert_eq!(starts, (0..windows as u32).map(|w| w * 16).collect::<Vec<_>>(), "{length} tokens");
    }
}

#[test]
fn training_and_validation_read_no_token_of_each_other() {
    for shuffle in [None, Some(3)] {
        let (_dir, data) = ids(400, 0.25, shuffle);
        assert_eq!((data.len(Split::Training), data.len(Split::Validation)), (300, 100));
        let tokens =
            |split, g| data.sample(split, g, 8).unwrap().tokens.into_iter().map(|token| token & !PROMPT);
        let seen = |split| (0..1000).flat_map(|g| tokens(split, g)).fold((400, 0), minmax);
        let ((first, last), (held, end)) = (seen(Split::Training), seen(Split::Validation));
        // Windows begin at multiples of 8; around the end, in order, at multiples of 4.
        assert_eq!([first, last, held, end], [0, 296, 300, 396], "{shuffle:?}");
    }
}

fn minmax((least, most): (u32, u32), token: u32) -> (u32, u32) {
    (least.min(token), most.max(token))
}

#[test]
fn a_split_that_is_too_short_is_told_how_to_grow() {
    let opened = |validation| {
        let source = DataSource { validation, ..DataSource::default() };
        Data::open(&source, 256, 128, ProgressOutput::Silent)
    };
    assert!(opened(0.5).is_ok());
    let said = opened(1e-6).unwrap_err().to_string();
    assert!(said.contains("1 validation tokens") && said.contains("a larger --val-fraction"), "{said}");
}

/// However many ranks share a validation: its windows, each token of which is a target once.
#[test]
fn a_validation_reads_each_window_once() {
    let (_dir, data) = ids(400, 0.25, None);
    assert_eq!(data.windows(Split::Validation, 8), 12, "the windows of 8 in 100 tokens");
    let targets = |g| -> Vec<u32> { data.sample(Split::Validation, g, 8).unwrap().targets().collect() };
    for samples in [1, 3, 8, 12, 16] {
        let all = (0..12u64.next_multiple_of(samples)).flat_map(targets);
        assert!(all.filter(|&target| target != 400).eq(301..397), "in batches of {samples}");
    }
    assert_eq!(data.target_count(Split::Validation, 0..16, 8).unwrap(), 96);
    assert_eq!(data.target_count(Split::Validation, 13..16, 8).unwrap(), 0);
    let inputs = |g| -> Vec<u32> { data.sample(Split::Validation, g, 8).unwrap().inputs().collect() };
    assert_eq!(inputs(12), (304..312).collect::<Vec<_>>(), "the mark is no part of the token");
}
