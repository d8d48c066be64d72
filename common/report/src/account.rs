//! Where the time of a step goes, from a run's report.

use crate::report::Report;
use crate::rows::{Clocks, TimeRow, Times};
use std::iter;

/// A rank's time in collectives, except for waits for ranks that have not issued them.
const EXPOSED: &str = "exposed communication";

/// Seconds of a step, the mean over ranks and steps.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Seconds of the whole step.
    pub step: f64,
    /// Fetching tokens.
    pub data: f64,
    /// Forward, without waits.
    pub forward: f64,
    /// Backward, without waits and without recomputation.
    pub backward: f64,
    /// Recomputation in backward.
    pub recompute: f64,
    /// The optimizer, without waits.
    pub optimizer: f64,
    /// Issuing collectives, and waits for those that all ranks have issued: communication that no
    /// computation hides.
    pub exposed: f64,
    /// Waits for a simulated link, part of `exposed`; in the rest of `exposed` data move.
    pub link: f64,
    /// Waits for collectives that other ranks have not issued.
    pub peers: f64,
    /// Waits for transfers between device, main memory and disk.
    pub places: f64,
    /// Time in which the rank's thread was ready but other threads had the core. With several
    /// threads per rank, or with GPUs, it counts as computing: the rank may have waited for its
    /// threads or its GPU.
    pub without_core: f64,
}

/// Returns the seconds of the phases of an optimizer step.
pub(crate) fn training(times: &Times) -> f64 {
    times.forward + times.backward + times.step
}

/// Returns the seconds for which a rank of `report` computes in a run, without its waits.
pub(crate) fn computed(report: &Report, row: &TimeRow) -> f64 {
    let Clocks { phases, waits, for_places, .. } = &row.clocks;
    training(phases) - training(waits) - training(for_places) - without_core(report, row, training)
}

/// Returns the seconds for which a rank of `report` waits for a core in `phases`; 0 if it may wait
/// for its other threads or its GPU instead.
fn without_core(report: &Report, row: &TimeRow, phases: fn(&Times) -> f64) -> f64 {
    let is_known = report.threads == 1 && report.gpu.is_empty();
    if is_known { phases(&row.clocks.off_processor) } else { 0.0 }
}

/// Returns the mean of [`without_core`] over the ranks and steps of `report`.
pub(crate) fn without_core_per_step(report: &Report, phases: fn(&Times) -> f64) -> f64 {
    per_step(report, |row| without_core(report, row, phases))
}

/// Returns the mean of `seconds` over the ranks and steps of `report`.
pub(crate) fn per_step(report: &Report, seconds: impl Fn(&TimeRow) -> f64) -> f64 {
    let each = (report.time.len().max(1) * report.steps.len().max(1)) as f64;
    report.time.iter().map(seconds).sum::<f64>() / each
}

impl Account {
    /// Returns the account of `report`'s run.
    pub fn of(report: &Report) -> Self {
        let mean = |seconds: fn(&Clocks) -> f64| per_step(report, |row| seconds(&row.clocks));
        let peers = mean(|of| training(&of.for_peers));
        let without_core = |phases| without_core_per_step(report, phases);
        let backward = mean(|of| of.phases.backward - of.waits.backward - of.for_places.backward)
            - without_core(|of| of.backward);
        let recompute = mean(|of| of.phases.recompute) - without_core(|of| of.recompute);
        Account {
            step: per_step(report, |row| row.seconds),
            data: mean(|of| of.phases.data),
            forward: mean(|of| of.phases.forward - of.waits.forward - of.for_places.forward)
                - without_core(|of| of.forward),
            backward: backward - recompute,
            recompute,
            optimizer: mean(|of| of.phases.step - of.waits.step - of.for_places.step)
                - without_core(|of| of.step),
            without_core: without_core(training),
            exposed: mean(|of| training(&of.waits)) - peers,
            link: mean(|of| training(&of.for_link)),
            peers,
            places: mean(|of| training(&of.for_places)),
        }
    }

    fn parts(&self) -> [(&'static str, f64); 9] {
        [
            ("forward", self.forward),
            ("backward", self.backward),
            ("activations recomputed", self.recompute),
            ("optimizer", self.optimizer),
            (EXPOSED, self.exposed),
            ("waiting for other ranks", self.peers),
            ("waiting for a core", self.without_core),
            ("waiting for offload", self.places),
            ("fetching data", self.data),
        ]
    }

    /// Returns the parts and their components, in order.
    pub(crate) fn rows(&self) -> Vec<(&'static str, f64)> {
        let named = self.parts().into_iter().chain([("the rest", self.rest())]);
        let inside = [("  moving data", self.exposed - self.link), ("  waiting for the link", self.link)];
        let rows = named.flat_map(|part| {
            let has_several = part.0 == EXPOSED && self.link > 0.0;
            iter::once(part).chain(inside.into_iter().filter(move |_| has_several))
        });
        rows.collect()
    }

    /// Returns the seconds outside all parts: mostly emitting events.
    fn rest(&self) -> f64 {
        (self.step - self.parts().iter().map(|part| part.1).sum::<f64>()).max(0.0)
    }

    /// Returns the seconds for which a rank computes, without recomputation and the optimizer.
    pub(crate) fn useful(&self) -> f64 {
        self.forward + self.backward
    }
}

/// The cost of activation checkpointing per rank and step.
pub(crate) struct Recomputed {
    /// Floating-point operations of recomputation, as predicted.
    pub operations: u64,
    /// Share of these operations in all operations.
    pub of_operations: f64,
    /// Seconds of recomputation, as measured.
    pub seconds: f64,
    /// Share of these seconds in all computing time.
    pub of_seconds: f64,
}

impl Recomputed {
    /// Returns the cost in `report`'s run; `None` if it recomputes nothing.
    pub(crate) fn of(report: &Report) -> Option<Self> {
        let (model, speed) = (&report.model, &report.throughput);
        let again = speed.recomputed_flops_per_token;
        let account = Account::of(report);
        (again > 0).then(|| Recomputed {
            operations: again * (model.micro_batches * model.batch_size * model.sequence_length) as u64,
            of_operations: again as f64 / (again + speed.flops_per_token) as f64,
            seconds: account.recompute,
            of_seconds: account.recompute / (account.recompute + account.useful()),
        })
    }

    /// Formats the number of operations with its unit.
    pub(crate) fn operations(&self) -> String {
        match self.operations as f64 {
            n if n < 1e6 => format!("{:.2} kFLOP", n / 1e3),
            n if n < 1e9 => format!("{:.2} MFLOP", n / 1e6),
            n if n < 1e12 => format!("{:.2} GFLOP", n / 1e9),
            n => format!("{:.2} TFLOP", n / 1e12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::waiting;

    #[test]
    fn a_step_is_the_sum_of_its_parts() {
        let account = Account::of(&waiting("--gpus 2 --link 1ms,20MB/s --checkpoint-activations block"));
        let sum = account.parts().iter().map(|part| part.1).sum::<f64>() + account.rest();
        assert!((sum - account.step).abs() < 1e-9, "{sum} of {}", account.step);
    }
}
