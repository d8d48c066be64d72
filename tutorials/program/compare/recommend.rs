//! Which stage to use, and why.

use super::tables::{peak, tokens_per_second};
use super::{Comparison, Outcome, Run};
use settings::size::human;

/// Runs within this share of the fastest count as equally fast: repeated runs differ by as much.
const NOISE: f64 = 0.1;

/// Returns the recommendation, in a few sentences.
pub(super) fn recommendation(comparison: &Comparison) -> String {
    let runs: Vec<&Run> = comparison.outcomes.iter().filter_map(Outcome::run).collect();
    let Some(fastest) = runs.iter().map(|run| tokens_per_second(&run.report)).max_by(f64::total_cmp) else {
        return "No stage fits. Run one of them alone with these flags: its error lists what would help."
            .into();
    };
    let fast = |run: &&&Run| tokens_per_second(&run.report) >= (1.0 - NOISE) * fastest;
    let Some(chosen) = runs.iter().filter(fast).min_by_key(|run| peak(&run.report)) else {
        return String::new();
    };
    let count = runs.iter().filter(fast).count();
    let why = if count > 1 {
        format!("of {count} equally fast ones (within 10 %), it needs the least memory")
    } else {
        "it is the fastest by more than 10 %".into()
    };
    let mut text = format!("Use {}: {why}.\n", chosen.stage);
    let others = comparison.outcomes.iter().filter(|outcome| outcome.stage() != chosen.stage);
    others.for_each(|outcome| text.push_str(&against(chosen, outcome)));
    text
}

/// Returns a line: why another stage was not chosen.
fn against(chosen: &Run, other: &Outcome) -> String {
    let run = match other {
        Outcome::Ran(run, _) => run,
        Outcome::TooLarge(stage, needed) => {
            return format!("- {stage} does not fit: it needs {} per rank.\n", human(*needed));
        }
    };
    let slower = 100.0 * (1.0 - tokens_per_second(&run.report) / tokens_per_second(&chosen.report));
    let speed = match slower {
        s if s >= 1.0 => format!("{s:.0} % slower"),
        s if s <= -1.0 => format!("{:.0} % faster", -s),
        _ => "as fast".into(),
    };
    let (its, own) = (peak(&run.report), peak(&chosen.report));
    let memory = match its.cmp(&own) {
        std::cmp::Ordering::Greater => format!("needs {} more per rank", human(its - own)),
        std::cmp::Ordering::Less => format!("needs {} less per rank", human(own - its)),
        std::cmp::Ordering::Equal => "needs as much memory".into(),
    };
    format!("- {} is {speed} and {memory}.\n", run.stage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::profile::tests::hill;
    use clap::Parser;
    use planner::Stage;
    use settings::Config;
    use settings::cli::Cli;

    fn config() -> Config {
        let flags = "x --gpus 1 --steps 3 --batch-size 1 --seq-len 8 --threads 1 --headless --device cpu";
        deepspeed::configure(Cli::parse_from(flags.split_whitespace()).train).unwrap()
    }

    /// Returns a run of `stage` with the given milliseconds per step and megabytes at its peak.
    fn ran(stage: Stage, milliseconds: f64, megabytes: u64) -> Outcome {
        let mut report = stages::train(stage, config()).unwrap();
        report.steps.iter_mut().for_each(|step| step.seconds = milliseconds * 1e-3);
        report.total_peak_bytes.iter_mut().for_each(|row| row.peak_bytes = megabytes * 1_000_000);
        Outcome::Ran(Box::new(Run { stage, report }), hill())
    }

    fn comparison(outcomes: Vec<Outcome>) -> Comparison {
        Comparison { config: config(), outcomes, scaling: vec![], buckets: vec![] }
    }

    #[test]
    fn of_equally_fast_stages_the_smallest() {
        let outcomes = vec![
            ran(Stage::Ddp, 10.0, 30),
            Outcome::TooLarge(Stage::Zero1, 90_000_000),
            ran(Stage::Zero2, 10.5, 20),
            ran(Stage::Zero3, 15.0, 10),
        ];
        insta::assert_snapshot!(recommendation(&comparison(outcomes)));
    }

    #[test]
    fn a_clearly_faster_stage_and_none() {
        let outcomes = vec![ran(Stage::Ddp, 10.0, 30), ran(Stage::Zero3, 15.0, 10)];
        let text = recommendation(&comparison(outcomes));
        assert!(
            text.starts_with("Use DDP: it is the fastest by more than 10 %.\n- ZeRO-3 is 33 % slower"),
            "{text}"
        );
        let nothing = comparison(vec![Outcome::TooLarge(Stage::Ddp, 90)]);
        assert!(recommendation(&nothing).starts_with("No stage fits."));
    }
}
