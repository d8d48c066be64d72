//! Predicted runs: the events that every rank would emit, at the times that they would take.

mod writer;

use crate::cost::Costs;
use events::{Event, Operation, RunHeader, What};
use prediction::{Action, InvalidJob, Job, Prediction};
use std::collections::BTreeMap;
use writer::EventWriter;

/// A predicted run: its header, and its events, oldest first.
pub struct PredictedRun {
    /// The header.
    pub header: RunHeader,
    /// The events of all ranks. Losses, norms and learning rates are not numbers.
    pub events: Vec<Event>,
}

/// Maximum number of events of a predicted run, which is held in memory.
const MOST_EVENTS: usize = 20_000_000;
/// Maximum number of ranks of a recording.
const MOST_RANKS: usize = 1024;

/// True if `steps` steps of `job` are few enough to be recorded.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn is_recordable(job: &Job, steps: u32) -> Result<bool, InvalidJob> {
    let actions = |micro_batches| -> Result<usize, InvalidJob> {
        let step = prediction::first_step(&Job { micro_batches, ..job.clone() })?;
        Ok(step.iter().map(most_events).sum())
    };
    let (one, two) = (actions(1)?, actions(2)?);
    let of_step = one.saturating_add((two - one).saturating_mul(job.micro_batches - 1));
    let events = of_step.saturating_mul(steps as usize).saturating_mul(job.world_size);
    Ok(events <= MOST_EVENTS && job.world_size <= MOST_RANKS)
}

/// Returns the most events that an action becomes on a rank.
fn most_events(action: &Action) -> usize {
    match action {
        // Issued, started, crossed, finished; or a pass on the CPU, interrupted once.
        Action::Issue(_) | Action::OnCpu(_) => 4,
        _ => 2,
    }
}

/// Returns the run of `steps` steps of `job`, whose prediction is `prediction`. Its device has no
/// capacity if the job needs more: times are predicted as if memory sufficed.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn play(
    job: &Job,
    prediction: &Prediction,
    costs: &Costs,
    steps: u32,
) -> Result<PredictedRun, InvalidJob> {
    let predicted = prediction::header(job, prediction)?;
    let header = RunHeader {
        stage: format!("{} {}", predicted.stage, RunHeader::PREDICTED),
        device: costs.describe_device(),
        capacity: Some(costs.capacity()).filter(|capacity| *capacity >= prediction.peak.total()),
        precision: job.recipe.name.into(),
        steps,
        version: env!("CARGO_PKG_VERSION").into(),
        ..predicted
    };
    let [setup, step] = prediction::scripts(job)?;
    let first_step = prediction::first_step(job)?;
    let mut writer = EventWriter::new(job, costs);
    writer.join_groups();
    writer.act(&setup);
    for number in 0..steps {
        let began = writer.clock.now;
        writer.at_once(What::StepStarted { step: number });
        writer.act(if number == 0 { &first_step } else { &step });
        if number + 1 == steps {
            writer.complete_update();
        }
        let seconds = writer.clock.now - began;
        let tokens = (job.batch_size * job.tokens * job.micro_batches * job.world_size) as u64;
        let unknown = f64::NAN;
        writer.at_once(What::StepFinished {
            step: number,
            loss: unknown,
            grad_norm: unknown,
            lr: unknown,
            tokens,
            seconds,
        });
    }
    writer.finish(prediction);
    let mut events = writer.events;
    events.sort_by_key(|event| event.at);
    count_bytes(&mut events);
    Ok(PredictedRun { header, events })
}

/// Sums the bytes that each rank sends by each operation and moves over each route: what is in
/// flight ends in another order than the script issues it.
fn count_bytes(events: &mut [Event]) {
    let mut sent: BTreeMap<(u32, usize), u64> = BTreeMap::new();
    let mut moved = sent.clone();
    for Event { rank, what, .. } in events {
        match what {
            What::Collective(collective) => {
                let total = sent.entry((*rank, collective.operation.index())).or_default();
                *total += collective.sent;
                collective.sent = *total;
            }
            What::Transfer(transfer) => {
                let total = moved.entry((*rank, transfer.route.index())).or_default();
                *total += transfer.moved;
                transfer.moved = *total;
            }
            What::Finished { sent: all, .. } => {
                let of = |operation: Operation| sent.get(&(*rank, operation.index())).copied();
                *all = Operation::ALL.map(|operation| of(operation).unwrap_or(0)).to_vec();
            }
            _ => {}
        }
    }
}
