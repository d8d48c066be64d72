//! How well estimates agree with published step times, and the efficiencies that agree best.

use crate::cost::Costs;
use crate::efficiency::Calibration;
use crate::estimate::Estimate;
use crate::hardware::{Generation, Gpu};
use crate::published::Published;

/// A published run and its estimate.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The run.
    pub run: Published,
    estimate: Estimate,
}

impl Comparison {
    /// Returns every published run.
    pub fn all() -> Vec<Comparison> {
        let compared = |run: Published| {
            let estimate =
                Estimate::of(&run.job).unwrap_or_else(|_| unreachable!("published runs are valid"));
            Comparison { run, estimate }
        };
        Published::all().map(compared).collect()
    }

    /// Returns the estimated seconds per step.
    pub fn seconds(&self, calibration: &Calibration) -> f64 {
        let run = &self.run;
        let costs = Costs::new(&run.job, run.cluster(), run.software, calibration.of(&run.gpu));
        self.estimate.time(&costs.recomputing(run.recomputed)).total()
    }

    /// Returns the estimate's error: 0.1 if it is 10 % too long.
    pub fn error(&self, calibration: &Calibration) -> f64 {
        self.seconds(calibration) / self.run.seconds - 1.0
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

/// The first step of a fit, as a factor, and the last.
const STEPS: [f64; 2] = [1.2, 1.005];

/// Returns the calibration with which the estimates of `runs` are nearest: the sum over sources of
/// the mean size of the error's logarithm is the smallest that changes of one number at a time
/// find.
pub fn fit(runs: &[&Comparison]) -> Calibration {
    let mut best = Calibration::USUAL;
    let mut loss = distance(runs, &best);
    let mut step = STEPS[0];
    while step > STEPS[1] {
        let before = loss;
        for knob in KNOBS {
            for factor in [step, 1.0 / step] {
                let mut next = best;
                *knob(&mut next) *= factor;
                let distance = distance(runs, &next);
                if distance < loss {
                    (best, loss) = (next, distance);
                }
            }
        }
        if loss > 0.999 * before {
            step = step.sqrt();
        }
    }
    best
}

/// How much a number that is twice its usual value weighs, in logarithms of runs' errors.
const PRIOR: f64 = 0.2;

fn distance(runs: &[&Comparison], calibration: &Calibration) -> f64 {
    let from = |other: &Comparison| runs.iter().filter(|run| run.run.group() == other.run.group()).count();
    let size = |run: &&Comparison| (1.0 + run.error(calibration)).ln().abs() / (from(run) as f64).sqrt();
    let (mut usual, mut fitted) = (Calibration::USUAL, *calibration);
    let moved = KNOBS.map(|knob| (*knob(&mut fitted) / *knob(&mut usual)).log2().abs());
    runs.iter().map(size).sum::<f64>() + PRIOR * moved.iter().sum::<f64>()
}

/// How far estimates are from published runs on one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TypicalError {
    /// The number of runs.
    pub runs: usize,
    /// The median size of the error.
    pub median: f64,
    /// The largest size of the error.
    pub largest: f64,
    /// True if each run was estimated with efficiencies that were fitted without its source.
    pub is_held_out: bool,
}

impl TypicalError {
    /// Returns the error of estimates for a GPU of `generation`: [`typical_error`] computes it. Of
    /// Hopper, published runs are on H100.
    pub const fn of(generation: Generation) -> TypicalError {
        let (runs, median, largest, is_held_out) = match generation {
            Generation::Ampere => (17, 0.035, 0.163, true),
            Generation::Hopper => (50, 0.142, 0.565, true),
            Generation::Ada => (3, 0.041, 0.060, false),
            Generation::Blackwell => (13, 0.025, 0.071, false),
        };
        TypicalError { runs, median, largest, is_held_out }
    }
}

/// Returns the error of estimates for `gpu`, each with efficiencies that are fitted without the
/// run's own source; `None` if no run is on such a GPU. If all runs on its generation have one
/// source, they are estimated with [`Calibration::ALL_RUNS`].
pub fn typical_error(all: &[Comparison], gpu: &Gpu) -> Option<TypicalError> {
    let own = || all.iter().filter(|run| run.run.gpu == *gpu);
    let mut groups: Vec<&str> = own().map(|run| run.run.group()).collect();
    groups.sort_unstable();
    groups.dedup();
    let is_held_out = groups.len() > 1;
    let mut sizes: Vec<f64> = Vec::new();
    for group in groups {
        let others: Vec<&Comparison> = all.iter().filter(|run| run.run.group() != group).collect();
        let calibration = if is_held_out { fit(&others) } else { Calibration::ALL_RUNS };
        sizes.extend(own().filter(|run| run.run.group() == group).map(|run| run.error(&calibration).abs()));
    }
    sizes.sort_by(f64::total_cmp);
    let (median, largest) = (*sizes.get(sizes.len() / 2)?, *sizes.last()?);
    Some(TypicalError { runs: sizes.len(), median, largest, is_held_out })
}
