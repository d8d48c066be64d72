//! Layers grouped into units, and units cut into equal slices.

use crate::wrap::{cut, unit_name};
use model::{Layout, TensorId, Wrap};
use std::ops::Range;

/// Position of a unit in [`Partition::units`].
pub type UnitId = usize;

/// The place of one tensor in its unit's flat segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorSlot {
    /// The tensor.
    pub tensor: TensorId,
    /// Its first element in the segment.
    pub start: usize,
    /// Its number of elements.
    pub elements: usize,
    /// Whether weight decay applies to it.
    pub decays: bool,
}

impl TensorSlot {
    /// Returns the tensor's elements in the segment.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.elements
    }
}

/// The part of one tensor that lies in a slice of its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPart {
    /// The tensor.
    pub tensor: TensorId,
    /// Its elements, counted from the tensor's first.
    pub elements: Range<usize>,
    /// The same elements, counted from the slice's first.
    pub within: Range<usize>,
    /// Whether weight decay applies to them.
    pub decays: bool,
}

/// A flat segment of whole tensors, padded at its end, that is gathered, reduced and released as
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name on screens and in tables: `embedding`, `block 0`, `head`.
    pub name: String,
    /// Its tensors, in order.
    pub slots: Vec<TensorSlot>,
    /// Elements without padding.
    pub parameters: usize,
    /// Elements with padding: a multiple of the shard count.
    pub padded: usize,
    /// True if every rank keeps its parameters in full, although gradients and optimizer states are
    /// sharded.
    pub persistent: bool,
}

/// Limits of the persistent tensors, which stay whole where parameters are sharded: small ones,
/// whose collectives would cost more than their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistenceLimits {
    /// Maximum number of elements of one tensor; 0 for no tensors.
    pub each: usize,
    /// Maximum number of elements of all of them together.
    pub together: usize,
}

/// A model's tensors in units, and the number of slices that each unit is cut into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The units, in forward order.
    pub units: Vec<Unit>,
    /// Slices per unit: the number of ranks that share it, or 1 where everything is replicated.
    pub shards: usize,
    homes: Vec<(UnitId, usize)>,
}

impl Partition {
    /// Groups the tensors of `layout` into units as `wrap` says, and cuts each unit into `shards`
    /// slices.
    pub fn new(layout: &Layout, wrap: Wrap, shards: usize) -> Self {
        let mut partition =
            Partition { units: Vec::new(), shards, homes: vec![(0, 0); layout.tensors.len()] };
        let mut open: Vec<TensorId> = Vec::new();
        for tensor in 0..layout.tensors.len() {
            if open.last().is_some_and(|&last| cut(layout, wrap, &open, (last, tensor))) {
                partition.add(layout, wrap, &std::mem::take(&mut open));
            }
            open.push(tensor);
        }
        partition.add(layout, wrap, &open);
        partition
    }

    fn add(&mut self, layout: &Layout, wrap: Wrap, tensors: &[TensorId]) {
        let name = unit_name(layout, wrap, tensors, self.units.len());
        let slot = |&tensor: &TensorId| {
            let spec = &layout.tensors[tensor];
            TensorSlot { tensor, start: 0, elements: spec.elements(), decays: spec.decays() }
        };
        self.place(name, tensors.iter().map(slot).collect());
    }

    /// Adds a unit of `slots`, one after the other, which is not persistent. Returns it.
    fn place(&mut self, name: String, mut slots: Vec<TensorSlot>) -> &mut Unit {
        let mut parameters = 0;
        for (at, slot) in slots.iter_mut().enumerate() {
            self.homes[slot.tensor] = (self.units.len(), at);
            slot.start = parameters;
            parameters += slot.elements;
        }
        let padded = parameters.next_multiple_of(self.shards);
        let unit = self.units.len();
        self.units.push(Unit { name, slots, parameters, padded, persistent: false });
        &mut self.units[unit]
    }

    /// Returns this partition with small tensors in persistent units, each after the unit from
    /// which its tensors come.
    pub fn with_persistent_tensors(self, limits: PersistenceLimits) -> Self {
        let Partition { units, shards, homes } = self;
        let mut split = Partition { units: Vec::new(), shards, homes };
        let mut together = 0;
        for Unit { name, slots, .. } in units {
            let (persistent, cut): (Vec<TensorSlot>, Vec<TensorSlot>) = slots.into_iter().partition(|slot| {
                let stays = slot.elements <= limits.each && together + slot.elements <= limits.together;
                together += if stays { slot.elements } else { 0 };
                stays
            });
            let persistent_name = if cut.is_empty() { name.clone() } else { format!("{name} persistent") };
            for (name, slots, is_persistent) in [(name, cut, false), (persistent_name, persistent, true)] {
                if !slots.is_empty() {
                    split.place(name, slots).persistent = is_persistent;
                }
            }
        }
        split
    }

    /// Returns the unit that holds `tensor`, and its slot there.
    pub fn home(&self, tensor: TensorId) -> (UnitId, TensorSlot) {
        let (unit, slot) = self.homes[tensor];
        (unit, self.units[unit].slots[slot])
    }

    /// Returns the tensor parts in `slice` of `unit`, in order, without padding.
    pub fn parts<'a>(
        &'a self,
        unit: UnitId,
        slice: &'a Range<usize>,
    ) -> impl Iterator<Item = TensorPart> + 'a {
        self.units[unit].slots.iter().filter_map(|slot| {
            let (start, end) = (slot.start.max(slice.start), slot.range().end.min(slice.end));
            (start < end).then(|| TensorPart {
                tensor: slot.tensor,
                elements: start - slot.start..end - slot.start,
                within: start - slice.start..end - slice.start,
                decays: slot.decays,
            })
        })
    }

    /// Returns the elements of `unit` that shard `shard` owns: the shard-th of equal slices.
    pub fn slice(&self, unit: UnitId, shard: usize) -> Range<usize> {
        let length = self.units[unit].padded / self.shards;
        shard * length..(shard + 1) * length
    }

    /// Returns the elements of the largest unit, padding included: the default size of a bucket.
    pub fn largest(&self) -> usize {
        self.units.iter().map(|unit| unit.padded).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
