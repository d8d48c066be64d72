//! AdamW (Loshchilov & Hutter, 2019) on one slice of one unit.

use super::update::ScaledUpdate;
use crate::Result;
use crate::buckets::bucket;
use crate::partition::{Partition, UnitId};
use crate::rank::Rank;
use device::{AdamWUpdate, Buffer, Class, DType, View, ViewMut};
use events::Pass;
use model::TrainingState;
use std::ops::Range;

/// AdamW's buffers for one slice, f32.
pub struct Moments {
    /// [`TrainingState::Momentum`].
    pub momentum: Buffer,
    /// [`TrainingState::Variance`].
    pub variance: Buffer,
}

/// Optimizer states for one slice of one unit, f32: momentum, variance, and master weights unless the parameters are f32
/// themselves.
pub struct AdamWShard {
    unit: UnitId,
    master: Option<Buffer>,
    moments: Moments,
    /// What is updated at a time: stretches of the slice with the same weight decay, relative to its start.
    pieces: Vec<Vec<(Range<usize>, bool)>>,
}

impl AdamWShard {
    /// States for elements `slice` of `unit`: `master` if the parameters are not f32. An update goes over at most `piece`
    /// elements at a time.
    pub fn new(
        partition: &Partition,
        unit: UnitId,
        slice: &Range<usize>,
        master: Option<Buffer>,
        moments: Moments,
        piece: usize,
    ) -> Self {
        let pieces = pieces(&stretches(partition, unit, slice), slice.len(), piece);
        AdamWShard { unit, master, moments, pieces }
    }

    /// Updates the slice's `parameters` from its `gradients`: the parameters themselves if they are f32, else the master
    /// weights, to which they are then rounded.
    ///
    /// # Errors
    /// If a kernel fails.
    pub fn update(
        &mut self,
        rank: &Rank,
        mut parameters: ViewMut<'_>,
        gradients: View<'_>,
        update: ScaledUpdate,
    ) -> Result<()> {
        for number in 0..self.pieces.len() {
            // A screen shows pieces as it shows micro-batches.
            let _bracket = rank.bracket(Pass::Step, self.unit, number);
            self.update_piece(rank, number, &mut parameters, &gradients, update)?;
        }
        Ok(())
    }

    fn update_piece(
        &mut self,
        rank: &Rank,
        number: usize,
        parameters: &mut ViewMut<'_>,
        gradients: &View<'_>,
        update: ScaledUpdate,
    ) -> Result<()> {
        for (range, decays) in &self.pieces[number] {
            let parameters = parameters.slice_mut(range.clone());
            let (parameters, master) = match &mut self.master {
                None => (None, parameters),
                Some(master) => (Some(parameters), master.slice_mut(range.clone())),
            };
            rank.kernels().adamw(AdamWUpdate {
                parameters,
                master,
                momentum: self.moments.momentum.slice_mut(range.clone()),
                variance: self.moments.variance.slice_mut(range.clone()),
                gradients: gradients.slice(range.clone()),
                len: range.len(),
                settings: update.kernel(*decays),
            })?;
        }
        Ok(())
    }

    /// The whole unit's `state`, f32, in main memory: gathered from all ranks unless `slice`, which is this rank's, is the
    /// whole of it. `parameters` are the slice's, which are the master weights themselves if they are f32.
    ///
    /// # Errors
    /// If a collective fails.
    pub fn whole(
        &self,
        state: TrainingState,
        rank: &Rank,
        partition: &Partition,
        slice: Range<usize>,
        parameters: View<'_>,
    ) -> Result<Buffer> {
        let unit = self.unit;
        let padded = partition.units[unit].padded;
        let own = match state {
            TrainingState::Weight => self.master.as_ref().map_or(parameters, Buffer::view),
            TrainingState::Momentum => self.moments.momentum.view(),
            TrainingState::Variance => self.moments.variance.view(),
        };
        let mut full = rank.device.allocate_host(Class::GatheredParameters, DType::F32, padded)?;
        rank.kernels().copy(full.slice_mut(slice.clone()), own)?;
        if slice.len() == padded {
            return Ok(full);
        }
        let mut gathered = rank.shard_group().all_gather(bucket(vec![full], &[unit]))?.wait()?;
        // A collective gives back as many buffers as it was given.
        gathered.pop().ok_or(crate::Error::Missing { unit, what: "gathered training state" })
    }
}

fn stretches(partition: &Partition, unit: UnitId, slice: &Range<usize>) -> Vec<(Range<usize>, bool)> {
    let mut stretches: Vec<(Range<usize>, bool)> = Vec::new();
    for slot in &partition.units[unit].slots {
        let (start, end) = (slot.start.max(slice.start), slot.range().end.min(slice.end));
        if start >= end {
            continue;
        }
        let range = start - slice.start..end - slice.start;
        match stretches.last_mut() {
            Some((last, decays)) if *decays == slot.decays && last.end == range.start => last.end = range.end,
            _ => stretches.push((range, slot.decays)),
        }
    }
    stretches
}

/// `stretches` of a slice of `length` elements, cut into pieces of at most `size`.
fn pieces(stretches: &[(Range<usize>, bool)], length: usize, size: usize) -> Vec<Vec<(Range<usize>, bool)>> {
    let starts = (0..length).step_by(size.max(1));
    let within = |start: usize| {
        let end = start.saturating_add(size);
        let clip =
            |(range, decays): &(Range<usize>, bool)| (range.start.max(start)..range.end.min(end), *decays);
        stretches.iter().map(clip).filter(|(range, _)| !range.is_empty()).collect()
    };
    starts.map(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Layout, ModelConfig};

    #[test]
    fn stretches_of_all_slices_cover_every_tensor_with_its_own_decay() {
        let layout = Layout::new(&ModelConfig { width: 9, feed_forward: 7, ..ModelConfig::tiny() });
        let partition = Partition::new(&layout, model::Wrap::Block, 3);
        for (id, unit) in partition.units.iter().enumerate() {
            let mut decays = vec![None; unit.padded];
            for shard in 0..3 {
                let slice = partition.slice(id, shard);
                for (range, decay) in stretches(&partition, id, &slice) {
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
    fn pieces_cover_all_stretches_once() {
        let stretches = [(0..5, true), (5..6, false), (8..20, true)];
        assert_eq!(pieces(&stretches, 20, usize::MAX), [stretches.to_vec()]);
        for size in 1..21 {
            let pieces = pieces(&stretches, 20, size);
            assert_eq!(pieces.len(), 20usize.div_ceil(size));
            for (number, piece) in pieces.iter().enumerate() {
                let allowed = number * size..(number + 1) * size;
                assert!(
                    piece.iter().all(|(range, _)| allowed.start <= range.start && range.end <= allowed.end)
                );
            }
            let elements = |of: &[(Range<usize>, bool)]| -> Vec<(usize, bool)> {
                of.iter().flat_map(|(range, decays)| range.clone().map(|at| (at, *decays))).collect()
            };
            assert_eq!(elements(&pieces.concat()), elements(&stretches));
        }
    }
}
