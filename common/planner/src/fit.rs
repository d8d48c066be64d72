//! Which stages fit under a capacity, and with how large a micro-batch.

use crate::invalid::InvalidJob;
use crate::job::Job;
use crate::placement::Limits;
use crate::predict::{Needs, needs};
use crate::recipe::ByteUnit;
use crate::stage::Stage;
use crate::table::{Scale, Table, grouped};
use serde::Serialize;

/// Which stages fit, and with how large a micro-batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// Bytes of a rank's device.
    pub capacity: u64,
    /// One entry per stage, in [`Stage::ALL`]'s order.
    pub stages: Vec<StageFit>,
}

/// How one stage fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StageFit {
    /// The stage.
    pub stage: Stage,
    /// Peak bytes per rank of the job as it is.
    pub total_peak: u64,
    /// Whether the peak is within the capacity.
    pub fits: bool,
    /// Most sequences per micro-batch within the capacity; `None` if not even one fits.
    pub largest_batch: Option<usize>,
    /// Peak bytes per rank of the job as it is in main memory that is not its device's.
    pub host: u64,
    /// Bytes per rank on disk.
    pub disk: u64,
    /// Bytes that a rank moves between these places per step.
    pub moves: u64,
}

impl Fit {
    /// Returns a table of the stages: the peak of each, whether it fits, its largest micro-batch,
    /// and if states leave the device, where they rest and what moves.
    pub fn table(&self) -> Table {
        let needs = self.stages.iter().map(|stage| stage.total_peak);
        let scale = Scale::suiting(needs.clone().max().unwrap_or(0).max(self.capacity), ByteUnit::Gigabyte);
        let title = format!("of {} {} per rank", scale.show(self.capacity), scale.label());
        let mut table = Table::numbers(title, self.stages.iter().map(|stage| stage.stage));
        table.row(format!("peak, {}", scale.label()), needs.map(|bytes| scale.show(bytes)));
        table.row("fits", self.stages.iter().map(|stage| if stage.fits { "yes" } else { "no" }));
        let largest =
            |stage: &StageFit| stage.largest_batch.map_or("none".into(), |batch| grouped(batch as u64));
        table.row("largest micro-batch", self.stages.iter().map(largest));
        if self.stages.iter().any(|stage| stage.moves > 0) {
            let mut row = |name: &str, bytes: fn(&StageFit) -> u64| {
                let bytes = self.stages.iter().map(bytes);
                table.row(format!("{name}, {}", scale.label()), bytes.map(|bytes| scale.show(bytes)));
            };
            row("main memory", |stage| stage.host);
            row("disk", |stage| stage.disk);
            row("moved per step", |stage| stage.moves);
        }
        table
    }
}

/// Predicts `job` at every stage against `capacity` bytes per rank. A rank's peak grows with the
/// micro-batch, so bisection finds the largest that fits.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn explain_fit(job: &Job, capacity: u64) -> Result<Fit, InvalidJob> {
    let stage_fit = |stage: Stage| {
        let job = job.with_stage(stage);
        let Needs { peaks: [device, host, disk], moves } = needs(&job)?;
        let largest_batch = largest_batch_within(&job, [Some(capacity), None, None]);
        Ok(StageFit { stage, total_peak: device, fits: device <= capacity, largest_batch, host, disk, moves })
    };
    let stages = Stage::ALL.into_iter().map(stage_fit).collect::<Result<_, InvalidJob>>()?;
    Ok(Fit { capacity, stages })
}

/// Returns the most sequences per micro-batch with which `job` stays within `limits`; `None` if not
/// even one does.
pub fn largest_batch_within(job: &Job, limits: Limits) -> Option<usize> {
    let fits = |needs: Needs| {
        let mut places = needs.peaks.into_iter().zip(limits);
        places.all(|(peak, limit)| limit.is_none_or(|limit| peak <= limit))
    };
    largest_batch(job, |job| needs(job).is_ok_and(fits))
}

/// Returns the most sequences per micro-batch with which `job` still `fits`.
pub(crate) fn largest_batch(job: &Job, fits: impl Fn(&Job) -> bool) -> Option<usize> {
    let fits = |batch_size: usize| fits(&Job { batch_size, ..job.clone() });
    let mut too_large = 1;
    while fits(too_large) {
        too_large *= 2;
    }
    let mut largest = too_large / 2;
    while too_large - largest > 1 {
        let middle = largest + (too_large - largest) / 2;
        if fits(middle) { largest = middle } else { too_large = middle }
    }
    (largest > 0).then_some(largest)
}
