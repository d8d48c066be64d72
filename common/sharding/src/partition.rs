//! Layers grouped into units, and units cut into equal slices.

use model::{LayerKind, Layout, TensorId};
use std::ops::Range;

/// Position of a unit in [`Partition::units`].
pub type UnitId = usize;

/// Where one tensor lies in its unit's flat segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The tensor.
    pub tensor: TensorId,
    /// Its first element in the segment.
    pub start: usize,
    /// Its number of elements.
    pub elements: usize,
    /// Whether weight decay applies to it.
    pub decays: bool,
}

impl Slot {
    /// Its elements in the segment.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.elements
    }
}

/// What is gathered, reduced and released as one: a flat segment of whole tensors, padded at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Name for people: `embedding`, `block 0`, `head`.
    pub name: String,
    /// Its tensors, in order.
    pub slots: Vec<Slot>,
    /// Elements without padding.
    pub parameters: usize,
    /// Elements with padding: a multiple of the shard count.
    pub padded: usize,
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
    /// One unit per layer: the embedding, each block, the final norm with the head. A tensor that two layers share (a
    /// tied embedding) belongs to the first of them.
    pub fn by_layer(layout: &Layout, shards: usize) -> Self {
        let mut partition =
            Partition { units: Vec::new(), shards, homes: vec![(0, 0); layout.tensors.len()] };
        let mut placed = vec![false; layout.tensors.len()];
        for layer in &layout.layers {
            let tensors: Vec<TensorId> =
                layer.tensors.iter().copied().filter(|&t| !std::mem::replace(&mut placed[t], true)).collect();
            partition.add(unit_name(layer.kind), &tensors, layout);
        }
        partition
    }

    fn add(&mut self, name: String, tensors: &[TensorId], layout: &Layout) {
        let mut unit = Unit { name, slots: Vec::new(), parameters: 0, padded: 0 };
        for &tensor in tensors {
            let spec = &layout.tensors[tensor];
            let slot =
                Slot { tensor, start: unit.parameters, elements: spec.elements(), decays: spec.decays() };
            self.homes[tensor] = (self.units.len(), unit.slots.len());
            unit.parameters += slot.elements;
            unit.slots.push(slot);
        }
        unit.padded = unit.parameters.next_multiple_of(self.shards);
        self.units.push(unit);
    }

    /// The unit that holds `tensor`, and its slot there.
    pub fn home(&self, tensor: TensorId) -> (UnitId, Slot) {
        let (unit, slot) = self.homes[tensor];
        (unit, self.units[unit].slots[slot])
    }

    /// The elements of `unit` that shard `shard` owns: the shard-th of equal slices.
    pub fn slice(&self, unit: UnitId, shard: usize) -> Range<usize> {
        let length = self.units[unit].padded / self.shards;
        shard * length..(shard + 1) * length
    }

    /// Elements of the largest unit, padding included: the default size of a bucket.
    pub fn largest(&self) -> usize {
        self.units.iter().map(|unit| unit.padded).max().unwrap_or(0)
    }
}

fn unit_name(kind: LayerKind) -> String {
    match kind {
        LayerKind::Embedding => "embedding".into(),
        LayerKind::Block(i) => format!("block {i}"),
        LayerKind::Head => "head".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ModelConfig;
    use proptest::prelude::*;

    #[test]
    fn a_tied_table_lives_in_the_first_unit_alone() {
        let layout = Layout::new(&ModelConfig { tied: true, ..ModelConfig::tiny() });
        let partition = Partition::by_layer(&layout, 4);
        assert_eq!(partition.units.len(), 6);
        assert_eq!(partition.units[5].slots.len(), 1);
        let table = layout.layers[5].tensors[1];
        assert_eq!(partition.home(table).0, 0);
    }

    proptest! {
        #[test]
        fn slices_cover_every_unit_once(shards in 1usize..9, width in 1usize..40, layers in 1usize..4) {
            let config = ModelConfig { width, layers, feed_forward: width * 2 + 1, ..ModelConfig::tiny() };
            let layout = Layout::new(&config);
            let partition = Partition::by_layer(&layout, shards);
            let total: usize = partition.units.iter().map(|u| u.parameters).sum();
            prop_assert_eq!(total as u64, layout.parameters());
            for (id, unit) in partition.units.iter().enumerate() {
                prop_assert!(unit.padded - unit.parameters < shards);
                let mut end = 0;
                for shard in 0..shards {
                    let slice = partition.slice(id, shard);
                    prop_assert_eq!(slice.start, end);
                    end = slice.end;
                }
                prop_assert_eq!(end, unit.padded);
            }
        }
    }
}
