//! The batch rule: any two numbers determine the third, and all must agree.

use super::*;
use clap::Parser;
use settings::cli::Cli;
use settings::file::Batch;

/// Returns micro-batch, accumulation and the number of warnings.
fn settled(flags: &str, batch: [usize; 3]) -> Result<(Option<usize>, usize, usize), String> {
    let mut args = Cli::try_parse_from(["zero"].into_iter().chain(flags.split_whitespace())).unwrap().train;
    let [total, micro, accumulation] = batch.map(|n| Some(n).filter(|&n| n > 0));
    args.file_only.batch = Batch { total, micro, accumulation };
    let mut findings = Findings::default();
    settle(&mut args, &mut findings)?;
    Ok((args.training.batch_size, args.training.grad_accum, findings.warnings.len()))
}

#[test]
fn any_two_give_the_third() {
    for (batch, micro, accumulation) in [
        ([32, 4, 2], Some(4), 2),
        ([32, 4, 0], Some(4), 2),
        ([32, 0, 2], Some(4), 2),
        ([0, 4, 2], Some(4), 2),
        ([32, 0, 0], Some(8), 1),
        ([0, 4, 0], Some(4), 1),
        ([0, 0, 3], None, 3),
        ([0, 0, 0], None, 1),
    ] {
        assert_eq!(settled("--gpus 4", batch), Ok((micro, accumulation, 0)), "{batch:?}");
    }
}

#[test]
fn a_product_that_does_not_match_names_all_four_numbers() {
    for (batch, numbers) in [
        ([33, 4, 2], ["33", "gpu 4 ", "steps 2 ", "size 3 "]),
        ([32, 0, 0], ["32", "gpu 10 ", "steps 1 ", "size 3 "]),
        ([2, 0, 0], ["2", "gpu 0 ", "steps 1 ", "size 3 "]),
        ([32, 0, 5], ["32", "gpu 2 ", "steps 5 ", "size 3 "]),
        ([32, 100, 0], ["32", "gpu 100 ", "steps 0 ", "size 3 "]),
    ] {
        let error = settled("--gpus 3", batch).unwrap_err();
        assert!(numbers.iter().all(|number| error.contains(number)), "{batch:?}: {error}");
    }
    assert!(settled("--gpus 4", [9, usize::MAX, usize::MAX]).is_err());
    assert!(settled("--gpus 4", [64, 4, 2]).unwrap_err().contains("--gpus 8 would match"));
}

#[test]
fn a_mismatch_says_which_change_helps() {
    for (batch, remedy) in [
        ([48, 4, 2], "--gpus 6 would match; or change one of the others."),
        ([48, 5, 4], "Change one of the four, or leave train_batch_size out."),
        ([48, 3, 5], "Change one of the four, or leave train_batch_size out."),
        ([48, 5, 0], "Change one of the four, or leave train_batch_size out."),
        ([30, 2, 4], "Change train_batch_size (32 fits), or leave it out."),
        ([9, 2, 0], "Change train_batch_size (8 fits), or leave it out."),
        ([9, 100, 0], "Change train_batch_size (400 fits), or leave it out."),
        ([2, 0, 0], "--gpus 2 would match; or change one of the others."),
    ] {
        let error = settled("--gpus 4", batch).unwrap_err();
        assert_eq!(error.lines().last(), Some(remedy), "{batch:?}");
    }
}

#[test]
fn flags_count_and_every_contradiction_is_a_warning() {
    assert_eq!(settled("--gpus 4 --grad-accum 8", [0, 4, 4]), Ok((Some(4), 8, 1)));
    assert_eq!(settled("--gpus 4 --grad-accum 4", [0, 4, 4]), Ok((Some(4), 4, 0)));
    assert_eq!(settled("--gpus 4 --batch-size 4", [32, 0, 0]), Ok((Some(4), 2, 0)));
    assert_eq!(settled("--gpus 4 --batch-size 2 --grad-accum 1", [32, 4, 2]), Ok((Some(2), 1, 3)));
    assert!(settled("--gpus 4 --batch-size 64", [32, 0, 0]).is_err());
}
