//! The prediction of a run, rank by rank.

use crate::invalid::InvalidJob;
use crate::job::Job;
use crate::ledger::Memory;
use crate::moment::Peak;
use crate::partition::{Partition, Unit};
use crate::phases::PerPhase;
use crate::script::Action;
use crate::theory::theory;
use crate::traffic::{Sender, Traffic};
use crate::transfers::Transfers;
use crate::walk::{Walk, WalkResult, WalkedStart, WalkedStep};
use events::header::{PredictedBytes, Sweep};
use events::{Class, Operation, Place};

/// The memory and traffic of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The units, in forward order.
    pub units: Vec<Unit>,
    /// The memory and traffic of each rank.
    pub ranks: Vec<RankPrediction>,
    /// A step's collectives: the number of ranks that take part, the operation, and the number of
    /// calls.
    pub calls: Vec<(u64, Operation, u64)>,
    /// The moment at which a rank's memory is at its peak; the same on every rank.
    pub peak: Peak,
    /// A step's collectives by closed form, as a run's header lists them.
    pub theory: Vec<Sweep>,
}

/// The memory and traffic of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPrediction {
    /// Peak bytes on its device, over steps and evaluations.
    pub memory: Memory,
    /// Peak bytes in main memory that is not its device's.
    pub host: Memory,
    /// Bytes on disk.
    pub disk: Memory,
    /// The collectives and bytes that it sends.
    pub traffic: PerPhase<Traffic>,
    /// The bytes that it moves between device, main memory and disk.
    pub transfers: PerPhase<Transfers>,
    /// The bytes of its traffic that stay in its group of neighbours; 0 without such groups.
    pub to_neighbours: PerPhase<u64>,
    /// The part of a step's `to_neighbours` that is model states: all but scalars.
    pub payload_to_neighbours: u64,
}

impl RankPrediction {
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
    pub fn memory_header(&self) -> Vec<PredictedBytes<Class>> {
        self.rows(&Class::ALL, |rank, class| rank.memory.peak(class))
    }

    /// Returns peak bytes per rank over all classes together, as a run's header lists them.
    pub fn total_header(&self) -> Vec<u64> {
        self.ranks.iter().map(|rank| rank.memory.total_peak).collect()
    }

    /// Returns payload bytes per rank, operation and step, as a run's header lists them.
    pub fn traffic_header(&self) -> Vec<PredictedBytes<Operation>> {
        self.rows(&Operation::ALL, |rank, operation| rank.traffic.step.bytes(operation))
    }

    fn rows<K: Copy>(&self, all: &[K], bytes: impl Fn(&RankPrediction, K) -> u64) -> Vec<PredictedBytes<K>> {
        let ranks = (0..).zip(&self.ranks).flat_map(|rank| all.iter().map(move |&of| (rank, of)));
        ranks
            .map(|((rank, predicted), of)| PredictedBytes { rank, of, bytes: bytes(predicted, of) })
            .collect()
    }
}

/// Predicts `job`'s memory and traffic to the byte.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn predict(job: &Job) -> Result<Prediction, InvalidJob> {
    job.validate()?;
    let partition = Partition::of(job);
    let WalkResult { memory: [memory, host, disk], peak, counters } =
        Walk::new(job, &partition).run(WalkedStep::Updated);
    let ranks = job.world_size as u64;
    let of_rank = |rank: u64| {
        let sender = Sender { algorithm: job.algorithm, ranks, rank };
        RankPrediction {
            memory,
            host,
            disk,
            traffic: counters.phases.map(|counter| counter.of(sender)),
            transfers: counters.phases.map(|counter| counter.transfers),
            to_neighbours: counters.phases.map(|counter| counter.to_neighbours(sender)),
            payload_to_neighbours: counters.phases.step.payload_to_neighbours(sender),
        }
    };
    let theory = theory(job, &partition, counters.kept);
    let calls = counters.phases.step.calls(Sender { algorithm: job.algorithm, ranks, rank: 0 });
    Ok(Prediction { ranks: (0..ranks).map(of_rank).collect(), calls, units: partition.units, peak, theory })
}

/// Returns the peak bytes of a rank of `job` in each place, the same for all ranks, if every step
/// is skipped because gradients overflow.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn peaks_without_updates(job: &Job) -> Result<[Memory; Place::ALL.len()], InvalidJob> {
    job.validate()?;
    Ok(Walk::new(job, &Partition::of(job)).run(WalkedStep::Skipped).memory)
}

/// Returns what a rank of `job` does in program order: at setup, and in a step that follows
/// another.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn scripts(job: &Job) -> Result<[Vec<Action>; 2], InvalidJob> {
    job.validate()?;
    Ok(Walk::new(job, &Partition::of(job)).scripts(WalkedStart::AfterUpdate))
}

/// Returns what a rank of `job` does in its first step, which no update precedes.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn first_step(job: &Job) -> Result<Vec<Action>, InvalidJob> {
    job.validate()?;
    let [_, step] = Walk::new(job, &Partition::of(job)).scripts(WalkedStart::Fresh);
    Ok(step)
}

/// The memory that one rank of a job requires, and the bytes that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// Peak bytes over all classes together, in [`Place::ALL`]'s order.
    pub peaks: [u64; Place::ALL.len()],
    /// Bytes moved between these places per step.
    pub moves: u64,
}

/// Maximum number of micro-batches that [`requirements`] walks. The third begins with everything
/// that earlier micro-batches can leave in flight: if a backward fills one bucket, the first's
/// gradients arrive in main memory and the second's are being reduced. Each later micro-batch
/// begins in the same state, so its peak is the same.
const WALKED: usize = 3;

/// Returns the requirements of one rank of `job`, from few of its micro-batches.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn requirements(job: &Job) -> Result<Requirements, InvalidJob> {
    job.validate()?;
    let walked = job.micro_batches.min(WALKED);
    let fewer = Job { micro_batches: walked, ..job.clone() };
    let partition = Partition::of(&fewer);
    let WalkResult { memory, counters, .. } = Walk::new(&fewer, &partition).run(WalkedStep::Updated);
    let PerPhase { step, skipped_step, reread, .. } =
        counters.phases.map(|counter| counter.transfers.total_bytes());
    // Bytes that the micro-batches move, the same for each: the first forward's saving is added
    // back.
    let passes = skipped_step - counters.ahead.total_bytes() + reread;
    let more = (job.micro_batches - walked) as u64;
    let moves = step + passes / walked as u64 * more;
    Ok(Requirements { peaks: memory.map(|memory| memory.total_peak), moves })
}
