//! Units: what is gathered, reduced and released as one.

use crate::job::Job;
use events::header::UnitHeader;
use model::{LayerKind, Layout};
use serde::Serialize;

/// One unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// Its name on screen.
    pub name: String,
    /// Parameters in it (n), without padding.
    pub parameters: u64,
    /// Parameters in it, padded to a multiple of the shard count (P).
    pub padded: u64,
}

/// The units of a model, in forward order, and which layers need them.
///
/// Each layer's tensors are one unit; a tensor that several layers use belongs to the first. So a tied head has the
/// final norm in its own unit and needs the embedding's too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The units.
    pub units: Vec<Unit>,
    /// Units that each layer needs, its own first.
    pub needs: Vec<Vec<usize>>,
}

impl Partition {
    /// The units of `layout`, padded for `shards` slices each.
    pub fn new(layout: &Layout, shards: u64) -> Self {
        let mut unit_of = vec![None; layout.tensors.len()];
        let mut partition = Partition { units: Vec::new(), needs: Vec::new() };
        for layer in &layout.layers {
            let own = partition.units.len();
            let mut parameters = 0;
            let mut needs = vec![own];
            for &tensor in &layer.tensors {
                match unit_of[tensor] {
                    None => parameters += layout.tensors[tensor].elements() as u64,
                    Some(unit) if !needs.contains(&unit) => needs.push(unit),
                    Some(_) => {}
                }
                unit_of[tensor].get_or_insert(own);
            }
            let padded = parameters.next_multiple_of(shards);
            partition.units.push(Unit { name: name(layer.kind), parameters, padded });
            partition.needs.push(needs);
        }
        partition
    }

    /// The units of `job`'s model.
    pub fn of(job: &Job) -> Self {
        Partition::new(&job.layout(), job.stage.shard_count(job.world_size))
    }

    /// Parameters of the model (Ψ), without padding.
    pub fn parameters(&self) -> u64 {
        self.units.iter().map(|unit| unit.parameters).sum()
    }

    /// Parameters of each unit, without padding.
    pub fn sizes(&self) -> Vec<u64> {
        self.units.iter().map(|unit| unit.parameters).collect()
    }

    /// Padded parameters of the largest unit: the default size of a bucket, in elements.
    pub fn largest(&self) -> u64 {
        self.units.iter().map(|unit| unit.padded).max().unwrap_or(0)
    }

    /// The units as a run's header lists them.
    pub fn headers(&self) -> Vec<UnitHeader> {
        let header = |unit: &Unit| UnitHeader {
            name: unit.name.clone(),
            parameters: unit.parameters,
            padded: unit.padded,
        };
        self.units.iter().map(header).collect()
    }

    /// Index of the last layer: the head.
    pub(crate) fn last_layer(&self) -> usize {
        self.needs.len().saturating_sub(1)
    }

    /// First layer, in forward order, that needs `unit`.
    pub(crate) fn first_use(&self, unit: usize) -> usize {
        self.needs.iter().position(|needs| needs.contains(&unit)).unwrap_or(0)
    }

    /// Last layer, in forward order, that needs `unit`.
    pub(crate) fn last_use(&self, unit: usize) -> usize {
        self.needs.iter().rposition(|needs| needs.contains(&unit)).unwrap_or(0)
    }
}

fn name(kind: LayerKind) -> String {
    match kind {
        LayerKind::Embedding => "embedding".into(),
        LayerKind::Block(i) => format!("block {i}"),
        LayerKind::Head => "head".into(),
    }
}
