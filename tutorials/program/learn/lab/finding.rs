//! Finds the fault in the evidence, and names the numbers that show it.

use super::case::{RANKS, STEPS};
use super::evidence::Evidence;
use events::LocalMetrics;
use settings::fault::Kind;
use std::ops::Range;

/// A diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of fault.
    pub kind: Kind,
    /// The faulty rank.
    pub rank: usize,
    /// The first faulty step.
    pub step: u32,
}

/// Number of hints for a lab.
pub const HINTS: usize = 3;

/// A rank is slow if the others wait for it longer than before by at least this many seconds.
const DELAY: f64 = 0.1;

/// Finds the fault of `ill` by comparing it with `healthy`, the same run without a fault. `None` if
/// no number shows a fault.
pub fn find(ill: &Evidence, healthy: &Evidence) -> Option<Finding> {
    (0..STEPS).find_map(|step| departs(ill, healthy, step)).or_else(|| slow(ill))
}

/// Finds the rank that differs from the healthy run in `step`.
fn departs(ill: &Evidence, healthy: &Evidence, step: u32) -> Option<Finding> {
    let (ill, healthy) = (ill.ranks(step)?, healthy.ranks(step)?);
    (0..RANKS).find_map(|rank| {
        let kind = differs(ill[rank], healthy[rank])?;
        // Before the first update, older parameters do not exist.
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

/// Finds the rank for which the others start to wait at some step.
fn slow(ill: &Evidence) -> Option<Finding> {
    let found = (0..RANKS).map(|rank| {
        let step = changes(|steps| waited_for(ill, rank, steps));
        let waits = |steps| middle(waited_for(ill, rank, steps));
        (Finding { kind: Kind::Slow, rank, step }, waits(step..STEPS) - waits(0..step))
    });
    found.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, delay)| *delay > DELAY).map(|(finding, _)| finding)
}

/// Returns, per step, how much longer the other ranks wait than `rank` does.
fn waited_for(evidence: &Evidence, rank: usize, steps: Range<u32>) -> Vec<f64> {
    let longer = |parts: Vec<&LocalMetrics>| {
        let others = parts.iter().enumerate().filter(|(other, _)| *other != rank);
        middle(others.map(|(_, part)| part.waited).collect()) - parts[rank].waited
    };
    steps.filter_map(|step| evidence.ranks(step)).map(longer).collect()
}

/// Returns the step that splits a series best, so that the values before and after it are as close
/// to their medians as possible.
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
    /// Returns the evidence for the kind of fault.
    pub fn shows_what(&self) -> String {
        let (rank, step) = (self.rank, self.step);
        match self.kind {
            Kind::Stale => format!(
                "in step {step} the fingerprint of rank {rank}'s parameters is neither the others' nor the healthy run's: \
                 it did not get the others' updates"
            ),
            Kind::Divisor => format!(
                "in step {step} rank {rank} has the healthy run's loss, and gradients {RANKS} times as large: it divides by \
                 its own tokens, not by those of {RANKS} ranks"
            ),
            Kind::Data => format!(
                "in step {step} rank {rank} computes with the right parameters and gets a different loss: it reads different samples"
            ),
            Kind::Drop => format!(
                "in step {step} rank {rank} has the healthy run's loss, and gradients of norm 0: it adds nothing to the sum"
            ),
            Kind::Slow => "every number equals the healthy run's, except for the times".into(),
            Kind::Seed => format!(
                "before the first update, the fingerprint of rank {rank}'s parameters is neither the others' nor the \
                 healthy run's: it started from different weights"
            ),
            _ => format!(
                "in step {step} the norm of rank {rank}'s gradients is not a number, and neither is the norm of the sum"
            ),
        }
    }

    /// Returns the evidence for the rank.
    pub fn shows_rank(&self) -> String {
        match self.kind {
            Kind::Slow => format!("the others wait for rank {}, and it waits for none of them", self.rank),
            Kind::Nan => format!("before the sum, only rank {}'s norm is not a number", self.rank),
            _ => format!("rank {} is the first to differ from the healthy run", self.rank),
        }
    }

    /// Returns the evidence for the first step.
    pub fn shows_step(&self) -> String {
        match self.kind {
            Kind::Slow => format!("the others' waits grow in step {}, and stay long", self.step),
            Kind::Nan => format!("step {} is the first in which a norm is not a number", self.step),
            Kind::Seed => "the first step already shows it".into(),
            _ => format!("up to step {} every rank's numbers equal the healthy run's", self.step - 1),
        }
    }

    /// Returns the evidence against `kind`.
    pub fn refutes(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Stale if self.kind == Kind::Seed => {
                "parameters differ in step 0 already, before any update that a rank could miss"
            }
            Kind::Stale => {
                "wherever parameters differ from the healthy run's, no rank has other parameters than its peers"
            }
            Kind::Seed => "in step 0 every rank computes with the healthy run's parameters",
            Kind::Divisor => {
                "no rank's own gradients jump to a multiple of the healthy run's while its loss stays"
            }
            Kind::Data => "no rank has a different loss while its parameters are the healthy run's",
            Kind::Drop => "every rank contributes gradients in every step",
            Kind::Slow => "ranks wait for each other no longer than before",
            _ => "every gradient is a number",
        }
    }

    /// Returns hints, from vague to almost the answer.
    pub fn hints(&self) -> [String; HINTS] {
        let look = match self.kind {
            Kind::Stale | Kind::Seed => {
                "Do all ranks compute with the same parameters? The last table has their fingerprints."
            }
            Kind::Divisor | Kind::Drop => {
                "Take the first row with a star: on which rank do the gradients differ from the healthy run's, but not the loss?"
            }
            Kind::Data => {
                "Take the first row with a star: on which rank does the loss differ from the healthy run's, but not the parameters?"
            }
            Kind::Slow => "No number has a star. Which ranks wait for others, and which rank never does?",
            _ => "The step in which it ended has a row in the second table.",
        };
        let when = match self.step.checked_sub(1) {
            Some(before) => format!("Compare step {before} with step {}.", self.step),
            None => "Look at step 0. Which rank starts with different weights?".into(),
        };
        [
            "What differs from the healthy run first: losses, gradient norms, parameters or times? And on how many ranks?".into(),
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
            (Kind::Seed, 0, "Look at step 0. Which rank starts with different weights?"),
        ] {
            assert_eq!(Finding { kind, rank: 1, step }.hints()[2], words);
        }
    }
}
