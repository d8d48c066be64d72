//! Hooks around the phases and layers of the training loop: injected faults, clocks, stop requests,
//! events. The loop and the passes call the hooks and know none of these. Seed, samples and the
//! scale of gradients also pass through a hook, where a fault may replace them.

use crate::clocks::PhaseSeconds;
use crate::faults::RankFaults;
use crate::plan::Plan;
use crate::rank_error::Result;
use crate::stop::StopCheck;
use crate::witness::{At, Milestone, Witness};
use events::{Pass, cpu};
use model::LayerKind;
use prediction::Moment;
use report::Clocks;
use settings::fault::{Kind, Phase};
use sharding::{DeferredUpdateCost, MicroBatch, PassSpan, Rank, UnitId, Usage};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The minimum delay of a slow rank per layer, so that it is slow even where a layer takes no time.
const LEAST_DELAY: Duration = Duration::from_millis(20);

/// The hooks of one rank.
pub(crate) struct Hooks {
    rank: Rc<Rank>,
    witness: Option<Arc<dyn Witness>>,
    faults: RankFaults,
    stop: StopCheck,
    /// The number of steps of a whole run.
    steps: u32,
    step: Cell<u32>,
    moment: Cell<Moment>,
    clocks: Cell<Clocks>,
    /// How long the rank has slept to simulate a slow rank; counts as computation.
    slept: Rc<Cell<Duration>>,
}

impl Hooks {
    /// Returns hooks of a rank that has no faults and is never stopped.
    pub(crate) fn none(rank: Rc<Rank>) -> Self {
        let (faults, stop) = (RankFaults::default(), StopCheck::Never);
        let (step, moment, clocks) = (Cell::default(), Cell::default(), Cell::default());
        Hooks { rank, witness: None, faults, stop, steps: 0, step, moment, clocks, slept: Rc::default() }
    }

    /// Returns the hooks of `rank` in `plan`'s run, before its first step.
    pub(crate) fn new(plan: &Plan, rank: Rc<Rank>) -> Self {
        let faults = RankFaults::new(&plan.config, rank.number());
        let stop = match plan.config.process {
            None => StopCheck::every_layer(&plan.stop, &rank),
            Some(_) => StopCheck::every_micro_batch(&plan.stop, &rank),
        };
        Hooks { faults, stop, steps: plan.config.steps, witness: plan.witness.clone(), ..Hooks::none(rank) }
    }

    pub(crate) fn begin(&self, step: u32) {
        self.step.set(step);
    }

    /// Returns the current step; 0 before the first.
    pub(crate) fn step(&self) -> u32 {
        self.step.get()
    }

    /// True if a lasting fault of this kind fires in the current step or fired in an earlier one.
    pub(crate) fn is_active(&self, kind: Kind) -> bool {
        self.faults.is_active(kind, self.step())
    }

    /// True if a lasting fault of this kind starts with the next step.
    pub(crate) fn starts_next_step(&self, kind: Kind) -> bool {
        self.faults.fires(kind, self.step() + 1)
    }

    /// True if a fault of this kind fires in the current step.
    pub(crate) fn fires_now(&self, kind: Kind) -> bool {
        self.faults.fires(kind, self.step())
    }

    /// Returns the seed that the rank draws weights from: `seed`, or with a fault in `phase` the
    /// next one.
    pub(crate) fn seed(&self, phase: Phase, seed: u64) -> u64 {
        seed.wrapping_add(u64::from(self.faults.fires_in(phase, Kind::Seed, self.step())))
    }

    /// Returns the step whose samples the rank reads: the current one, or with a fault a step that
    /// the run does not reach.
    pub(crate) fn step_of_samples(&self) -> u32 {
        let step = self.step();
        if self.is_active(Kind::Data) { step.wrapping_add(self.steps) } else { step }
    }

    /// Returns the rank's factor of the loss gradient: `scale`, or with a fault one that divides by
    /// one rank's share of the tokens or that overflows.
    pub(crate) fn gradient_scale(&self, scale: f64) -> f64 {
        if self.fires_now(Kind::Overflow) {
            f64::INFINITY
        } else if self.is_active(Kind::Divisor) {
            scale * self.rank.world_size() as f64
        } else {
            scale
        }
    }

    /// Returns the point in the step where the rank is, or was last.
    pub(crate) fn moment(&self) -> Moment {
        self.moment.get()
    }

    /// Returns the seconds per phase so far.
    pub(crate) fn clocks(&self) -> Clocks {
        self.clocks.get()
    }

    /// Runs `body` as `phase` of the current step: first fires the faults that are injected there;
    /// then, if `body` succeeded, adds its time without pauses to the phase's clocks.
    ///
    /// # Errors
    /// The injected fault's, or `body`'s.
    pub(crate) fn phase<T>(&self, phase: Phase, body: impl FnOnce() -> Result<T>) -> Result<T> {
        if phase == Phase::Step {
            self.moment.set(Moment::Update);
        }
        // The failure is emitted before the rank frees anything.
        self.fire(phase).inspect_err(|error| error.announce(&self.rank.emitter))?;
        let (began, before) = (self.rank.emitter.begin(), Usage::now(&self.rank));
        let slept = self.slept.get();
        let value = body()?;
        let mut usage = Usage::now(&self.rank) - before;
        usage.processor += self.slept.get() - slept;
        let mut clocks = self.clocks.get();
        PhaseSeconds::new(self.rank.emitter.since(began), usage).add_to(&mut clocks, phase);
        self.clocks.set(clocks);
        Ok(value)
    }

    /// Reports to the witness that `phase` begins, and fires the faults that are injected into it.
    ///
    /// # Errors
    /// The injected one.
    pub(crate) fn fire(&self, phase: Phase) -> Result<()> {
        if let Some(witness) = &self.witness {
            witness
                .on_milestone(At { step: self.step(), rank: self.rank.number() }, Milestone::Begins(phase));
        }
        if let Some(effect) = self.faults.disk(phase, self.step()) {
            self.rank.transfers.fail(effect);
        }
        self.faults.fire(phase, self.step(), &self.rank.group)
    }

    /// Moves `cost`, of an update that continued in forward, from forward's clocks to the step's.
    pub(crate) fn charge_update_to_step(&self, cost: DeferredUpdateCost) {
        let seconds = PhaseSeconds::new(cost.time, cost.usage);
        let mut clocks = self.clocks.get();
        (-seconds).add_to(&mut clocks, Phase::Forward);
        seconds.add_to(&mut clocks, Phase::Step);
        self.clocks.set(clocks);
    }

    /// Checks for a stop request before a micro-batch of a step, or a batch of a validation.
    ///
    /// # Errors
    /// If the run ends here, or the ranks cannot exchange whether it does.
    pub(crate) fn before_micro_batch(&self, micro: MicroBatch) -> Result<()> {
        self.stop.before_micro_batch(micro)
    }

    /// Checks for a stop request before a layer of `pass`, and records the layer as the rank's
    /// moment.
    ///
    /// # Errors
    /// If the run ends here.
    pub(crate) fn before_layer(&self, pass: Pass, layer: LayerKind) -> Result<()> {
        self.stop.before_layer()?;
        self.moment.set(Moment::Layer(pass, layer));
        Ok(())
    }

    /// Emits the start of a layer's `pass` in micro-batch `micro`, shown as a pass over `unit`. Its
    /// end is emitted by [`LayerSpan::end`], or when the returned span is dropped.
    pub(crate) fn layer(&self, pass: Pass, unit: UnitId, micro: MicroBatch) -> LayerSpan {
        let span = self.rank.begin_pass(pass, unit, micro.index);
        let slept = self.is_active(Kind::Slow).then(|| self.slept.clone());
        LayerSpan { _pass: span, began: cpu::of_thread(), slept }
    }
}

/// A layer's pass in progress.
#[must_use = "the pass ends when this is dropped; call `end` after a pass that succeeded"]
pub(crate) struct LayerSpan {
    _pass: PassSpan,
    /// In processor time: the process may be stopped within a layer.
    began: Duration,
    /// Where a slow rank counts how long it sleeps; `None` if the rank is not slow.
    slept: Option<Rc<Cell<Duration>>>,
}

impl LayerSpan {
    /// Ends the pass. A slow rank first sleeps for twice the processor time that the pass took.
    pub(crate) fn end(self) {
        if let Some(slept) = self.slept {
            let delay = (2 * (cpu::of_thread() - self.began)).max(LEAST_DELAY);
            std::thread::sleep(delay);
            slept.set(slept.get() + delay);
        }
    }
}
