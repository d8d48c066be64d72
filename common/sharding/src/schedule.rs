//! The units that a pass needs, and where it needs each of them first and last.

use crate::partition::{Partition, UnitId};
use events::Pass;
use model::Layout;

/// One pass over the layers, and the units that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// Layers in the order of the pass.
    pub layers: Vec<usize>,
    /// Units in the order in which they are first needed.
    pub order: Vec<UnitId>,
    /// Per layer of the pass: the units that it is the first to need.
    pub first: Vec<Vec<UnitId>>,
    /// Per layer of the pass: the units that it is the last to need.
    pub last: Vec<Vec<UnitId>>,
}

impl Visits {
    fn new(layers: Vec<usize>, layout: &Layout, partition: &Partition) -> Self {
        let needed: Vec<Vec<UnitId>> = layers.iter().map(|&l| units_of(l, layout, partition)).collect();
        let mut visits = Visits { layers, ..Visits::default() };
        for (step, units) in needed.iter().enumerate() {
            let fresh: Vec<UnitId> = units.iter().copied().filter(|u| !visits.order.contains(u)).collect();
            visits.order.extend(&fresh);
            visits.first.push(fresh);
            let later = &needed[step + 1..];
            visits
                .last
                .push(units.iter().copied().filter(|u| !later.iter().any(|l| l.contains(u))).collect());
        }
        visits
    }
}

fn units_of(layer: usize, layout: &Layout, partition: &Partition) -> Vec<UnitId> {
    let mut units = Vec::new();
    for &tensor in &layout.layers[layer].tensors {
        let unit = partition.home(tensor).0;
        if !units.contains(&unit) {
            units.push(unit);
        }
    }
    units
}

/// The forward and the backward pass, unit by unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// From the embedding to the loss.
    pub forward: Visits,
    /// From the loss to the embedding.
    pub backward: Visits,
}

impl Schedule {
    /// Returns the schedule of a model under a partition.
    pub fn new(layout: &Layout, partition: &Partition) -> Self {
        let forward: Vec<usize> = (0..layout.layers.len()).collect();
        let backward = forward.iter().rev().copied().collect();
        Schedule {
            forward: Visits::new(forward, layout, partition),
            backward: Visits::new(backward, layout, partition),
        }
    }

    /// Returns the visits of `pass`.
    pub fn pass(&self, pass: Pass) -> &Visits {
        if pass == Pass::Backward { &self.backward } else { &self.forward }
    }

    /// Returns the unit whose gradients are complete last in backward.
    pub fn last_reduced(&self) -> UnitId {
        self.backward.last.iter().flatten().last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ModelConfig, Wrap};

    fn schedule(tied: bool) -> Schedule {
        let layout = Layout::new(&ModelConfig { tied, layers: 2, ..ModelConfig::tiny() });
        Schedule::new(&layout, &Partition::new(&layout, Wrap::Block, 2))
    }

    #[test]
    fn untied_units_are_needed_once_per_pass() {
        let s = schedule(false);
        assert_eq!(s.forward.order, [0, 1, 2, 3]);
        assert_eq!(s.forward.last, [[0], [1], [2], [3]]);
        assert_eq!(s.backward.order, [3, 2, 1, 0]);
        assert_eq!(s.last_reduced(), 0);
    }

    #[test]
    fn a_tied_unit_stays_from_the_first_layer_to_the_last() {
        let s = schedule(true);
        assert_eq!(s.forward.order, [0, 1, 2, 3]);
        assert_eq!(s.forward.last, [vec![], vec![1], vec![2], vec![3, 0]]);
        assert_eq!(s.backward.order, [3, 0, 2, 1]);
        assert_eq!(s.backward.last, [vec![3], vec![2], vec![1], vec![0]]);
        assert_eq!(s.last_reduced(), 0);
    }
}
