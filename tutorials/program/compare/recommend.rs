//! Recommends a stage, with reasons.

use super::steps::{FEWEST, Steps, WARM_UP};
use super::tables::{peak, tokens_per_second};
use super::{Comparison, Outcome, Run};
use settings::size::human;
use std::cmp::Ordering;

/// Returns the recommendation in a few sentences. Among the stages that may be as fast as the
/// fastest, it picks the one that needs the least memory.
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
    let others = comparison.outcomes.iter().filter(|outcome| outcome.stage != chosen.stage);
    others.for_each(|outcome| text.push_str(&against(chosen, fastest, outcome)));
    text
}

fn equal(run: &Run, other: &Run) -> bool {
    Steps::of(&run.report).equal(Steps::of(&other.report))
}

/// Returns the reason for choosing the smallest of `equals` among the `ran` stages that ran.
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

/// Returns a line with the reason against another stage. Speeds are compared with the fastest
/// stage, memory with the chosen one.
fn against(chosen: &Run, fastest: &Run, other: &Outcome) -> String {
    let run = match &other.ran {
        Ok((run, _)) => run,
        Err(needed) => {
            return format!("- {} does not fit: it needs {} per rank.\n", other.stage, human(*needed));
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
mod tests;
