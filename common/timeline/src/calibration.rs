//! How well estimates agree with published step times, and the efficiencies that agree best.

use crate::clock::StepTime;
use crate::cost::Costs;
use crate::efficiency::Calibration;
use crate::estimate::Estimate;
use crate::hardware::Generation;
use crate::published::Published;
use std::collections::{BTreeMap, BTreeSet};

/// A published run and its estimate.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The run.
    pub run: Published,
    estimate: Estimate,
    costs: Costs,
}

impl Comparison {
    /// Returns every published run.
    pub fn all() -> Vec<Comparison> {
        let compared = |run: Published| {
            let estimate =
                Estimate::of(&run.job).unwrap_or_else(|_| unreachable!("published runs are valid"));
            let efficiency = Calibration::USUAL.of(&run.gpu);
            let costs = Costs::new(&run.job, run.cluster(), run.software, efficiency);
            Comparison { costs: costs.recomputing(run.recomputed), run, estimate }
        };
        Published::all().map(compared).collect()
    }

    /// Returns the estimated time of a step.
    pub fn time(&self, calibration: &Calibration) -> StepTime {
        self.estimate.time(&self.costs.reaching(calibration.of(&self.run.gpu)))
    }

    /// Returns the estimated seconds per step.
    pub fn estimated_seconds(&self, calibration: &Calibration) -> f64 {
        self.time(calibration).total()
    }

    /// Returns the estimate's error: 0.1 if it is 10 % too long.
    pub fn error(&self, calibration: &Calibration) -> f64 {
        self.estimated_seconds(calibration) / self.run.seconds - 1.0
    }
}

/// A number of a calibration that is fitted.
type Knob = fn(&mut Calibration) -> &mut f64;

const KNOBS: [Knob; 9] = [
    |fit| &mut fit.products[Generation::Ampere.index()],
    |fit| &mut fit.products[Generation::Hopper.index()],
    |fit| &mut fit.products[Generation::Ada.index()],
    |fit| &mut fit.products[Generation::Blackwell.index()],
    |fit| &mut fit.attention[Generation::Ampere.index()],
    |fit| &mut fit.attention[Generation::Hopper.index()],
    |fit| &mut fit.network,
    |fit| &mut fit.hop,
    |fit| &mut fit.eager_passes,
];

/// The number on which runs with offloaded states depend, and no others.
const CPU: Knob = |fit| &mut fit.cpu;

/// The first step of a fit, as a factor, and the last.
const STEPS: [f64; 2] = [1.2, 1.005];

/// Returns the calibration that minimizes, as far as changes of one number at a time find it, the
/// sum of |ln(estimated / measured)| / √(runs of the run's source) over runs and of 0.2 ·
/// |log₂(value / usual value)| over numbers. The latter keeps numbers on which few runs depend near
/// [`Calibration::USUAL`]. Runs with offloaded states decide about [`Calibration::cpu`] alone.
pub fn fit(runs: &[&Comparison]) -> Calibration {
    let (offloaded, others): (Vec<&Comparison>, _) = runs.iter().partition(|run| run.run.offloads());
    let fitted = descend(Calibration::USUAL, &KNOBS, &others);
    descend(fitted, &[CPU], &offloaded)
}

/// Returns the nearest calibration to `runs` that differs from `best` in `knobs`.
fn descend(mut best: Calibration, knobs: &[Knob], runs: &[&Comparison]) -> Calibration {
    let weighed = weighed(runs);
    let mut nearest = distance(&weighed, &best);
    let mut step = STEPS[0];
    while step > STEPS[1] {
        let before = nearest;
        for knob in knobs {
            for factor in [step, 1.0 / step] {
                let mut next = best;
                *knob(&mut next) *= factor;
                let next_distance = distance(&weighed, &next);
                if next_distance < nearest {
                    (best, nearest) = (next, next_distance);
                }
            }
        }
        if nearest > 0.999 * before {
            step = step.sqrt();
        }
    }
    best
}

/// Returns each run with its weight.
fn weighed<'a>(runs: &[&'a Comparison]) -> Vec<(&'a Comparison, f64)> {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    runs.iter().for_each(|run| *sizes.entry(run.run.group()).or_default() += 1);
    runs.iter().map(|run| (*run, 1.0 / (sizes[run.run.group()] as f64).sqrt())).collect()
}

/// The weight of a number that is twice its usual value.
const PRIOR: f64 = 0.2;

fn distance(runs: &[(&Comparison, f64)], calibration: &Calibration) -> f64 {
    let sizes = runs.iter().map(|(run, weight)| weight * (1.0 + run.error(calibration)).ln().abs());
    let (mut usual, mut fitted) = (Calibration::USUAL, *calibration);
    let knobs = KNOBS.into_iter().chain([CPU]);
    let moved = knobs.map(|knob| (*knob(&mut fitted) / *knob(&mut usual)).log2().abs());
    sizes.sum::<f64>() + PRIOR * moved.sum::<f64>()
}

/// How far estimates are from published runs of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TypicalError {
    /// The GPUs that the runs used.
    pub gpus: &'static str,
    /// The number of runs.
    pub runs: usize,
    /// The median size of the error.
    pub median: f64,
    /// The largest size of the error.
    pub largest: f64,
    /// True if each run was estimated with efficiencies that were fitted without its own source.
    pub is_held_out: bool,
}

/// Published runs of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On GPUs of one generation, which hold all states.
    On(Generation),
    /// With states offloaded to main memory.
    Offloaded,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; Generation::ALL.len() + 1] = [
        Kind::On(Generation::Ampere),
        Kind::On(Generation::Hopper),
        Kind::On(Generation::Ada),
        Kind::On(Generation::Blackwell),
        Kind::Offloaded,
    ];

    fn has(self, run: &Published) -> bool {
        match self {
            Kind::On(generation) => !run.offloads() && run.gpu.generation == generation,
            Kind::Offloaded => run.offloads(),
        }
    }
}

impl TypicalError {
    /// Returns the error of estimates of runs of a kind: [`typical_errors`] computes it.
    pub const fn of(kind: Kind) -> TypicalError {
        let (gpus, runs, median, largest, is_held_out) = match kind {
            Kind::On(Generation::Ampere) => ("A100", 156, 0.177, 0.412, true),
            Kind::On(Generation::Hopper) => ("H100", 120, 0.158, 0.581, true),
            Kind::On(Generation::Ada) => ("RTX 4090", 3, 0.001, 0.018, false),
            Kind::On(Generation::Blackwell) => ("RTX PRO 6000", 13, 0.015, 0.044, false),
            Kind::Offloaded => ("A100", 6, 1.535, 1.931, true),
        };
        TypicalError { gpus, runs, median, largest, is_held_out }
    }
}

/// Returns the errors of estimates for every kind, in [`Kind::ALL`]'s order. Each run is estimated
/// with efficiencies that are fitted without its own source or, if all runs of its kind have one
/// source, with [`Calibration::ALL_RUNS`].
pub fn typical_errors(all: &[Comparison]) -> [TypicalError; Kind::ALL.len()] {
    let groups: BTreeSet<&str> = all.iter().map(|run| run.run.group()).collect();
    let without = |group| {
        let others: Vec<&Comparison> = all.iter().filter(|run| run.run.group() != group).collect();
        fit(&others)
    };
    let held_out: BTreeMap<&str, Calibration> =
        groups.into_iter().map(|group| (group, without(group))).collect();
    Kind::ALL.map(|kind| {
        let own = || all.iter().filter(move |run| kind.has(&run.run));
        let is_held_out = own().any(|run| own().any(|other| run.run.group() != other.run.group()));
        let error = |run: &Comparison| {
            let calibration = if is_held_out { &held_out[run.run.group()] } else { &Calibration::ALL_RUNS };
            run.error(calibration).abs()
        };
        let mut sizes: Vec<f64> = own().map(error).collect();
        sizes.sort_by(f64::total_cmp);
        let (median, largest) = (sizes[sizes.len() / 2], sizes[sizes.len() - 1]);
        TypicalError { runs: sizes.len(), median, largest, is_held_out, ..TypicalError::of(kind) }
    })
}
