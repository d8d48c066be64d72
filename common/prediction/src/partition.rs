//! Units: groups of tensors that are gathered, reduced and released as one.

use crate::job::Job;
use crate::recipe::ModelStates;
use model::{LayerKind, Layout, Wrap};
use std::collections::BTreeSet;

pub use events::header::UnitHeader as Unit;

/// The units of a model, in forward order, and the layers that need them.
///
/// With a unit per layer, a tensor that several layers use belongs to the first. So a tied head has
/// the final norm in its own unit and needs the embedding's too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The units.
    pub units: Vec<Unit>,
    /// Units that each layer needs.
    pub needs: Vec<Vec<usize>>,
    /// The unit of each tensor, in the layout's order.
    pub(crate) unit_of: Vec<usize>,
    /// The unit under which passes over each layer are reported: the first that is gathered of
    /// those that hold the layer's own tensors, or else the first.
    pub(crate) shown: Vec<usize>,
    /// First and last layer, in forward order, that needs each unit.
    uses: Vec<(usize, usize)>,
    /// See [`Partition::reuse_distance`].
    reuse_distances: Vec<u64>,
}

impl Partition {
    /// Returns the units of `job`'s model.
    pub fn of(job: &Job) -> Self {
        let layout = Layout::new(&job.config);
        let (names, wrapped) = wrap(&layout, job.wrap);
        // A unit's persistent tensors come after the others.
        let places: Vec<(usize, bool)> = wrapped.into_iter().zip(persistent(&layout, job)).collect();
        let units: BTreeSet<(usize, bool)> = places.iter().copied().collect();
        let units: Vec<(usize, bool)> = units.into_iter().collect();
        let unit_of: Vec<usize> =
            places.iter().map(|place| units.partition_point(|unit| unit < place)).collect();
        let mut sizes = vec![0; units.len()];
        unit_of
            .iter()
            .zip(&layout.tensors)
            .for_each(|(&unit, tensor)| sizes[unit] += tensor.elements() as u64);
        let unit = |(&(number, persistent), &parameters): (&(usize, bool), &u64)| {
            let beside = persistent && units.contains(&(number, false));
            let name = if beside { format!("{} persistent", names[number]) } else { names[number].clone() };
            Unit { name, parameters, padded: parameters.next_multiple_of(job.shards()), persistent }
        };
        let needs = layout
            .layers
            .iter()
            .map(|layer| without_repetitions(layer.tensors.iter().map(|&tensor| unit_of[tensor])));
        let (needs, units): (Vec<_>, Vec<Unit>) =
            (needs.collect(), units.iter().zip(&sizes).map(unit).collect());
        let shown = layout.layers.iter().map(|layer| {
            // A tied head also needs the embedding's table, which precedes its own tensors.
            let first = layer.tensors[0];
            let own = layer.tensors.iter().filter(|&&tensor| tensor >= first);
            let mut own = own.map(|&tensor| unit_of[tensor]);
            own.find(|&unit| !units[unit].persistent).unwrap_or(unit_of[first])
        });
        let shown = shown.collect();
        let uses = uses(&needs, units.len());
        let reuse_distances = reuse_distances(&units, &uses);
        Partition { units, needs, unit_of, shown, uses, reuse_distances }
    }

    /// Returns a single unit of `parameters`, without a model, cut into `shards`.
    pub fn of_count(parameters: u64, shards: u64) -> Self {
        let padded = parameters.next_multiple_of(shards);
        let unit = Unit { name: "all".into(), parameters, padded, persistent: false };
        let (needs, unit_of, shown, uses, reuse_distances) = Default::default();
        Partition { units: vec![unit], needs, unit_of, shown, uses, reuse_distances }
    }

    /// Returns the bytes that a rank of `job` holds between steps if nothing is offloaded.
    pub fn model_states(&self, job: &Job) -> ModelStates {
        let states = job.recipe.model_states(&self.sizes(), job.sharing_ranks(), job.stage);
        let gathered: u64 = self.units.iter().filter(|unit| !unit.persistent).map(|unit| unit.padded).sum();
        let slice = job.secondary_shards.map_or(0, |ranks| gathered / ranks as u64);
        let persistent = self.units.iter().filter(|unit| unit.persistent);
        let beyond_shards: u64 = persistent.map(|unit| unit.padded - unit.padded / job.shards()).sum();
        ModelStates {
            weights: states.weights + beyond_shards * job.recipe.weights,
            secondary: slice * job.recipe.weights,
            ..states
        }
    }

    /// Returns the parameters of the model (Ψ), without padding.
    pub fn parameters(&self) -> u64 {
        self.units.iter().map(|unit| unit.parameters).sum()
    }

    /// Returns the parameters of each unit, without padding.
    pub fn sizes(&self) -> Vec<u64> {
        self.units.iter().map(|unit| unit.parameters).collect()
    }

    /// Returns the padded parameters of the largest unit: the default size of a bucket, in
    /// elements.
    pub fn largest(&self) -> u64 {
        self.units.iter().map(|unit| unit.padded).max().unwrap_or(0)
    }

    /// Returns the index of the last layer: the head.
    pub(crate) fn last_layer(&self) -> usize {
        self.needs.len().saturating_sub(1)
    }

    /// Returns the units that `layer` is the last to need, in forward order.
    pub(crate) fn last_used_by(&self, layer: usize) -> Vec<usize> {
        self.needs[layer].iter().copied().filter(|&unit| self.uses[unit].1 == layer).collect()
    }

    /// Returns the units that `layer` is the first to need in forward, and so the last in backward.
    pub(crate) fn first_used_by(&self, layer: usize) -> Vec<usize> {
        self.needs[layer].iter().copied().filter(|&unit| self.uses[unit].0 == layer).collect()
    }

    /// Returns the padded parameters of the units that layers need between the last use of `unit`
    /// in forward and its first in backward, counted in forward and again in backward.
    pub(crate) fn reuse_distance(&self, unit: usize) -> u64 {
        self.reuse_distances[unit]
    }
}

/// Returns the first and the last layer that needs each of `units` units.
fn uses(needs: &[Vec<usize>], units: usize) -> Vec<(usize, usize)> {
    let mut uses: Vec<Option<(usize, usize)>> = vec![None; units];
    for (layer, needs) in needs.iter().enumerate() {
        for &unit in needs {
            uses[unit] = Some((uses[unit].map_or(layer, |(first, _)| first), layer));
        }
    }
    uses.into_iter().map(Option::unwrap_or_default).collect()
}

fn reuse_distances(units: &[Unit], uses: &[(usize, usize)]) -> Vec<u64> {
    let layers = uses.iter().map(|&(_, last)| last + 1).max().unwrap_or(0);
    // Elements that forward and backward need after each layer.
    let mut beyond = vec![0; layers + 1];
    for (unit, &(first, last)) in units.iter().zip(uses).filter(|(unit, _)| !unit.persistent) {
        beyond[first] += unit.padded;
        beyond[last] += unit.padded;
    }
    for layer in (0..layers).rev() {
        beyond[layer] += beyond[layer + 1];
    }
    uses.iter().map(|&(_, layer)| beyond[layer + 1]).collect()
}

/// Returns the names of the units into which `wrap` cuts `layout`, and the unit of each tensor.
fn wrap(layout: &Layout, wrap: Wrap) -> (Vec<String>, Vec<usize>) {
    let (mut names, mut held, mut previous) = (Vec::new(), 0, None);
    let mut unit_of: Vec<Option<usize>> = vec![None; layout.tensors.len()];
    for layer in &layout.layers {
        for &tensor in &layer.tensors {
            if unit_of[tensor].is_some() {
                continue;
            }
            let here = FirstUse { layer: layer.kind, name: &layout.tensors[tensor].name };
            if here.begins_unit(wrap, previous, held) {
                names.push(here.unit_name(wrap, names.len()));
                held = 0;
            }
            held += layout.tensors[tensor].elements() as u64;
            unit_of[tensor] = Some(names.len() - 1);
            previous = Some(here);
        }
    }
    (names, unit_of.into_iter().map(Option::unwrap_or_default).collect())
}

/// Returns for each tensor whether it is persistent: small ones are, up to the job's limit for all
/// of them.
fn persistent(layout: &Layout, job: &Job) -> Vec<bool> {
    let mut room = if job.stage.sharded().parameters { job.model_persistence_threshold } else { 0 };
    let stays = |elements: u64| {
        let stays = elements <= job.persistence_threshold.min(room);
        room -= if stays { elements } else { 0 };
        stays
    };
    layout.tensors.iter().map(|tensor| tensor.elements() as u64).map(stays).collect()
}

/// A tensor, by its Hugging Face name, and the first layer that needs it.
#[derive(Clone, Copy)]
struct FirstUse<'a> {
    layer: LayerKind,
    name: &'a str,
}

impl<'a> FirstUse<'a> {
    /// True if a new unit begins here; false if this tensor joins the unit of `held` parameters
    /// that ends with `previous`.
    fn begins_unit(self, wrap: Wrap, previous: Option<FirstUse<'_>>, held: u64) -> bool {
        let Some(previous) = previous else { return true };
        match wrap {
            Wrap::Model => false,
            Wrap::Block => self.layer != previous.layer,
            Wrap::Module => (self.layer, self.module()) != (previous.layer, previous.module()),
            Wrap::Parameter => true,
            Wrap::Size(parameters) => held >= parameters,
        }
    }

    /// Returns the names of the tensor's module within its layer, and of the tensor within the
    /// module: `model.layers.0.mlp.up_proj.weight` is `up_proj` in `mlp`. A tensor directly in the
    /// block, such as `input_layernorm`, is a module of its own.
    fn names(self) -> (&'a str, &'a str) {
        match self.layer {
            LayerKind::Embedding => ("embedding", "embedding"),
            LayerKind::Head if self.name.ends_with("norm.weight") => ("norm", "norm"),
            LayerKind::Head => ("head", "head"),
            LayerKind::Block(_) => {
                let name = self.name.strip_suffix(".weight").unwrap_or(self.name);
                let mut parts = name.splitn(5, '.').skip(3);
                let module = parts.next().unwrap_or(name);
                (module, parts.next().unwrap_or(module))
            }
        }
    }

    fn module(self) -> &'a str {
        self.names().0
    }

    /// Returns the name of the unit that begins here.
    fn unit_name(self, wrap: Wrap, number: usize) -> String {
        let part = match wrap {
            Wrap::Model => return "model".into(),
            Wrap::Size(_) => return format!("part {number}"),
            Wrap::Block => "",
            Wrap::Module => self.module(),
            Wrap::Parameter => self.names().1,
        };
        match self.layer {
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
