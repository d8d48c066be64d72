//! AdamW (Loshchilov & Hutter, 2019) on one slice of one unit.

use super::update::ScaledUpdate;
use crate::Result;
use crate::full::StateStorage;
use crate::partition::{Partition, TensorPart, UnitId};
use crate::rank::Rank;
use device::{AdamWUpdate, Buffer, Class, View, ViewMut};
use model::TrainingState;
use offload::Extent;
use std::ops::Range;

/// Where the optimizer states of a slice are stored.
pub enum States {
    /// On the device or in main memory. There are no master weights if parameters are f32 and the
    /// optimizer is on the device: the parameters, wherever they are stored, are the master
    /// weights.
    Memory {
        /// f32.
        master: Option<Buffer>,
        /// Momentum and variance, f32.
        moments: Box<[Buffer; 2]>,
    },
    /// On disk: per piece, the states in [`TrainingState::ALL`]'s order.
    Disk(Vec<[Extent; TrainingState::ALL.len()]>),
}

/// The elements of a slice that are updated at a time.
pub(super) struct Piece {
    /// Elements of the slice.
    pub(super) range: Range<usize>,
    /// Its ranges with the same weight decay. Padding is in none.
    pub(super) decay_ranges: Vec<DecayRange>,
}

/// A run of elements with the same weight decay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecayRange {
    /// Relative to the first element of the slice or piece.
    pub(super) range: Range<usize>,
    /// True if weight decay applies.
    pub(super) decays: bool,
}

/// Optimizer states for one slice of one unit.
pub struct AdamWShard {
    pub(super) states: States,
    pub(super) pieces: Vec<Piece>,
}

/// The operands of a piece's update, each of which begins with the piece's first element.
pub(super) struct Operands<'a> {
    /// Receives the rounded master weights; `None` if the parameters are the master weights.
    pub(super) parameters: Option<ViewMut<'a>>,
    pub(super) master: ViewMut<'a>,
    pub(super) momentum: ViewMut<'a>,
    pub(super) variance: ViewMut<'a>,
    pub(super) gradients: View<'a>,
}

impl Piece {
    /// Updates the piece.
    pub(super) fn update(&self, rank: &Rank, operands: Operands<'_>, update: ScaledUpdate) -> Result<()> {
        let Operands { mut parameters, mut master, mut momentum, mut variance, gradients } = operands;
        for DecayRange { range, decays } in &self.decay_ranges {
            rank.kernels().adamw(AdamWUpdate {
                parameters: parameters.as_mut().map(|parameters| parameters.slice_mut(range.clone())),
                master: master.slice_mut(range.clone()),
                momentum: momentum.slice_mut(range.clone()),
                variance: variance.slice_mut(range.clone()),
                gradients: gradients.slice(range.clone()),
                len: range.len(),
                settings: update.kernel(*decays),
            })?;
        }
        Ok(())
    }

    /// True if the piece contains padding.
    pub(super) fn is_padded(&self) -> bool {
        self.decay_ranges.iter().map(|decay| decay.range.len()).sum::<usize>() < self.range.len()
    }
}

impl States {
    /// Returns the operands of an update of elements `own`; `None` if the states are stored on
    /// disk. `out` is where the parameters go; if there are no separate master weights, the
    /// parameters are the master weights.
    pub(super) fn operands<'a>(
        &'a mut self,
        own: Range<usize>,
        out: Option<ViewMut<'a>>,
        gradients: View<'a>,
    ) -> Option<Operands<'a>> {
        let States::Memory { master, moments } = self else { return None };
        let [momentum, variance] = moments.each_mut().map(|moment| moment.slice_mut(own.clone()));
        let (parameters, master) = match master {
            Some(master) => (out, master.slice_mut(own)),
            None => (None, out?),
        };
        Some(Operands { parameters, master, momentum, variance, gradients })
    }
}

impl AdamWShard {
    /// Returns the shard of elements `slice` of `unit`, updated at most `sub_group_size` elements
    /// at a time.
    pub fn new(
        partition: &Partition,
        unit: UnitId,
        slice: &Range<usize>,
        states: States,
        sub_group_size: usize,
    ) -> Self {
        let piece = |range: Range<usize>| {
            let of_unit = slice.start + range.start..slice.start + range.end;
            Piece { decay_ranges: decay_ranges(partition, unit, &of_unit), range }
        };
        AdamWShard { states, pieces: AdamWShard::cut(slice.len(), sub_group_size).map(piece).collect() }
    }

    /// Returns the elements of each piece of a slice of `length` elements.
    pub fn cut(length: usize, sub_group_size: usize) -> impl Iterator<Item = Range<usize>> {
        let size = sub_group_size.max(1);
        (0..length).step_by(size).map(move |start| start..start.saturating_add(size).min(length))
    }

    /// Returns where `state` of the slice is stored. `weights` is where its parameters are stored;
    /// if there are no separate master weights, the parameters are the master weights.
    pub(super) fn storage<'a>(&'a self, state: TrainingState, weights: StateStorage<'a>) -> StateStorage<'a> {
        match (&self.states, state) {
            (States::Disk(extents), _) => {
                let piece = |(piece, states): (&Piece, &'a [Extent; TrainingState::ALL.len()])| {
                    (piece.range.clone(), &states[state as usize])
                };
                StateStorage::Disk(Class::Optimizer, self.pieces.iter().zip(extents).map(piece).collect())
            }
            (States::Memory { master: None, .. }, TrainingState::Weight) => weights,
            (States::Memory { master: Some(master), .. }, TrainingState::Weight) => {
                StateStorage::Memory(master.view())
            }
            (States::Memory { moments, .. }, TrainingState::Momentum) => {
                StateStorage::Memory(moments[0].view())
            }
            (States::Memory { moments, .. }, TrainingState::Variance) => {
                StateStorage::Memory(moments[1].view())
            }
        }
    }
}

/// Returns the ranges of `slice` of `unit` with the same weight decay, relative to its first
/// element.
fn decay_ranges(partition: &Partition, unit: UnitId, slice: &Range<usize>) -> Vec<DecayRange> {
    let mut ranges: Vec<DecayRange> = Vec::new();
    for TensorPart { within, decays, .. } in partition.parts(unit, slice) {
        match ranges.last_mut() {
            Some(last) if last.decays == decays && last.range.end == within.start => {
                last.range.end = within.end;
            }
            _ => ranges.push(DecayRange { range: within, decays }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Layout, ModelConfig};

    #[test]
    fn decay_ranges_of_all_slices_cover_every_tensor_with_its_own_decay() {
        let layout = Layout::new(&ModelConfig { width: 9, feed_forward: 7, ..ModelConfig::tiny() });
        let partition = Partition::new(&layout, model::Wrap::Block, 3);
        for (id, unit) in partition.units.iter().enumerate() {
            let mut decays = vec![None; unit.padded];
            for shard in 0..3 {
                let slice = partition.slice(id, shard);
                for DecayRange { range, decays: decay } in decay_ranges(&partition, id, &slice) {
                    decays[slice.start + range.start..slice.start + range.end].fill(Some(decay));
                }
            }
            for slot in &unit.slots {
                assert!(decays[slot.range()].iter().all(|d| *d == Some(slot.decays)));
            }
            assert!(decays[unit.parameters..].iter().all(Option::is_none), "padding is never updated");
        }
    }

    #[test]
    fn pieces_cover_all_decay_ranges_once() {
        let layout = Layout::new(&ModelConfig { width: 9, feed_forward: 7, ..ModelConfig::tiny() });
        let partition = Partition::new(&layout, model::Wrap::Block, 3);
        let elements = |ranges: &[DecayRange]| -> Vec<(usize, bool)> {
            let each =
                |decay: &DecayRange| decay.range.clone().map(|at| (at, decay.decays)).collect::<Vec<_>>();
            ranges.iter().flat_map(each).collect()
        };
        for (unit, shard) in
            (0..partition.units.len()).flat_map(|unit| (0..3).map(move |shard| (unit, shard)))
        {
            let slice = partition.slice(unit, shard);
            let whole = decay_ranges(&partition, unit, &slice);
            let new = |most| AdamWShard::new(&partition, unit, &slice, States::Disk(Vec::new()), most).pieces;
            assert_eq!(new(usize::MAX)[0].decay_ranges, whole);
            for most in [1, 2, 7, 10, 64, slice.len() - 1, slice.len()] {
                let pieces = new(most);
                assert_eq!(pieces.len(), slice.len().div_ceil(most));
                let mut covered = Vec::new();
                for (number, piece) in pieces.iter().enumerate() {
                    assert_eq!(piece.range, number * most..((number + 1) * most).min(slice.len()));
                    let end = slice.start + piece.range.end;
                    assert_eq!(piece.is_padded(), end > partition.units[unit].parameters);
                    let own = elements(&piece.decay_ranges).into_iter();
                    covered.extend(own.map(|(at, decays)| (piece.range.start + at, decays)));
                }
                assert_eq!(covered, elements(&whole), "unit {unit}, shard {shard}, {most} at a time");
            }
        }
    }
}
