//! DeepSpeed's batch rule: `train_batch_size = train_micro_batch_size_per_gpu ×
//! gradient_accumulation_steps × world size`.
//!
//! Any two numbers determine the third. With only the first or the second there is one micro-batch
//! per step; with neither, flags and preset supply the micro-batch. If no flag, launcher or key
//! gives the world size and the batch does not fit the default one, the run uses the largest world
//! size that divides the batch, or the one that all three keys imply. Otherwise a product that does
//! not match is an error that names all four numbers.

use crate::keys::contradiction;
use crate::mesh;
use settings::cli::{RANKS, TrainArgs};
use settings::findings::Findings;

/// A number, and whether it was typed on the command line.
#[derive(Clone, Copy)]
struct Count {
    value: usize,
    typed: bool,
}

/// Resolves the batch of `args` from its flags and its file's keys.
pub(crate) fn settle(args: &mut TrainArgs, findings: &mut Findings) -> Result<(), String> {
    let may_choose_ranks = mesh::ranks_are_open(args, findings);
    let batch = args.file_only.batch;
    let typed = |id: &str, value: Option<usize>| value.filter(|_| args.given.typed(id).is_some());
    let micro = typed("batch_size", args.training.batch_size);
    let micro = choose(findings, (MICRO, batch.micro), ("--batch-size", micro));
    let accumulation = typed("grad_accum", Some(args.training.grad_accum));
    let accumulation = choose(findings, (ACCUMULATION, batch.accumulation), ("--grad-accum", accumulation));
    let Some(total) = batch.total else {
        args.training.batch_size = micro.map(|count| count.value).or(args.training.batch_size);
        args.training.grad_accum = accumulation.map_or(1, |count| count.value);
        return Ok(());
    };
    let rule = Rule { total, micro, accumulation, group: mesh::group(args) };
    if may_choose_ranks {
        args.gpus = rule.choose_ranks(args.gpus, findings);
    }
    let (m, a) = rule.split(args.gpus);
    rule.check(args.gpus, findings)?;
    (args.training.batch_size, args.training.grad_accum) = (Some(m), a);
    Ok(())
}

/// Returns the number typed on the command line, or else the file's. Warns if both are given and
/// differ.
fn choose(
    findings: &mut Findings,
    (key, in_file): (&str, Option<usize>),
    (flag, typed): (&str, Option<usize>),
) -> Option<Count> {
    if let (Some(in_file), Some(typed)) = (in_file, typed)
        && in_file != typed
    {
        let Findings { file, warnings, .. } = findings;
        warnings.push(contradiction(file, &format!("{key} {in_file}"), flag, &typed.to_string()));
    }
    let typed = typed.map(|value| Count { value, typed: true });
    typed.or(in_file.map(|value| Count { value, typed: false }))
}

const TOTAL: &str = "train_batch_size";
const MICRO: &str = "train_micro_batch_size_per_gpu";
const ACCUMULATION: &str = "gradient_accumulation_steps";

/// The rule's numbers, of ranks in groups of `group`.
struct Rule {
    total: usize,
    micro: Option<Count>,
    accumulation: Option<Count>,
    group: usize,
}

impl Rule {
    /// Returns micro-batch and accumulation; derives a missing one from the other, rounded down as
    /// in DeepSpeed before it compares.
    fn split(&self, ranks: usize) -> (usize, usize) {
        match (self.micro.map(|count| count.value), self.accumulation.map(|count| count.value)) {
            (Some(m), Some(a)) => (m, a),
            (Some(m), None) => (m, self.total / ranks / m),
            (None, a) => (self.total / ranks / a.unwrap_or(1), a.unwrap_or(1)),
        }
    }

    /// Returns the number of ranks that fits the batch and the groups: the one that follows from
    /// all three keys, else the largest up to `ranks`; `None` if no number does.
    fn fitting(&self, ranks: usize) -> Option<usize> {
        let fits = |&ranks: &usize| {
            let (m, a) = self.split(ranks);
            product([m, a, ranks]) == self.total as u128 && ranks.is_multiple_of(self.group)
        };
        match (self.micro, self.accumulation) {
            (Some(m), Some(a)) => {
                let ranks = self.total.checked_div(m.value.saturating_mul(a.value))?;
                Some(ranks).filter(|&ranks| ranks as u64 <= RANKS).filter(fits)
            }
            _ => (1..=ranks).rev().find(fits),
        }
    }

    /// Returns a number of ranks that fits the batch, or `ranks`, the default, if none does. Warns
    /// if it is not the default.
    fn choose_ranks(&self, ranks: usize, findings: &mut Findings) -> usize {
        let Some(fitting) = self.fitting(ranks).filter(|&fitting| fitting != ranks) else { return ranks };
        let Findings { file, warnings, .. } = findings;
        warnings.push(format!(
            "{file}: {TOTAL} {} does not fit {ranks} ranks, the default: with {fitting} it does (--gpus)",
            self.total
        ));
        fitting
    }

    /// Checks that the product is the file's batch. If it is not because of flags, these count, and
    /// this only warns.
    fn check(&self, ranks: usize, findings: &mut Findings) -> Result<(), String> {
        let (m, a) = self.split(ranks);
        let per_step = product([m, a, ranks]);
        if per_step == self.total as u128 {
            return Ok(());
        }
        let is_typed = [self.micro, self.accumulation].into_iter().flatten().any(|count| count.typed);
        if !is_typed || m == 0 || a == 0 {
            return Err(self.mismatch(ranks));
        }
        let Findings { file, warnings, .. } = findings;
        warnings.push(format!(
            "{file}: {TOTAL} {} and the command line disagree: the flags count, {per_step} sequences per step",
            self.total
        ));
        Ok(())
    }

    /// True if the batch fits `ranks` ranks with another micro-batch or another accumulation. A
    /// missing number is derived, so it may take any value.
    fn fits_otherwise(&self, ranks: usize) -> bool {
        let fits = |changed: Option<Count>, kept: Option<Count>| {
            let others = product([kept.map_or(1, |count| count.value), ranks, 1]);
            changed.is_some() && (self.total as u128).is_multiple_of(others)
        };
        fits(self.micro, self.accumulation) || fits(self.accumulation, self.micro)
    }

    fn mismatch(&self, ranks: usize) -> String {
        let ((m, a), total) = (self.split(ranks), self.total);
        let remedy = match self.fitting(ranks) {
            Some(gpus) => format!("--gpus {gpus} would match; or change one of the others."),
            None if self.fits_otherwise(ranks) => format!("Change one of the four, or leave {TOTAL} out."),
            None => {
                let fitting = product([m.max(1), a.max(1), ranks]);
                format!("Change {TOTAL} ({fitting} fits), or leave it out.")
            }
        };
        let derived = |count: Option<Count>| if count.is_none() { " (derived)" } else { "" };
        format!(
            "{TOTAL} {total} is not {MICRO} {m}{} × {ACCUMULATION} {a}{} × world size {ranks} (--gpus)\n{remedy}",
            derived(self.micro),
            derived(self.accumulation),
        )
    }
}

fn product(numbers: [usize; 3]) -> u128 {
    numbers.iter().fold(1, |product: u128, &number| product.saturating_mul(number as u128))
}

#[cfg(test)]
mod tests;
