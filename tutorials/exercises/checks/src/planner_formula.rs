//! Checks model states per rank against the planner's.

use crate::{Score, Verdict};
use prediction::{Recipe, Stage};

/// The function under check: (parameters, ranks, stage 0 to 3, bytes per parameter of weights,
/// gradients and optimizer) to bytes.
pub type ModelStates = fn(u64, u64, u32, [u64; 3]) -> u64;

/// Compares every stage, with two recipes and several sizes.
pub fn check(model_states: ModelStates) -> Verdict {
    for recipe in [Recipe::MIXED, Recipe::FP32] {
        for (stage, number) in Stage::ALL.into_iter().zip(0..) {
            for (parameters, ranks) in [(7_000_000_000, 4), (918_656, 8), (1001, 3), (5, 1)] {
                let bytes = [recipe.weights, recipe.gradients, recipe.optimizer()];
                let own = model_states(parameters, ranks, number, bytes);
                let right = recipe.model_states(&[parameters], ranks as usize, stage).total();
                if own != right {
                    return Err(format!(
                        "{stage}, recipe {}, {parameters} parameters, {ranks} ranks: {own} bytes, and the planner says {right}",
                        recipe.name
                    ));
                }
            }
        }
    }
    Ok(Score::right("four stages, two recipes, padding included: as the planner says"))
}
