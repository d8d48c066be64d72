//! Injected faults: failures on demand, to test how a run handles them and to learn their symptoms.
//!
//! `--inject KIND@rankR,stepS,PHASE`. Loud faults: `panic@rank2,step3,backward`,
//! `error@rank0,step0,step`, `stall@rank1,step2,forward`, `seed@rank3`, `overflow@rank1,step5`,
//! `skip@rank1,step5`, `disk-error@rank1,step2,step`, `disk-full@rank1,step2`,
//! `disk-hang@rank1,step2,step`, `out-of-memory@rank1,allocation17`. Silent faults, from step S on:
//! `stale@rank1,step4`, `divisor@…`, `data@…`, `drop@…`, `slow@…`; `nan@…` hits one step.
//! `seed@rank3,step0` is silent too: it comes after ranks have compared their initial weights.

use crate::labels::word;
use clap::ValueEnum;
use std::str::FromStr;

/// The kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// The rank panics.
    Panic,
    /// The rank returns an error.
    Error,
    /// The rank stops issuing collectives, until its peers time out.
    Stall,
    /// The rank starts from different weights.
    Seed,
    /// The rank's gradients are infinite.
    Overflow,
    /// The rank computes with the other ranks' slices of the previous step, as if its all-gathers
    /// had failed silently.
    Stale,
    /// The rank divides its loss by its own number of tokens, not by that of all ranks.
    Divisor,
    /// The rank reads its samples of later steps.
    Data,
    /// The rank's gradients are missing from the sum.
    Drop,
    /// The rank takes three times as long to compute.
    Slow,
    /// The rank's gradients are not numbers.
    Nan,
    /// The rank skips the first collective of the step that moves data.
    Skip,
    /// The rank's disk fails from then on.
    DiskError,
    /// The rank's disk is full from then on.
    DiskFull,
    /// One of the rank's allocations fails.
    OutOfMemory,
    /// The rank's disk does not answer from then on.
    DiskHang,
}

/// The phase of a step in which a fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// Before the first step.
    Setup,
    /// While a micro-batch is read.
    Data,
    /// In forward.
    Forward,
    /// In backward.
    Backward,
    /// While backward recomputes a block's activations.
    Recompute,
    /// In the optimizer step.
    Step,
    /// In the validation after a step.
    Evaluate,
    /// While weights are saved.
    Save,
}

/// One injected failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub kind: Kind,
    /// The rank on which it occurs.
    pub rank: usize,
    /// The optimizer step, from 0; for lasting faults, the first one.
    pub step: u32,
    /// The phase, for faults that have one.
    pub phase: Phase,
    /// For [`Kind::OutOfMemory`]: the number of the rank's allocation that fails, counted from 1
    /// over all places.
    pub allocation: u64,
}

impl Kind {
    /// Faults that no rank reports: they show only in the run's results.
    pub const SILENT: [Kind; 7] =
        [Kind::Stale, Kind::Divisor, Kind::Data, Kind::Drop, Kind::Slow, Kind::Nan, Kind::Seed];

    /// Returns its name in `--inject`.
    pub fn name(self) -> String {
        word(&self)
    }

    /// Returns the phase: `phase` if it is given, else the setup without a `step` and backward with
    /// one.
    fn phase(self, step: Option<u32>, phase: Option<Phase>) -> std::result::Result<Phase, String> {
        let name = self.name();
        let only = match self {
            Kind::Panic | Kind::Error | Kind::Stall => None,
            Kind::DiskError | Kind::DiskFull | Kind::DiskHang => None,
            Kind::OutOfMemory => Some((Phase::Setup, ",allocation17")),
            Kind::Seed if step.is_none() => Some((Phase::Setup, "")),
            Kind::Seed => Some((Phase::Backward, ",step0")),
            _ => Some((Phase::Backward, ",step5")),
        };
        if let Some((only, step)) = only
            && phase.is_some_and(|phase| phase != only)
        {
            return Err(format!("{name} has no phase: write {name}@rank1{step}"));
        }
        if self == Kind::Seed && step.is_some_and(|step| step > 0) {
            return Err(format!(
                "{name} changes the initial weights: write {name}@rank1, or {name}@rank1,step0 for after ranks have compared them"
            ));
        }
        let steps = if step.is_some() { Phase::Backward } else { Phase::Setup };
        let phase = only.map(|(only, _)| only).or(phase).unwrap_or(steps);
        if step.is_some_and(|step| step > 0) && phase == Phase::Setup {
            return Err(format!("{name} in the setup happens before the first step: leave the step out"));
        }
        Ok(phase)
    }
}

impl Fault {
    /// Returns a fault without a phase of its own, on `rank` from `step` on.
    pub fn silent(kind: Kind, rank: usize, step: u32) -> Self {
        Fault { kind, rank, step, phase: Phase::Backward, allocation: 0 }
    }

    /// True if the fault can no longer occur in a run that begins with step `first`.
    pub fn passed(&self, first: u32) -> bool {
        match self.kind {
            Kind::Divisor | Kind::Data | Kind::Drop | Kind::Slow => false,
            Kind::Seed => first > 0,
            // Parameters are as old as the step before the fault's.
            Kind::Stale => first > 0 && self.step <= first,
            // Setup and saving belong to no step.
            _ => ![Phase::Setup, Phase::Save].contains(&self.phase) && self.step < first,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@rank{}", self.kind.name(), self.rank)?;
        match (self.kind, self.phase) {
            (Kind::OutOfMemory, _) => write!(f, ",allocation{}", self.allocation),
            (_, Phase::Setup) => Ok(()),
            (_, Phase::Backward) => write!(f, ",step{}", self.step),
            (_, phase) => write!(f, ",step{},{}", self.step, word(&phase)),
        }
    }
}

fn pick<T: ValueEnum>(name: &str) -> std::result::Result<T, String> {
    let known = || T::value_variants().iter().map(word).collect::<Vec<_>>().join(", ");
    T::from_str(name, false)
        .map_err(|_| format!("{name:?} is none of {}: write panic@rank2,step3,backward", known()))
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (kind, place) = text.split_once('@').ok_or("write panic@rank2,step3,backward")?;
        let kind = pick::<Kind>(kind)?;
        let (mut rank, mut step, mut phase, mut allocation) = (0, None, None, 0);
        for part in place.split(',') {
            let no_number = || format!("{part:?} has no whole number: write rank2, step3 or allocation17");
            let number = |digits: &str| digits.parse::<u32>().map_err(|_| no_number());
            if let Some(digits) = part.strip_prefix("rank") {
                rank = number(digits)? as usize;
            } else if let Some(digits) = part.strip_prefix("step").filter(|digits| !digits.is_empty()) {
                step = Some(number(digits)?);
            } else if let Some(digits) = part.strip_prefix("allocation") {
                allocation = u64::from(number(digits)?);
            } else {
                phase = Some(pick(part)?);
            }
        }
        let phase = kind.phase(step, phase)?;
        if (kind == Kind::OutOfMemory) != (allocation > 0) || (allocation > 0 && step.is_some()) {
            return Err("an allocation has a number from 1: write out-of-memory@rank1,allocation17".into());
        }
        Ok(Fault { kind, rank, step: step.unwrap_or(0), phase, allocation })
    }
}

#[cfg(test)]
mod tests;
