//! The boundaries and the names of units.

use model::{LayerKind, Layout, TensorId, Wrap};

/// True if a unit of the tensors `open` ends between its last tensor and the next.
pub(crate) fn cut(
    layout: &Layout,
    wrap: Wrap,
    open: &[TensorId],
    (last, next): (TensorId, TensorId),
) -> bool {
    match wrap {
        Wrap::Model => false,
        Wrap::Block => layer_of(layout, last) != layer_of(layout, next),
        Wrap::Module => module(layout, last) != module(layout, next),
        Wrap::Parameter => true,
        Wrap::Size(parameters) => {
            let held: usize = open.iter().map(|&tensor| layout.tensors[tensor].elements()).sum();
            held as u64 >= parameters
        }
    }
}

/// Returns the first layer that needs `tensor`.
fn layer_of(layout: &Layout, tensor: TensorId) -> usize {
    layout.layers.iter().position(|layer| layer.tensors.contains(&tensor)).unwrap_or(0)
}

/// Returns the words of `tensor`'s name that identify its module: `model layers 0 mlp`, `lm_head`.
fn module(layout: &Layout, tensor: TensorId) -> Vec<&str> {
    let mut words: Vec<&str> = layout.tensors[tensor].name.split('.').filter(|&w| w != "weight").collect();
    words.truncate(4);
    words
}

/// Returns a unit's name for screens and tables. Units of a size are numbered, since they may begin
/// and end anywhere.
pub(crate) fn unit_name(layout: &Layout, wrap: Wrap, tensors: &[TensorId], number: usize) -> String {
    let first = tensors.first().copied().unwrap_or(0);
    let within = |depth: usize| layout.tensors[first].name.split('.').nth(depth).unwrap_or_default();
    match (wrap, layout.layers[layer_of(layout, first)].kind) {
        (Wrap::Model, _) => "model".into(),
        (Wrap::Size(_), _) => format!("part {number}"),
        (_, LayerKind::Embedding) => "embedding".into(),
        (Wrap::Block, LayerKind::Block(i)) => format!("block {i}"),
        (Wrap::Module, LayerKind::Block(i)) => format!("block {i} {}", within(3)),
        // Norms are modules with one tensor and no projection in them.
        (Wrap::Parameter, LayerKind::Block(i)) if within(4) == "weight" => format!("block {i} {}", within(3)),
        (Wrap::Parameter, LayerKind::Block(i)) if within(5) == "bias" => {
            format!("block {i} {}.bias", within(4))
        }
        (Wrap::Parameter, LayerKind::Block(i)) => format!("block {i} {}", within(4)),
        (Wrap::Module | Wrap::Parameter, LayerKind::Head) if within(1) == "norm" => "norm".into(),
        (_, LayerKind::Head) => "head".into(),
    }
}
