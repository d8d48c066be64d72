//! The settings that the flags of communication result in, and the values that they refuse.

use super::*;
use crate::cli::Cli;
use clap::Parser;
use events::say::grouped;

fn parse(flags: &str) -> Result<CommunicationArgs, String> {
    let words = ["zero"].into_iter().chain(flags.split_whitespace());
    Cli::try_parse_from(words).map(|cli| cli.train.communication).map_err(|error| error.to_string())
}

const BAD: [(&str, &str); 13] = [
    ("--reduce-bucket 0", "from 1 to 2^53"),
    ("--allgather-bucket 1.5", "from 1 to 2^53"),
    ("--prefetch-bucket -1", "from 0 to 2^53"),
    ("--max-live-parameters lots", "from 0 to 2^53"),
    ("--max-reuse-distance 1e17", "from 0 to 2^53"),
    ("--param-persistence-threshold 0.1", "from 0 to 2^53"),
    ("--model-persistence-threshold x", "from 0 to 2^53"),
    ("--sub-group-size 0", "from 1 to 2^53"),
    ("--limit-all-gathers 0", "from 1 to 64"),
    ("--limit-all-gathers many", "from 1 to 64"),
    ("--backward-prefetch early", "pre, post, none"),
    ("--contiguous-gradients maybe", "true, false"),
    ("--no-overlap --prefetch-bucket 5", "cannot be used with"),
];

#[test]
fn bad_values_are_refused_on_one_screen_with_what_is_allowed() {
    for (flags, allowed) in BAD {
        let error = parse(&flags.replace(" -1", "=-1")).unwrap_err();
        let flag = flags.split(' ').next().unwrap();
        assert!(error.contains(flag) && error.contains(allowed), "{flags}: {error}");
        assert!(error.lines().count() <= 24, "{error}");
    }
    assert!(parse("--reshard-last --max-reuse-distance 5").unwrap_err().contains("cannot be used with"));
}

#[test]
fn flags_mean_what_they_say() {
    let communication = |flags| Communication::new(&parse(flags).unwrap());
    let default = communication("");
    assert_eq!(default, Communication::default());
    assert!(default.overlap && default.contiguous_gradients && default.keeps(0) && !default.keeps(1));
    assert_eq!(default.gather_limits(), GatherLimits { ahead: 1, in_flight: 2, live: usize::MAX });
    assert_eq!(communication("--no-overlap").gather_limits().ahead, 0);
    assert!(!communication("--reshard-last").keeps(0));
    assert!(communication("--max-reuse-distance 5e3").keeps(4999));
    let limits = communication("--param-persistence-threshold 1e5").persistence_limits();
    assert_eq!((limits.each, limits.together), (100_000, usize::MAX));
}

#[test]
fn the_help_says_how_large_a_piece_of_an_offloaded_update_is() {
    let help = shell::command::<Cli>().render_long_help().to_string();
    let on_one_line = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let default = format!("the unit's; {} if states are offloaded]", grouped(prediction::SUB_GROUP));
    assert!(on_one_line.contains(&default), "{help}");
}

#[test]
fn flags_that_change_nothing_in_a_stage_are_named() {
    let named = |flags: &str, sharded| {
        let words = ["zero"].into_iter().chain(flags.split_whitespace());
        let args = Cli::try_parse_from(words).unwrap().train;
        without_effect(&args.given, &Communication::new(&args.communication), sharded)
            .into_iter()
            .map(|(flag, _)| flag)
            .collect::<Vec<_>>()
    };
    let zero3 = Sharded { parameters: true, gradients: true, optimizer: true };
    let zero2 = Sharded { parameters: false, ..zero3 };
    let flags = "--prefetch-bucket 5 --allgather-bucket 7 --reduce-bucket 9 --sub-group-size 3";
    assert_eq!(named(flags, zero2), ["--prefetch-bucket"]);
    assert_eq!(named(flags, zero3), ["--allgather-bucket"]);
    assert_eq!(named(&format!("{flags} --param-persistence-threshold 9"), zero3), [""; 0]);
}
