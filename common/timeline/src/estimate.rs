//! The time of a job's step.

use crate::clock::{Clock, StepTime};
use crate::cost::Costs;
use prediction::{Action, InvalidJob, Job};

/// The largest number of micro-batches that are walked: all after the second take the same time.
const WALKED: usize = 3;

/// A job's scripts, ready to be timed.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The step with as many micro-batches as are walked, and with one less.
    steps: [Vec<Action>; 2],
    /// The number of further micro-batches.
    further: usize,
}

impl Estimate {
    /// Returns the scripts of `job`.
    ///
    /// # Errors
    /// [`InvalidJob`] if no run can have these numbers.
    pub fn of(job: &Job) -> Result<Self, InvalidJob> {
        let walked = job.micro_batches.min(WALKED);
        let step = |micro_batches| -> Result<Vec<Action>, InvalidJob> {
            let [_, mut step] = prediction::scripts(&Job { micro_batches, ..job.clone() })?;
            step.retain(|action| !matches!(action, Action::Memory { .. }));
            Ok(step)
        };
        let further = job.micro_batches - walked;
        let fewer = if further > 0 { step(walked - 1)? } else { Vec::new() };
        Ok(Estimate { steps: [step(walked)?, fewer], further })
    }

    /// Returns the time of a step.
    pub fn time(&self, costs: &Costs) -> StepTime {
        let [step, fewer] = self.steps.each_ref().map(|script| {
            let mut clock = Clock::default();
            clock.run(costs, script);
            clock.time
        });
        if self.further == 0 {
            return step;
        }
        let further = self.further as f64;
        let all = |part: fn(&StepTime) -> f64| part(&step) + further * (part(&step) - part(&fewer));
        StepTime {
            compute: all(|time| time.compute),
            recompute: all(|time| time.recompute),
            exposed: all(|time| time.exposed),
            update: all(|time| time.update),
            communication: all(|time| time.communication),
        }
    }
}

/// Returns the time of a step of `job` with these costs.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn estimate(job: &Job, costs: &Costs) -> Result<StepTime, InvalidJob> {
    Ok(Estimate::of(job)?.time(costs))
}
