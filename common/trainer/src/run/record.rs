//! The records of a run on one rank: events and observers hear of each finished step, and the
//! report gets what was measured.

use crate::hooks::{Hooks, add_to_clocks, in_seconds};
use crate::plan::Plan;
use crate::rank_error::Result;
use crate::stage::StepOutcome;
use device::{Class, Ledger, Place};
use events::{Began, Boundary, Operation, What};
use offload::Moved;
use report::{Clocks, GpuRow, KernelRow, Measured, Peaks, StepRow, UNTIMED};
use settings::fault::Phase;
use sharding::{AfterStep, Rank, Update, Usage};
use std::rc::Rc;

/// What a rank tells while it trains.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News<'a> {
    /// A step is done; and the most bytes that the rank has held at once so far.
    Step(&'a StepRow, u64),
    /// The loss on the validation part after so many steps.
    Validation(u32, f64),
    /// The checkpoint of so many steps is saved; or it is not, for this reason.
    Checkpoint(u32, Option<&'a str>),
}

/// Called by every rank with its number.
pub(crate) type Observer<'a> = dyn Fn(usize, News<'_>) + Sync + 'a;

/// What one rank has done so far.
pub(super) struct Record<'a> {
    plan: &'a Plan,
    rank: Rc<Rank>,
    hooks: Rc<Hooks>,
    observer: &'a Observer<'a>,
    steps: Vec<StepRow>,
    evaluations: Vec<(u32, f64)>,
    validation_transfers: Moved,
    /// Those of setup and checkpoints.
    other_transfers: Moved,
    checkpoints: u64,
    /// Steps that began when the update before them was over.
    fresh_starts: u64,
    /// Whether the step under way did.
    starts_fresh: bool,
    /// When the step under way began.
    began: Began,
    /// As of the last whole step, or the validation and the checkpoint after it.
    counted: Counted,
}

/// The most bytes that `ledger` has counted at once, by place.
pub(super) fn peaks(ledger: &Ledger) -> Vec<Peaks> {
    let of = |&place: &Place| {
        let classes = Class::ALL.iter().map(|&class| ledger.peak(place, class)).collect();
        Peaks { classes, total: ledger.peak_total(place) }
    };
    Place::ALL.iter().map(of).collect()
}

/// What a rank has sent and moved, and where its time went.
#[derive(Clone, Copy)]
struct Counted {
    usage: Usage,
    /// What updates have taken after their steps.
    after_steps: AfterStep,
    clocks: Clocks,
}

impl<'a> Record<'a> {
    /// An empty record of `rank`, which tells `observer`.
    pub(super) fn new(plan: &'a Plan, rank: Rc<Rank>, hooks: Rc<Hooks>, observer: &'a Observer<'a>) -> Self {
        Record {
            plan,
            observer,
            steps: Vec::new(),
            evaluations: Vec::new(),
            validation_transfers: Moved::default(),
            other_transfers: rank.transfers.moved(),
            checkpoints: 0,
            fresh_starts: 0,
            starts_fresh: false,
            began: rank.emitter.begin(),
            counted: Counted {
                usage: Usage::now(&rank),
                after_steps: AfterStep::default(),
                clocks: hooks.clocks(),
            },
            rank,
            hooks,
        }
    }

    /// A step begins, once a viewer that holds the rank lets it go. The update before it may be
    /// under way.
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

    /// The step under way is done, with `loss` over the global batch. The updates until then have
    /// taken `after_steps`.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) fn step(
        &mut self,
        loss: f64,
        update: &Update,
        outcome: StepOutcome,
        after_steps: AfterStep,
    ) -> Result<()> {
        self.rank.device.emit_past()?;
        let row = self.row(loss, update, outcome);
        let StepRow { step, loss, grad_norm, lr, tokens, seconds, .. } = row;
        self.rank.emitter.emit(What::StepFinished { step, loss, grad_norm, lr, tokens, seconds });
        self.tell(News::Step(&row, self.rank.device.ledger().peak_total(Place::Device)));
        self.steps.push(row);
        self.counted.after_steps = after_steps;
        self.fresh_starts += u64::from(self.starts_fresh);
        self.count();
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

    /// The validation after the last step is done, for which so much has `moved`.
    pub(super) fn validation(&mut self, loss: f64, moved: Moved) {
        let step = self.hooks.step() + 1;
        self.rank.emitter.emit(What::Evaluated { step, loss });
        self.evaluations.push((step, loss));
        self.validation_transfers = self.validation_transfers + moved;
        self.count();
        self.tell(News::Validation(step, loss));
    }

    /// A save between two steps has begun, and what it needs of the rank is done.
    pub(super) fn checkpoint(&mut self) {
        self.checkpoints += 1;
        let before = self.counted.usage.transfers;
        self.count();
        self.other_transfers = self.other_transfers + (self.counted.usage.transfers - before);
    }

    /// Tells watchers.
    pub(super) fn tell(&self, news: News<'_>) {
        (self.observer)(self.rank.number(), news);
    }

    /// A step is broken off, and the update of the step before it is over. With it the updates have
    /// taken `after_steps`.
    pub(super) fn broken_off(&mut self, after_steps: AfterStep) {
        let AfterStep { time, usage } = after_steps - self.counted.after_steps;
        self.counted.usage = self.counted.usage + usage;
        add_to_clocks(&mut self.counted.clocks, Phase::Step, in_seconds(time, usage));
    }

    fn count(&mut self) {
        self.counted.usage = Usage::now(&self.rank);
        self.counted.clocks = self.hooks.clocks();
    }

    /// Reads the meters once training is over. The weights' hash is not known yet.
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
        let kernels = KernelRow::of(self.rank.number(), device)?;
        let Counted { usage: Usage { traffic, to_neighbours, transfers }, clocks, .. } = self.counted;
        let to_neighbours = self.rank.mesh.neighbours().map(|_| to_neighbours);
        let sent = Operation::ALL.iter().map(|&operation| traffic.sent(operation)).collect();
        emitter.emit(What::Finished { peaks, total_peak, sent });
        Ok(Measured {
            steps: std::mem::take(&mut self.steps),
            evaluations: std::mem::take(&mut self.evaluations),
            validation_transfers: self.validation_transfers,
            other_transfers: self.other_transfers,
            fresh_starts: self.fresh_starts,
            checkpoints: self.checkpoints,
            memory,
            gpu,
            kernels,
            traffic,
            to_neighbours,
            transfers,
            clocks,
            weights_blake3: None,
            unsaved: None,
        })
    }
}
