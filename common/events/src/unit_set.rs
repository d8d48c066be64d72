//! The units whose data a collective moves.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A set of units. Clones share it.
///
/// Neighbours in a bucket need not be neighbours in the model: buckets of persistent units leave
/// out the units between them.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct UnitSet {
    /// First and last unit of each run of neighbours, in ascending order. At least one unit lies
    /// between two runs.
    runs: Arc<[(u16, u16)]>,
}

/// What a stream holds instead of the first unit of an empty set.
const NO_UNIT: u16 = u16::MAX;

/// The maximum number of runs that a message names.
const NAMED: usize = 8;

impl UnitSet {
    /// True if the set has no units.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the number of units.
    pub fn len(&self) -> usize {
        self.runs().map(|run| run.len()).sum()
    }

    /// Returns the first unit.
    pub fn first(&self) -> Option<u16> {
        self.runs.first().map(|&(first, _)| first)
    }

    /// Returns the runs of neighbours, in ascending order.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = RangeInclusive<u16>> + '_ {
        self.runs.iter().map(|&(first, last)| first..=last)
    }

    /// Returns the units, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.runs().flatten()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.runs[..])
    }

    /// Returns the set of these runs; `None` unless they are ordered and apart.
    fn of_runs(runs: Vec<(u16, u16)>) -> Option<Self> {
        let ordered = runs.iter().all(|(first, last)| first <= last);
        let apart = runs.windows(2).all(|pair| u32::from(pair[0].1) + 1 < u32::from(pair[1].0));
        (ordered && apart).then(|| UnitSet { runs: runs.into() })
    }
}

impl FromIterator<u16> for UnitSet {
    fn from_iter<I: IntoIterator<Item = u16>>(units: I) -> Self {
        let mut units: Vec<u16> = units.into_iter().collect();
        units.sort_unstable();
        units.dedup();
        let runs = units.chunk_by(|unit, next| unit + 1 == *next);
        UnitSet { runs: runs.map(|run| (run[0], run[run.len() - 1])).collect() }
    }
}

impl From<u16> for UnitSet {
    fn from(unit: u16) -> Self {
        UnitSet { runs: [(unit, unit)].into() }
    }
}

/// The units by their numbers: `0, 2, 4 to 6`.
impl fmt::Display for UnitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, &(first, last)) in self.runs.iter().take(NAMED).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let to = if first == last { String::new() } else { format!(" to {last}") };
            write!(f, "{comma}{first}{to}")?;
        }
        match self.runs().skip(NAMED).map(|run| run.len()).sum::<usize>() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Debug for UnitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// * No unit: [`NO_UNIT`] and 0.
/// * One run: its first unit and its number of units. Streams up to version 3 have no longer form.
/// * Several runs, or all 65,536 units: the first unit, 0 and the list of runs.
impl Serialize for UnitSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.runs[..] {
            [] => (NO_UNIT, 0_u16).serialize(serializer),
            [(first, last)] if last - first < u16::MAX => (first, last - first + 1).serialize(serializer),
            [(first, _), ..] => (first, 0_u16, &self.runs[..]).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for UnitSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple(3, Sets)
    }
}

/// Reads a set.
struct Sets;

impl<'de> Visitor<'de> for Sets {
    type Value = UnitSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("units")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<UnitSet, A::Error> {
        let mut next = || parts.next_element::<u16>()?.ok_or_else(|| A::Error::custom("units end early"));
        let runs = match (next()?, next()?) {
            (NO_UNIT, 0) => Vec::new(),
            (_, 0) => parts.next_element()?.unwrap_or_default(),
            (first, count) => vec![(first, first.saturating_add(count - 1))],
        };
        UnitSet::of_runs(runs).ok_or_else(|| A::Error::custom("units out of order"))
    }
}
