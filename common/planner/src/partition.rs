//! Units: what is gathered, reduced and released as one.

use crate::job::Job;
use crate::recipe::ModelStates;
use events::header::UnitHeader;
use model::{LayerKind, Layout, Wrap};
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
/// With a unit per layer, a tensor that several layers use belongs to the first. So a tied head has the final norm in its
/// own unit and needs the embedding's too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The units.
    pub units: Vec<Unit>,
    /// Units that each layer needs.
    pub needs: Vec<Vec<usize>>,
}

impl Partition {
    /// The units that `wrap` makes of `layout`, padded for `shards` slices each.
    pub fn new(layout: &Layout, wrap: Wrap, shards: u64) -> Self {
        let mut partition = Partition { units: Vec::new(), needs: Vec::new() };
        let mut unit_of: Vec<Option<usize>> = vec![None; layout.tensors.len()];
        let mut previous = None;
        for layer in &layout.layers {
            for (position, &tensor) in layer.tensors.iter().enumerate() {
                if unit_of[tensor].is_some() {
                    continue;
                }
                let elements = layout.tensors[tensor].elements() as u64;
                let here = Place { kind: layer.kind, position };
                let open = partition.units.last_mut().filter(|unit| !here.begins_unit(wrap, previous, unit));
                match open {
                    Some(unit) => unit.parameters += elements,
                    None => {
                        let name = here.unit_name(wrap, partition.units.len());
                        partition.units.push(Unit { name, parameters: elements, padded: 0 });
                    }
                }
                unit_of[tensor] = Some(partition.units.len() - 1);
                previous = Some(here);
            }
            let needed = layer.tensors.iter().filter_map(|&tensor| unit_of[tensor]);
            partition.needs.push(without_repetitions(needed));
        }
        for unit in &mut partition.units {
            unit.padded = unit.parameters.next_multiple_of(shards);
        }
        partition
    }

    /// The units of `job`'s model.
    pub fn of(job: &Job) -> Self {
        Partition::new(&job.layout(), job.wrap, job.shards())
    }

    /// What a rank of `job` holds between steps.
    pub fn model_states(&self, job: &Job) -> ModelStates {
        let states = job.recipe.model_states(&self.sizes(), job.sharing_ranks(), job.stage);
        let padded: u64 = self.units.iter().map(|unit| unit.padded).sum();
        let slice = job.secondary_shards.map_or(0, |ranks| padded / ranks as u64);
        ModelStates { secondary: slice * job.recipe.weights, ..states }
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

    /// Units that `layer` is the last to need, in forward order.
    pub(crate) fn last_used_by(&self, layer: usize) -> Vec<usize> {
        self.needs[layer].iter().copied().filter(|&unit| self.last_use(unit) == layer).collect()
    }

    /// Units that `layer` is the first to need, in forward order: in backward, the last.
    pub(crate) fn first_used_by(&self, layer: usize) -> Vec<usize> {
        self.needs[layer].iter().copied().filter(|&unit| self.first_use(unit) == layer).collect()
    }

    /// Padded parameters of the units that layers need between the last use of `unit` in forward and its first in
    /// backward: in forward, and again in backward.
    pub(crate) fn reuse_distance(&self, unit: usize) -> u64 {
        let layer = self.last_use(unit);
        let between =
            |other: usize| u64::from(self.first_use(other) > layer) + u64::from(self.last_use(other) > layer);
        self.units.iter().enumerate().map(|(other, unit)| between(other) * unit.padded).sum()
    }
}

/// Where a tensor stands: its first layer, and its position there.
#[derive(Clone, Copy)]
struct Place {
    kind: LayerKind,
    position: usize,
}

impl Place {
    /// Whether a unit begins here, rather than that `unit`, which ends with `previous`, goes on.
    fn begins_unit(self, wrap: Wrap, previous: Option<Place>, unit: &Unit) -> bool {
        let Some(previous) = previous else { return true };
        match wrap {
            Wrap::Model => false,
            Wrap::Block => self.kind != previous.kind,
            Wrap::Module => (self.kind, self.module()) != (previous.kind, previous.module()),
            Wrap::Parameter => true,
            Wrap::Size(parameters) => unit.parameters >= parameters,
        }
    }

    /// The module within its layer.
    fn module(self) -> &'static str {
        match (self.kind, self.position) {
            (LayerKind::Embedding, _) => "embedding",
            (LayerKind::Block(_), 0..4) => "self_attn",
            (LayerKind::Block(_), 4..7) => "mlp",
            (LayerKind::Block(_), 7) => "input_layernorm",
            (LayerKind::Block(_), _) => "post_attention_layernorm",
            (LayerKind::Head, 0) => "norm",
            (LayerKind::Head, _) => "head",
        }
    }

    /// The tensor within its layer.
    fn tensor(self) -> &'static str {
        const PROJECTIONS: [&str; 7] =
            ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
        match self.kind {
            LayerKind::Block(_) => PROJECTIONS.get(self.position).copied().unwrap_or(self.module()),
            LayerKind::Embedding | LayerKind::Head => self.module(),
        }
    }

    /// The name of the unit that begins here.
    fn unit_name(self, wrap: Wrap, number: usize) -> String {
        let part = match wrap {
            Wrap::Model => return "model".into(),
            Wrap::Size(_) => return format!("part {number}"),
            Wrap::Block => "",
            Wrap::Module => self.module(),
            Wrap::Parameter => self.tensor(),
        };
        match self.kind {
            LayerKind::Block(i) => format!("block {i} {part}").trim_end().into(),
            LayerKind::Head if wrap == Wrap::Block => "head".into(),
            LayerKind::Embedding | LayerKind::Head => self.module().into(),
        }
    }
}

fn without_repetitions(units: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut once = Vec::new();
    for unit in units {
        if !once.contains(&unit) {
            once.push(unit);
        }
    }
    once
}
