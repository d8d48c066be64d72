//! DeepSpeed's own estimators, for comparison with the planner's predictions.
//!
//! They count model states only: no activations, no buckets, and of gathered units only the largest
//! layer. DeepSpeed has none for ZeRO-1. 18 bytes per sharded parameter are 2 for a 16-bit
//! gradient, 4 for an fp32 one, 4 for the master weight and 8 for Adam, by the comment next to the
//! ZeRO-2 formula. In the ZeRO-3 formula they are 16 for parameter, gradient, momentum and variance
//! in fp32 and 2 for the 16-bit parameter, by DeepSpeed's documentation (docs/code-docs,
//! memory.rst).

use crate::numbers::Scale;
use model::Layout;
use prediction::Stage;
use prediction::recipe::Recipe;
use shell::table::Table;

/// The model states that DeepSpeed's estimator assumes in main memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EstimatedOffload {
    /// Nothing.
    None,
    /// Optimizer states.
    Optimizer,
    /// Optimizer states and parameters (ZeRO-3 only).
    OptimizerAndParameters,
}

/// Returns the bytes per GPU by DeepSpeed's ZeRO-2 estimator, for Ψ `parameters` on N `gpus`: 2Ψ +
/// 18Ψ/N, or 2Ψ with the optimizer offloaded.
pub fn zero2_gpu(parameters: u64, gpus: u64, offload: EstimatedOffload) -> u64 {
    match offload {
        EstimatedOffload::None => 2 * parameters + 18 * parameters / gpus,
        EstimatedOffload::Optimizer | EstimatedOffload::OptimizerAndParameters => 2 * parameters,
    }
}

/// Returns the bytes per GPU by DeepSpeed's ZeRO-3 estimator, for Ψ `parameters`, L of them in the
/// `largest_layer`, on N `gpus`: 4L + 18Ψ/N; 4L + 2Ψ/N with the optimizer offloaded; 4L with
/// parameters offloaded too.
pub fn zero3_gpu(parameters: u64, largest_layer: u64, gpus: u64, offload: EstimatedOffload) -> u64 {
    let sharded = match offload {
        EstimatedOffload::None => 18 * parameters / gpus,
        EstimatedOffload::Optimizer => 2 * parameters / gpus,
        EstimatedOffload::OptimizerAndParameters => 0,
    };
    4 * largest_layer + sharded
}

/// Returns the number of parameters in the layer that DeepSpeed calls the largest: the module with
/// the most parameters of its own, which in a transformer is one matrix.
pub fn largest_layer(layout: &Layout) -> u64 {
    layout.tensors.iter().map(|tensor| tensor.elements() as u64).max().unwrap_or(0)
}

/// Returns a table of the estimators, with and without offloading, next to the model states of the
/// mixed recipe.
pub fn comparison(parameters: u64, largest_layer: u64, gpus: u64) -> Table {
    let zero2 = |offload| zero2_gpu(parameters, gpus, offload);
    let zero3 = |offload| zero3_gpu(parameters, largest_layer, gpus, offload);
    let scale = Scale::suiting(16 * parameters, Recipe::MIXED.unit);
    let title = format!("DeepSpeed's estimate, {}", scale.label());
    let mut table = Table::numbers(title, Stage::SHARDED);
    let mut row = |name: &str, cells: [Option<u64>; 3]| {
        table.row(name, cells.map(|cell| cell.map_or("none".into(), |bytes| scale.show(bytes))));
    };
    let [nothing, optimizer, both] =
        [EstimatedOffload::None, EstimatedOffload::Optimizer, EstimatedOffload::OptimizerAndParameters];
    row("nothing offloaded", [None, Some(zero2(nothing)), Some(zero3(nothing))]);
    row("optimizer offloaded", [None, Some(zero2(optimizer)), Some(zero3(optimizer))]);
    row("and parameters", [None, None, Some(zero3(both))]);
    let states = |stage| Recipe::MIXED.model_states(&[parameters], gpus as usize, stage).total();
    row("model states, recipe mixed", Stage::SHARDED.map(states).map(Some));
    table
}
