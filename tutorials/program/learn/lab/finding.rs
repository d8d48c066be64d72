//! What the evidence shows, found without knowing the fault, and in which words.

use super::case::{RANKS, STEPS};
use super::evidence::Evidence;
use events::LocalMetrics;
use settings::fault::Kind;
use std::ops::Range;

/// A diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: Kind,
    /// On which rank.
    pub rank: usize,
    /// From which step on.
    pub step: u32,
}

/// Seconds by which others must wait longer for a rank than before, for it to be slow.
const DELAY: f64 = 0.1;

/// What is wrong with `ill`, which ran as `healthy` did but for one fault; nothing if no number says so.
pub fn find(ill: &Evidence, healthy: &Evidence) -> Option<Finding> {
    (0..STEPS).find_map(|step| departs(ill, healthy, step)).or_else(|| slow(ill))
}

/// The rank that leaves the healthy run in `step`, if one does.
fn departs(ill: &Evidence, healthy: &Evidence, step: u32) -> Option<Finding> {
    let (ill, healthy) = (ill.ranks(step)?, healthy.ranks(step)?);
    (0..RANKS).find_map(|rank| {
        let kind = differs(ill[rank], healthy[rank])?;
        // Before the first update there is nothing older to compute with.
        let kind = if (kind, step) == (Kind::Stale, 0) { Kind::Seed } else { kind };
        Some(Finding { kind, rank, step })
    })
}

fn differs(ill: &LocalMetrics, healthy: &LocalMetrics) -> Option<Kind> {
    let times = ill.grad_norm / healthy.grad_norm;
    match () {
        () if !ill.grad_norm.is_finite() => Some(Kind::Nan),
        () if ill.parameters != healthy.parameters => Some(Kind::Stale),
        () if ill.loss != healthy.loss => Some(Kind::Data),
        () if times == 0.0 => Some(Kind::Drop),
        () if (times - RANKS as f64).abs() < 1e-3 => Some(Kind::Divisor),
        () => None,
    }
}

/// The rank for which the others wait from some step on, as they did not before.
fn slow(ill: &Evidence) -> Option<Finding> {
    let found = (0..RANKS).map(|rank| {
        let step = changes(|steps| waited_for(ill, rank, steps));
        let waits = |steps| middle(waited_for(ill, rank, steps));
        (Finding { kind: Kind::Slow, rank, step }, waits(step..STEPS) - waits(0..step))
    });
    found.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, delay)| *delay > DELAY).map(|(finding, _)| finding)
}

/// By how much the others wait longer than `rank` does, step by step.
fn waited_for(evidence: &Evidence, rank: usize, steps: Range<u32>) -> Vec<f64> {
    let longer = |parts: Vec<&LocalMetrics>| {
        let others = parts.iter().enumerate().filter(|(other, _)| *other != rank);
        middle(others.map(|(_, part)| part.waited).collect()) - parts[rank].waited
    };
    steps.filter_map(|step| evidence.ranks(step)).map(longer).collect()
}

/// The step from which on a series is another one: both sides are as near to their middle as can be.
fn changes(series: impl Fn(Range<u32>) -> Vec<f64>) -> u32 {
    let spread = |steps| {
        let values = series(steps);
        let middle = middle(values.clone());
        values.iter().map(|value| (value - middle).abs()).sum::<f64>()
    };
    let cost = |step: &u32| spread(0..*step) + spread(*step..STEPS);
    (1..STEPS).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(1)
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl Finding {
    /// The evidence for what it is.
    pub fn shows_what(&self) -> String {
        let (rank, step) = (self.rank, self.step);
        match self.kind {
            Kind::Stale => format!(
                "in step {step} the fingerprint of rank {rank}'s parameters is neither the others' nor the healthy run's: \
                 what others have updated did not reach it"
            ),
            Kind::Divisor => format!(
                "in step {step} rank {rank} has the healthy run's loss, and gradients {RANKS} times as large: it divides by \
                 its own tokens, not by those of {RANKS} ranks"
            ),
            Kind::Data => format!(
                "in step {step} rank {rank} computes with the right parameters, and has another loss: it reads other samples"
            ),
            Kind::Drop => format!(
                "in step {step} rank {rank} has the healthy run's loss, and gradients of norm 0: nothing of it joins the sum"
            ),
            Kind::Slow => "every number is the healthy run's, but for the times".into(),
            Kind::Seed => format!(
                "before anything has been updated, the fingerprint of rank {rank}'s parameters is neither the others' nor the \
                 healthy run's: it started from other weights"
            ),
            _ => format!(
                "in step {step} rank {rank}'s gradients have no norm, and the sum over ranks none either"
            ),
        }
    }

    /// The evidence for which rank it is.
    pub fn shows_rank(&self) -> String {
        match self.kind {
            Kind::Slow => format!("the others wait for rank {}, and it waits for nobody", self.rank),
            Kind::Nan => format!("before the sum, rank {}'s norm alone is no number", self.rank),
            _ => format!("it is rank {} that leaves the healthy run first", self.rank),
        }
    }

    /// The evidence for when it began.
    pub fn shows_step(&self) -> String {
        match self.kind {
            Kind::Slow => format!("the others' waits grow in step {}, and stay long", self.step),
            Kind::Nan => format!("step {} is the first in which a norm is no number", self.step),
            Kind::Seed => "no step comes before it, and it is there already".into(),
            _ => format!("up to step {} every rank's numbers are the healthy run's", self.step - 1),
        }
    }

    /// Why it is not `kind`.
    pub fn refutes(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Stale if self.kind == Kind::Seed => {
                "parameters differ in step 0 already, when nobody has updated any that could be missed"
            }
            Kind::Stale => {
                "wherever parameters differ from the healthy run's, all ranks have the same: they were gathered"
            }
            Kind::Seed => "in step 0 every rank computes with the healthy run's parameters",
            Kind::Divisor => {
                "no rank's own gradients jump to a multiple of the healthy run's while its loss stays"
            }
            Kind::Data => "no rank has another loss while parameters are the healthy run's",
            Kind::Drop => "every rank contributes gradients in every step",
            Kind::Slow => "ranks wait for each other no longer than before",
            _ => "every gradient is a number",
        }
    }

    /// Hints, from a nudge to nearly the answer.
    pub fn hints(&self) -> [String; 3] {
        let look = match self.kind {
            Kind::Stale | Kind::Seed => {
                "Do all ranks compute with the same parameters? The last table has their fingerprints."
            }
            Kind::Divisor | Kind::Drop => {
                "Take the first row with a star: whose own gradients are not the healthy run's, though its loss is?"
            }
            Kind::Data => {
                "Take the first row with a star: whose loss is not the healthy run's, though its parameters are?"
            }
            Kind::Slow => "No number has a star. Who waits for others, and who never does?",
            _ => "The step in which it ended has a row in the second table.",
        };
        let when = match self.step.checked_sub(1) {
            Some(before) => format!("Compare step {before} with step {}.", self.step),
            None => "Take step 0. Whose first weights are these?".into(),
        };
        [
            "What leaves the healthy run first: losses, gradient norms, parameters or times? And on how many ranks?".into(),
            look.into(),
            when,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_changes_where_it_changes_whatever_single_values_do() {
        let series = [1.0, 0.0, 9.0, 1.0, 0.0, 8.0, 7.0, 0.0, 9.0, 8.0];
        assert_eq!(changes(|steps| series[steps.start as usize..steps.end as usize].to_vec()), 5);
    }

    #[test]
    fn hints_end_at_the_step_that_shows_it_even_the_first() {
        for (kind, step, words) in [
            (Kind::Data, 4, "Compare step 3 with step 4."),
            (Kind::Seed, 0, "Take step 0. Whose first weights are these?"),
        ] {
            assert_eq!(Finding { kind, rank: 1, step }.hints()[2], words);
        }
    }
}
