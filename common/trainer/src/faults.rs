//! Failures on demand, so that what happens then can be tested and learned from.
//!
//! `--inject KIND@rankR,stepS,PHASE`: `panic@rank2,step3,backward`, `error@rank0,step0,step`,
//! `stall@rank1,step2,forward`, `seed@rank3`, `overflow@rank1,step5`.

use std::str::FromStr;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The rank panics.
    Panic,
    /// The rank returns an error.
    Error,
    /// The rank stops taking part, until its peers' deadline.
    Stall,
    /// The rank starts from other weights.
    Seed,
    /// The rank's gradients are infinite.
    Overflow,
}

/// Where in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the first step.
    Setup,
    /// In forward.
    Forward,
    /// In backward.
    Backward,
    /// In the optimizer step.
    Step,
    /// While weights are saved.
    Save,
}

/// One injected failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// On which rank.
    pub rank: usize,
    /// In which optimizer step, from 0.
    pub step: u32,
    /// In which phase.
    pub phase: Phase,
}

const KINDS: &[(&str, Kind)] = &[
    ("panic", Kind::Panic),
    ("error", Kind::Error),
    ("stall", Kind::Stall),
    ("seed", Kind::Seed),
    ("overflow", Kind::Overflow),
];
const PHASES: &[(&str, Phase)] = &[
    ("setup", Phase::Setup),
    ("forward", Phase::Forward),
    ("backward", Phase::Backward),
    ("step", Phase::Step),
    ("save", Phase::Save),
];

fn pick<T: Copy>(names: &[(&str, T)], name: &str) -> Result<T, String> {
    let known = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    names
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, value)| *value)
        .ok_or_else(|| format!("{name:?} is none of {}: write panic@rank2,step3,backward", known()))
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, place) = text.split_once('@').ok_or("write panic@rank2,step3,backward")?;
        let kind = pick(KINDS, kind)?;
        let phase = if kind == Kind::Overflow { Phase::Backward } else { Phase::Setup };
        let mut fault = Fault { kind, rank: 0, step: 0, phase };
        for part in place.split(',') {
            let number = |digits: &str| digits.parse().map_err(|_| format!("{part:?} has no number"));
            if let Some(digits) = part.strip_prefix("rank") {
                fault.rank = number(digits)?;
            } else if let Some(digits) = part.strip_prefix("step").filter(|digits| !digits.is_empty()) {
                fault.step = number(digits)? as u32;
            } else {
                fault.phase = pick(PHASES, part)?;
            }
        }
        Ok(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_from_words() {
        let fault = |kind, rank, step, phase| Ok(Fault { kind, rank, step, phase });
        assert_eq!("panic@rank2,step3,backward".parse(), fault(Kind::Panic, 2, 3, Phase::Backward));
        assert_eq!("error@rank0,step1,step".parse(), fault(Kind::Error, 0, 1, Phase::Step));
        assert_eq!("seed@rank1".parse(), fault(Kind::Seed, 1, 0, Phase::Setup));
        assert_eq!("overflow@rank1,step5".parse(), fault(Kind::Overflow, 1, 5, Phase::Backward));
        for bad in ["panic", "melt@rank1", "panic@rank,step1", "panic@rank1,sideways"] {
            assert!(bad.parse::<Fault>().is_err(), "{bad}");
        }
    }
}
