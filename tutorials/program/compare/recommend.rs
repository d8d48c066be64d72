//! Which stage to use, and why.

use super::steps::{FEWEST, Steps, WARM_UP};
use super::tables::{peak, tokens_per_second};
use super::{Comparison, Outcome, Run};
use settings::size::human;
use std::cmp::Ordering;

/// Returns the recommendation, in a few sentences: of the stages that may be as fast as the
/// fastest, the one that needs the least memory.
pub(super) fn recommendation(comparison: &Comparison) -> String {
    let runs: Vec<&Run> = comparison.outcomes.iter().filter_map(Outcome::run).collect();
    let speed = |run: &Run| tokens_per_second(&run.report);
    let Some(&fastest) = runs.iter().max_by(|a, b| speed(a).total_cmp(&speed(b))) else {
        return "No stage fits. Run one of them alone with these flags: its error lists what would help."
            .into();
    };
    let equals: Vec<&Run> = runs.iter().copied().filter(|run| equal(run, fastest)).collect();
    let chosen = equals.iter().copied().min_by_key(|run| peak(&run.report)).unwrap_or(fastest);
    let mut text = format!("Use {}: {}.\n", chosen.stage, reason(&equals, runs.len()));
    let others = comparison.outcomes.iter().filter(|outcome| outcome.stage() != chosen.stage);
    others.for_each(|outcome| text.push_str(&against(chosen, fastest, outcome)));
    text
}

fn equal(run: &Run, other: &Run) -> bool {
    Steps::of(&run.report).equal(Steps::of(&other.report))
}

/// Returns why the smallest of `equals` was chosen, of so many stages that ran.
fn reason(equals: &[&Run], ran: usize) -> String {
    let timed = equals.iter().map(|run| Steps::of(&run.report).count).min().unwrap_or(0);
    match equals.len() {
        _ if ran == 1 => "no other stage ran".into(),
        1 => "it is the fastest, by more than the steps' spread".into(),
        _ if timed < FEWEST => format!(
            "it needs the least memory; so few steps do not tell speeds apart (--steps {} or more would)",
            WARM_UP + 8
        ),
        count => {
            format!("of {count} that are equally fast within the steps' spread, it needs the least memory")
        }
    }
}

/// Returns a line: why another stage was not chosen. Speeds are compared with the fastest stage,
/// memory with the chosen one.
fn against(chosen: &Run, fastest: &Run, other: &Outcome) -> String {
    let run = match other {
        Outcome::Ran(run, _) => run,
        Outcome::TooLarge(stage, needed) => {
            return format!("- {stage} does not fit: it needs {} per rank.\n", human(*needed));
        }
    };
    let speed = if equal(run, fastest) {
        "is no faster, as far as the spread tells,".into()
    } else {
        let slower = 100.0 * (1.0 - tokens_per_second(&run.report) / tokens_per_second(&fastest.report));
        format!("is {slower:.0} % slower{}", than(chosen, fastest))
    };
    let (its, own) = (peak(&run.report), peak(&chosen.report));
    let memory = match its.cmp(&own) {
        Ordering::Greater => format!("needs {} more per rank", human(its - own)),
        Ordering::Less => format!("needs {} less per rank", human(own - its)),
        Ordering::Equal => "needs as much memory".into(),
    };
    format!("- {} {speed} and {memory}.\n", run.stage)
}

/// Names the fastest stage, unless it is the chosen one.
fn than(chosen: &Run, fastest: &Run) -> String {
    if chosen.stage == fastest.stage { String::new() } else { format!(" than {}", fastest.stage) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::profile::tests::hill;
    use clap::Parser;
    use planner::Stage;
    use report::StepRow;
    use settings::Config;
    use settings::cli::Cli;

    fn config() -> Config {
        let flags = "x --gpus 1 --steps 3 --batch-size 1 --seq-len 8 --threads 1 --headless --device cpu";
        deepspeed::configure(Cli::parse_from(flags.split_whitespace()).train).unwrap()
    }

    /// Returns a run of `stage` with the given milliseconds of its timed steps and megabytes at its
    /// peak.
    fn ran(stage: Stage, milliseconds: &[f64], megabytes: u64) -> Outcome {
        let mut report = stages::train(stage, config()).unwrap();
        let step = report.steps[0];
        let timed = milliseconds.iter().map(|ms| StepRow { seconds: ms * 1e-3, ..step });
        // Those that warm up take far longer, which must not count.
        let warm_up = std::iter::repeat_n(StepRow { seconds: 9.0, ..step }, WARM_UP);
        report.steps = warm_up.chain(timed).collect();
        report.total_peak_bytes.iter_mut().for_each(|row| row.peak_bytes = megabytes * 1_000_000);
        Outcome::Ran(Box::new(Run { stage, report }), hill())
    }

    fn comparison(outcomes: Vec<Outcome>) -> Comparison {
        Comparison { config: config(), outcomes, scaling: vec![], buckets: vec![] }
    }

    #[test]
    fn of_equally_fast_stages_the_smallest() {
        let outcomes = vec![
            ran(Stage::Ddp, &[9.0, 10.0, 11.0], 30),
            Outcome::TooLarge(Stage::Zero1, 90_000_000),
            ran(Stage::Zero2, &[10.5, 11.0, 12.0], 20),
            // As fast as the chosen one, but not as the fastest: that is what it is compared with.
            ran(Stage::Zero3, &[11.5, 15.0, 16.0], 10),
        ];
        insta::assert_snapshot!(recommendation(&comparison(outcomes)));
    }

    #[test]
    fn a_clearly_faster_stage_and_none() {
        let outcomes =
            vec![ran(Stage::Ddp, &[9.0, 10.0, 11.0], 30), ran(Stage::Zero3, &[11.5, 15.0, 16.0], 10)];
        let text = recommendation(&comparison(outcomes));
        assert!(
            text.starts_with(
                "Use DDP: it is the fastest, by more than the steps' spread.\n- ZeRO-3 is 33 % slower"
            ),
            "{text}"
        );
        let nothing = comparison(vec![Outcome::TooLarge(Stage::Ddp, 90)]);
        assert!(recommendation(&nothing).starts_with("No stage fits."));
    }

    #[test]
    fn two_steps_tell_no_speeds_apart() {
        let outcomes = vec![ran(Stage::Ddp, &[1.0, 1.0], 30), ran(Stage::Zero3, &[9.0, 9.0], 10)];
        let text = recommendation(&comparison(outcomes));
        assert!(text.starts_with("Use ZeRO-3: it needs the least memory; so few steps"), "{text}");
        assert!(text.contains("--steps 10"), "{text}");
    }

    #[test]
    fn a_stage_alone_is_not_called_the_fastest() {
        let text = recommendation(&comparison(vec![ran(Stage::Ddp, &[1.0, 1.0, 1.0], 30)]));
        assert_eq!(text, "Use DDP: no other stage ran.\n");
    }
}
