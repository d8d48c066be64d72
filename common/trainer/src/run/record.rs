//! The records of a run on one rank: emits events and progress reports of each finished step, and
//! collects measurements for the report.

use crate::clocks::PhaseSeconds;
use crate::hooks::Hooks;
use crate::plan::Plan;
use crate::rank_error::Result;
use device::{Class, Ledger, Place};
use events::{Began, Boundary, Operation, What};
use offload::TransferCounters;
use report::{Clocks, GpuRow, KernelRow, Measured, Peaks, StepRow, UNTIMED};
use settings::fault::Phase;
use sharding::{DeferredUpdateCost, Rank, Update, Usage};
use std::rc::Rc;
use std::time::Duration;

/// A progress report of one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunEvent<'a> {
    /// A finished step, and the rank's peak of device memory in bytes.
    Step(&'a StepRow, u64),
    /// The number of steps done, and the validation loss after them.
    Validation(u32, f64),
    /// The number of steps done, and why their checkpoint was not saved; `None` if it was.
    Checkpoint(u32, Option<&'a str>),
}

/// The outcome of a step, the same on every rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepOutcome {
    /// Norm of the averaged gradient over all parameters, before clipping; not finite if it
    /// overflowed.
    pub(super) grad_norm: f64,
    /// True if gradients overflowed, so that nothing was updated.
    pub(super) skipped: bool,
}

/// Called by every rank with its number.
pub(crate) type Observer<'a> = dyn Fn(usize, RunEvent<'_>) + Sync + 'a;

/// The steps and measurements of one rank so far.
pub(super) struct Record<'a> {
    plan: &'a Plan,
    rank: Rc<Rank>,
    hooks: Rc<Hooks>,
    observer: &'a Observer<'a>,
    steps: Vec<StepRow>,
    evaluations: Vec<(u32, f64)>,
    validation_transfers: TransferCounters,
    /// The transfers of setup and checkpoints.
    other_transfers: TransferCounters,
    checkpoints: u64,
    /// Number of steps that began when no update of offloaded states was in progress.
    fresh_starts: u64,
    /// True if the current step is one of them.
    starts_fresh: bool,
    /// When the current step began.
    began: Began,
    /// The time for which an interrupted step continued the previous update; `None` if no step or
    /// validation was interrupted.
    interrupted: Option<Duration>,
    /// The meters as of the last complete step, or the validation and the checkpoint after it.
    readings: MeterReadings,
}

/// Returns the peaks of `ledger`, by place.
pub(super) fn peaks(ledger: &Ledger) -> Vec<Peaks> {
    let of = |&place: &Place| {
        let classes = Class::ALL.iter().map(|&class| ledger.peak(place, class)).collect();
        Peaks { classes, total: ledger.peak_total(place) }
    };
    Place::ALL.iter().map(of).collect()
}

/// A rank's traffic, transfers and kernels, and where its time went.
#[derive(Clone, Copy)]
struct MeterReadings {
    usage: Usage,
    /// The cost of updates after the steps that began them.
    deferred_cost: DeferredUpdateCost,
    clocks: Clocks,
}

impl<'a> Record<'a> {
    /// Returns an empty record of `rank`, which reports to `observer`.
    pub(super) fn new(plan: &'a Plan, rank: Rc<Rank>, hooks: Rc<Hooks>, observer: &'a Observer<'a>) -> Self {
        Record {
            plan,
            observer,
            steps: Vec::new(),
            evaluations: Vec::new(),
            validation_transfers: TransferCounters::default(),
            other_transfers: rank.transfers.moved(),
            checkpoints: 0,
            fresh_starts: 0,
            starts_fresh: false,
            began: rank.emitter.begin(),
            interrupted: None,
            readings: MeterReadings {
                usage: Usage::now(&rank),
                deferred_cost: DeferredUpdateCost::default(),
                clocks: hooks.clocks(),
            },
            rank,
            hooks,
        }
    }

    /// Begins a step, once a viewer that holds the rank releases it. `is_updating` says whether the
    /// previous update is still in progress.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) fn begin(&mut self, is_updating: bool) -> Result<()> {
        self.starts_fresh = !is_updating;
        let step = self.hooks.step();
        if (step - self.plan.first_step()) as usize == UNTIMED {
            self.rank.device.reset_meter()?;
        }
        self.rank.emitter.boundary(Boundary::Step);
        self.rank.emitter.emit(What::StepStarted { step });
        self.began = self.rank.emitter.begin();
        Ok(())
    }

    /// Records the current step, which is done, with its `loss` over the global batch. Updates have
    /// cost `deferred_cost` so far.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) fn step(
        &mut self,
        loss: f64,
        update: &Update,
        outcome: StepOutcome,
        deferred_cost: DeferredUpdateCost,
    ) -> Result<()> {
        self.rank.device.emit_past()?;
        let row = self.row(loss, update, outcome);
        let StepRow { step, loss, grad_norm, lr, tokens, seconds, .. } = row;
        self.rank.emitter.emit(What::StepFinished { step, loss, grad_norm, lr, tokens, seconds });
        self.report(RunEvent::Step(&row, self.rank.device.ledger().peak_total(Place::Device)));
        self.steps.push(row);
        self.readings.deferred_cost = deferred_cost;
        self.fresh_starts += u64::from(self.starts_fresh);
        self.read_meters();
        Ok(())
    }

    fn row(&self, loss: f64, update: &Update, outcome: StepOutcome) -> StepRow {
        StepRow {
            step: self.hooks.step(),
            loss,
            grad_norm: outcome.grad_norm,
            lr: update.lr,
            tokens: self.plan.config.tokens_per_step(),
            seconds: self.rank.emitter.since(self.began).as_secs_f64(),
            loss_scale: update.loss_scale,
            skipped: outcome.skipped,
        }
    }

    /// Records the validation after the last step, and its transfers, `moved`.
    pub(super) fn validation(&mut self, loss: f64, moved: TransferCounters) {
        let step = self.hooks.step() + 1;
        self.rank.emitter.emit(What::Evaluated { step, loss });
        self.evaluations.push((step, loss));
        self.validation_transfers = self.validation_transfers + moved;
        self.read_meters();
        self.report(RunEvent::Validation(step, loss));
    }

    /// Counts a checkpoint between two steps. Called when this rank may train again.
    pub(super) fn checkpoint(&mut self) {
        self.checkpoints += 1;
        let before = self.readings.usage.transfers;
        self.read_meters();
        self.other_transfers = self.other_transfers + (self.readings.usage.transfers - before);
    }

    /// Reports `event` to the observer.
    pub(super) fn report(&self, event: RunEvent<'_>) {
        (self.observer)(self.rank.number(), event);
    }

    /// Records that a step or a validation is interrupted, after the update of the previous step is
    /// complete. Updates have cost `deferred_cost` so far.
    pub(super) fn interrupted(&mut self, deferred_cost: DeferredUpdateCost) {
        let DeferredUpdateCost { time, usage } = deferred_cost - self.readings.deferred_cost;
        self.interrupted = Some(time);
        self.readings.usage = self.readings.usage + usage;
        PhaseSeconds::new(time, usage).add_to(&mut self.readings.clocks, Phase::Step);
    }

    /// Reads the meters again.
    fn read_meters(&mut self) {
        self.readings.usage = Usage::now(&self.rank);
        self.readings.clocks = self.hooks.clocks();
    }

    /// Reads the meters once training is over. The result lacks the weights' hash, and on a GPU the
    /// kernels of an interrupted run, which would include parts of a step.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) fn finish(&mut self) -> Result<Measured> {
        let Rank { device, emitter, .. } = &*self.rank;
        device.synchronize()?;
        device.emit_past()?;
        let ledger = device.ledger();
        let memory = peaks(ledger);
        let Peaks { classes: peaks, total: total_peak } = memory[Place::Device.index()].clone();
        let gpu = GpuRow::of(self.rank.number(), device)?;
        let MeterReadings { usage: Usage { traffic, to_neighbours, transfers, kernels, .. }, clocks, .. } =
            self.readings;
        let kernels = match (&gpu, self.interrupted) {
            (None, _) => kernels.to_vec(),
            (Some(_), None) => device.spent()?,
            (Some(_), Some(_)) => Vec::new(),
        };
        let to_neighbours = self.rank.mesh.neighbours().map(|_| to_neighbours);
        let sent = Operation::ALL.iter().map(|&operation| traffic.sent(operation)).collect();
        emitter.emit(What::Finished { peaks, total_peak, sent });
        Ok(Measured {
            seconds: self.steps.iter().map(|step| step.seconds).sum::<f64>()
                + self.interrupted.unwrap_or_default().as_secs_f64(),
            steps: std::mem::take(&mut self.steps),
            evaluations: std::mem::take(&mut self.evaluations),
            validation_transfers: self.validation_transfers,
            other_transfers: self.other_transfers,
            fresh_starts: self.fresh_starts,
            checkpoints: self.checkpoints,
            memory,
            gpu,
            kernels: KernelRow::of(self.rank.number(), &kernels),
            traffic,
            to_neighbours,
            transfers,
            clocks,
            weights_blake3: None,
            unsaved: None,
        })
    }
}
