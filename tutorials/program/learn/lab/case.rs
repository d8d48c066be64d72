//! A run with a hidden fault, drawn from a seed.

use prediction::Stage;
use settings::corpus::SplitMix;
use settings::fault::{Fault, Kind};
use trainer::{Failure, Result};

/// Ranks of every run.
pub const RANKS: usize = 4;
/// Steps of every run.
pub const STEPS: u32 = 10;
/// The first step at which a fault may begin.
const FIRST: u32 = 3;
/// The number of steps at which a fault may begin.
const BEGINNINGS: u64 = 4;

/// Name, symptom and seed.
const NAMED: [(&str, &str, u64); 7] = [
    ("drift", "The loss is not where the same run was last week.", 49),
    ("jolt", "At some point the gradient norm jumped.", 257),
    ("crawl", "It computes what it should, but at some point became slow.", 643),
    ("thin", "It still learns, and the gradient norm looks too small.", 5),
    ("offbeat", "The loss differs from last week's, though it is no worse.", 16),
    ("halt", "The run ends, and the rank in its error is not the one at fault.", 389),
    ("apart", "It learns, and no line of its log equals last week's.", 64),
];

/// A case to diagnose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The name, for files and for the progress.
    pub name: String,
    /// The symptom, as the reader sees it.
    pub complaint: &'static str,
    /// The stage that runs.
    pub stage: Stage,
    /// The fault.
    pub fault: Fault,
}

impl Case {
    /// Returns the named labs, in order.
    pub fn named() -> impl Iterator<Item = Case> {
        NAMED.into_iter().map(|(name, complaint, seed)| Case::drawn(name.into(), complaint, seed))
    }

    /// Returns the lab called `name`, or the one drawn from that number.
    ///
    /// # Errors
    /// A usage failure if it is neither a name nor a number.
    pub fn of(name: &str) -> Result<Case> {
        if let Some(case) = Case::named().find(|case| case.name == name) {
            return Ok(case);
        }
        let names: Vec<&str> = NAMED.iter().map(|(name, ..)| *name).collect();
        let seed: u64 = name.parse().map_err(|_| {
            Failure::usage(format!("no lab is called {name:?}: choose {}, or any number", names.join(", ")))
        })?;
        Ok(Case::drawn(format!("lab-{seed}"), "Something is wrong with it.", seed))
    }

    fn drawn(name: String, complaint: &'static str, seed: u64) -> Case {
        let mut random = SplitMix(seed);
        let numbers = [(); 4].map(|()| random.next_u64());
        let pick = |which: usize, among: u64| (numbers[which] % among) as usize;
        let kind = Kind::SILENT[pick(0, Kind::SILENT.len() as u64)];
        let stage = match kind {
            // Parameters can be stale only in stages that gather them.
            Kind::Stale => Stage::ALL[1 + pick(1, 3)],
            // ZeRO-3 gathers all units before use, so all ranks compute with the same weights.
            Kind::Seed => Stage::ALL[pick(1, 3)],
            _ => Stage::ALL[pick(1, 4)],
        };
        let later = FIRST + pick(3, BEGINNINGS) as u32;
        let (rank, step) = (pick(2, RANKS as u64), if kind == Kind::Seed { 0 } else { later });
        Case { name, complaint, stage, fault: Fault::silent(kind, rank, step) }
    }

    /// Returns the flags of the run without the fault.
    pub fn flags() -> String {
        format!(
            "--gpus {RANKS} --steps {STEPS} --batch-size 1 --seq-len 32 --threads 1 --device cpu --headless --contributions"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn named_labs_have_all_kinds_and_numbers_draw_all_ranks_and_beginnings() {
        let kinds: BTreeSet<Kind> = Case::named().map(|case| case.fault.kind).collect();
        assert_eq!(kinds.len(), Kind::SILENT.len());
        let drawn: Vec<Fault> = (0..99).map(|n| Case::of(&n.to_string()).unwrap().fault).collect();
        let ranks: BTreeSet<usize> = drawn.iter().map(|fault| fault.rank).collect();
        let (first, later): (Vec<&Fault>, Vec<_>) = drawn.iter().partition(|fault| fault.kind == Kind::Seed);
        assert!(!first.is_empty() && first.iter().all(|fault| fault.step == 0));
        let steps: BTreeSet<u32> = later.iter().map(|fault| fault.step).collect();
        assert_eq!((ranks.len(), steps.len()), (RANKS, BEGINNINGS as usize));
        assert!(
            steps.iter().all(|&step| step >= 1 && step + 3 < STEPS),
            "healthy and ill steps on both sides"
        );
    }

    #[test]
    fn a_name_that_is_none_is_answered_with_those_there_are() {
        let error = Case::of("drfit").unwrap_err().to_string();
        assert!(error.contains("drift") && error.contains("number"), "{error}");
    }
}
