//! The prediction of a run, rank by rank.

use crate::invalid::InvalidJob;
use crate::job::Job;
use crate::ledger::Memory;
use crate::moment::Peak;
use crate::partition::{Partition, Unit};
use crate::theory::theory;
use crate::traffic::{Sender, Traffic};
use crate::transfers::Transfers;
use crate::walk::{Walk, Walked};
use events::header::{PredictedMemory, PredictedTraffic, Sweep};
use events::{Class, Operation, Place};
use serde::Serialize;

/// What a job needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The units, in forward order.
    pub units: Vec<Unit>,
    /// What each rank needs.
    pub ranks: Vec<RankPrediction>,
    /// The moment at which a rank's memory is at its peak; the same on every rank.
    #[serde(skip)]
    pub peak: Peak,
    /// A step's collectives by closed form, as a run's header lists them.
    #[serde(skip)]
    pub theory: Vec<Sweep>,
}

/// What one rank needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RankPrediction {
    /// Peak bytes on its device, over steps and evaluations.
    pub memory: Memory,
    /// Peak bytes in main memory that is not its device's.
    #[serde(skip_serializing_if = "Memory::is_none")]
    pub host: Memory,
    /// Bytes on disk.
    #[serde(skip_serializing_if = "Memory::is_none")]
    pub disk: Memory,
    /// What it sends before the first step.
    pub traffic_setup: Traffic,
    /// What it sends per optimizer step.
    pub traffic_per_step: Traffic,
    /// What it sends in a step that is skipped because a scaled loss's gradients overflowed.
    pub traffic_per_skipped_step: Traffic,
    /// What it sends per evaluation, without its batches.
    pub traffic_per_evaluation: Traffic,
    /// What it sends per batch of an evaluation.
    pub traffic_per_evaluation_batch: Traffic,
    /// What it sends for a checkpoint between two steps.
    pub traffic_per_checkpoint: Traffic,
    /// What it moves between device, main memory and disk before the first step.
    #[serde(skip_serializing_if = "Transfers::is_none")]
    pub transfers_setup: Transfers,
    /// What it moves per optimizer step.
    #[serde(skip_serializing_if = "Transfers::is_none")]
    pub transfers_per_step: Transfers,
    /// What it moves in a step that is skipped.
    #[serde(skip_serializing_if = "Transfers::is_none")]
    pub transfers_per_skipped_step: Transfers,
    /// What it moves per batch of an evaluation.
    #[serde(skip_serializing_if = "Transfers::is_none")]
    pub transfers_per_evaluation_batch: Transfers,
    /// What it moves for a checkpoint between two steps.
    #[serde(skip_serializing_if = "Transfers::is_none")]
    pub transfers_per_checkpoint: Transfers,
    /// The bytes of its traffic that stay in its group of neighbours, where there are such groups.
    pub to_neighbours: NeighbourBytes,
}

/// Bytes that one rank sends in its group of neighbours, in the parts of a run that
/// [`RankPrediction`] has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NeighbourBytes {
    /// Per optimizer step.
    pub per_step: u64,
    /// Per skipped step.
    pub per_skipped_step: u64,
    /// Per batch of an evaluation.
    pub per_evaluation_batch: u64,
    /// Per checkpoint between two steps.
    pub per_checkpoint: u64,
}

/// The parts of a run that send something, and how often each happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Optimizer steps that updated something.
    pub steps: u64,
    /// Steps that were skipped.
    pub skipped: u64,
    /// Evaluations.
    pub evaluations: u64,
    /// Batches of all of them.
    pub evaluation_batches: u64,
    /// Checkpoints between two steps.
    pub checkpoints: u64,
}

impl NeighbourBytes {
    /// Returns the bytes of a whole run.
    pub fn total(&self, done: Done) -> u64 {
        done.steps * self.per_step
            + done.skipped * self.per_skipped_step
            + done.evaluation_batches * self.per_evaluation_batch
            + done.checkpoints * self.per_checkpoint
    }
}

impl RankPrediction {
    /// Returns what the rank sends in a whole run.
    pub fn traffic(&self, done: Done) -> Traffic {
        let mut total = self.traffic_setup;
        total.add(&self.traffic_per_step, done.steps);
        total.add(&self.traffic_per_skipped_step, done.skipped);
        total.add(&self.traffic_per_evaluation, done.evaluations);
        total.add(&self.traffic_per_evaluation_batch, done.evaluation_batches);
        total.add(&self.traffic_per_checkpoint, done.checkpoints);
        total
    }

    /// Returns what the rank moves between device, main memory and disk in a whole run.
    pub fn transfers(&self, done: Done) -> Transfers {
        let mut total = self.transfers_setup;
        total.add(&self.transfers_per_step, done.steps);
        total.add(&self.transfers_per_skipped_step, done.skipped);
        total.add(&self.transfers_per_evaluation_batch, done.evaluation_batches);
        total.add(&self.transfers_per_checkpoint, done.checkpoints);
        total
    }

    /// Returns the peak bytes in `place`.
    pub fn place(&self, place: Place) -> Memory {
        match place {
            Place::Device => self.memory,
            Place::Host => self.host,
            Place::Disk => self.disk,
        }
    }
}

impl Prediction {
    /// Returns peak bytes per rank and class, as a run's header lists them.
    pub fn memory_header(&self) -> Vec<PredictedMemory> {
        let per_rank = |(rank, predicted): (usize, &RankPrediction)| {
            let memory = predicted.memory;
            Class::ALL.iter().map(move |&class| PredictedMemory {
                rank: rank as u32,
                class,
                bytes: memory.peak(class),
            })
        };
        self.ranks.iter().enumerate().flat_map(per_rank).collect()
    }

    /// Returns peak bytes per rank over all classes together, as a run's header lists them.
    pub fn total_header(&self) -> Vec<u64> {
        self.ranks.iter().map(|rank| rank.memory.total_peak).collect()
    }

    /// Returns payload bytes per rank, operation and step, as a run's header lists them.
    pub fn traffic_header(&self) -> Vec<PredictedTraffic> {
        let per_rank = |(rank, predicted): (usize, &RankPrediction)| {
            let traffic = predicted.traffic_per_step;
            Operation::ALL.iter().map(move |&operation| PredictedTraffic {
                rank: rank as u32,
                operation,
                bytes: traffic.bytes(operation),
            })
        };
        self.ranks.iter().enumerate().flat_map(per_rank).collect()
    }
}

/// Predicts `job`'s memory and traffic to the byte.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn predict(job: &Job) -> Result<Prediction, InvalidJob> {
    job.validate()?;
    let partition = Partition::of(job);
    let Walked { memory: [memory, host, disk], peak, counters } = Walk::new(job, &partition).run();
    let ranks = job.world_size as u64;
    let of_rank = |rank: u64| {
        let sender = Sender { algorithm: job.algorithm, ranks, rank };
        RankPrediction {
            memory,
            host,
            disk,
            traffic_setup: counters.setup.of(sender),
            traffic_per_step: counters.step.of(sender),
            traffic_per_skipped_step: counters.skipped_step.of(sender),
            traffic_per_evaluation: counters.evaluation.of(sender),
            traffic_per_evaluation_batch: counters.evaluation_batch.of(sender),
            traffic_per_checkpoint: counters.checkpoint.of(sender),
            transfers_setup: counters.setup.transfers,
            transfers_per_step: counters.step.transfers,
            transfers_per_skipped_step: counters.skipped_step.transfers,
            transfers_per_evaluation_batch: counters.evaluation_batch.transfers,
            transfers_per_checkpoint: counters.checkpoint.transfers,
            to_neighbours: NeighbourBytes {
                per_step: counters.step.to_neighbours(sender),
                per_skipped_step: counters.skipped_step.to_neighbours(sender),
                per_evaluation_batch: counters.evaluation_batch.to_neighbours(sender),
                per_checkpoint: counters.checkpoint.to_neighbours(sender),
            },
        }
    };
    let theory = theory(job, &partition, counters.kept);
    Ok(Prediction { ranks: (0..ranks).map(of_rank).collect(), units: partition.units, peak, theory })
}

/// Returns the peak bytes of a rank of `job` in each place, the same for all ranks, if every step is
/// skipped because gradients overflow.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn peaks_without_updates(job: &Job) -> Result<[Memory; Place::ALL.len()], InvalidJob> {
    job.validate()?;
    Ok(Walk::new(job, &Partition::of(job)).run_without_update().memory)
}

/// What one rank of a job needs.
pub(crate) struct Needs {
    /// Peak bytes over all classes together, in [`Place::ALL`]'s order.
    pub(crate) peaks: [u64; Place::ALL.len()],
    /// Bytes moved between these places per step.
    pub(crate) moves: u64,
}

/// Returns what one rank of `job` needs.
pub(crate) fn needs(job: &Job) -> Result<Needs, InvalidJob> {
    job.validate()?;
    // From the second micro-batch on, each begins with the same collectives in flight, so its peak
    // is the same, and each moves as much.
    let walked = job.micro_batches.min(2);
    let fewer = Job { micro_batches: walked, ..job.clone() };
    let partition = Partition::of(&fewer);
    let Walked { memory, counters, .. } = Walk::new(&fewer, &partition).run();
    let [step, skipped] =
        [counters.step, counters.skipped_step].map(|counter| counter.transfers.total_bytes());
    let passes = skipped - counters.ahead.total_bytes();
    let moves = step - passes + passes / walked as u64 * job.micro_batches as u64;
    Ok(Needs { peaks: memory.map(|memory| memory.total_peak), moves })
}
