//! The time of a job's step.

use crate::clock::{Clock, StepTime};
use crate::cost::Costs;
use prediction::{Action, InvalidJob, Job};

/// The largest number of micro-batches that are walked: all after the second take the same time.
const WALKED: usize = 3;
/// The same if the writes of an update may continue beside several micro-batches.
const WALKED_BESIDE_WRITES: usize = 16;

/// A job's scripts, ready to be timed.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The step with as many micro-batches as are walked, and with one less.
    steps: [Vec<Action>; 2],
    /// The number of further micro-batches.
    further: usize,
    /// How often the step is run; the last run is timed.
    repeated: usize,
}

/// Runs of a step whose update may continue in the next one, after which all take the same time.
const REPEATED: usize = 4;

impl Estimate {
    /// Returns the scripts of `job`.
    ///
    /// # Errors
    /// [`InvalidJob`] if no run can have these numbers.
    pub fn of(job: &Job) -> Result<Self, InvalidJob> {
        let most = if job.placement.states_on_disk() { WALKED_BESIDE_WRITES } else { WALKED };
        let walked = job.micro_batches.min(most);
        let step = |micro_batches| -> Result<Vec<Action>, InvalidJob> {
            let [_, mut step] = prediction::scripts(&Job { micro_batches, ..job.clone() })?;
            step.retain(|action| !matches!(action, Action::Memory { .. }));
            Ok(step)
        };
        let further = job.micro_batches - walked;
        let fewer = if further > 0 { step(walked - 1)? } else { Vec::new() };
        let steps = [step(walked)?, fewer];
        let continues = steps[0].iter().any(|action| matches!(action, Action::Updated { .. }));
        Ok(Estimate { steps, further, repeated: if continues { REPEATED } else { 1 } })
    }

    /// Returns the time of a step.
    pub fn time(&self, costs: &Costs) -> StepTime {
        let [step, fewer] = self.steps.each_ref().map(|script| self.repeat(costs, script));
        let further = self.further as f64;
        step.with(fewer, |part, fewer| if further > 0.0 { part + further * (part - fewer) } else { part })
    }

    /// Returns the time of the last of several runs of `script`.
    fn repeat(&self, costs: &Costs, script: &[Action]) -> StepTime {
        let mut clock = Clock::default();
        let mut before = StepTime::default();
        for _ in 0..self.repeated {
            before = clock.time;
            clock.run(costs, script);
        }
        clock.time.with(before, |after, before| after - before)
    }
}

/// Returns the time of a step of `job` with these costs.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn estimate(job: &Job, costs: &Costs) -> Result<StepTime, InvalidJob> {
    Ok(Estimate::of(job)?.time(costs))
}
