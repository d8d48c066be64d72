//! A layer's access to its weights and gradients, wherever they are stored.

use device::{View, ViewMut, Write};
use std::ops::Range;

/// The weights of one layer, in the order of [`crate::Layer::tensors`].
pub trait Weights {
    /// Returns the weights of tensors `tensors` of the layer as one view. `None` unless they are
    /// adjacent in memory; a single tensor always is.
    fn weights(&self, tensors: Range<usize>) -> Option<View<'_>>;
}

/// The places for one layer's gradients, in the order of [`crate::Layer::tensors`].
pub trait Gradients {
    /// Returns the place for the gradients of tensors `tensors` as one view, and whether to
    /// overwrite it or add to it. `None` unless the tensors are adjacent in memory and agree on
    /// that; a single tensor always does. The call marks the place as written: the next call for it
    /// in the same backward pass (a tied tensor's other use) returns `Write::Accumulate`.
    fn gradients(&mut self, tensors: Range<usize>) -> Option<(ViewMut<'_>, Write)>;
}

/// Returns the weights of one tensor.
pub(crate) fn weight(weights: &dyn Weights, tensor: usize) -> View<'_> {
    // Guaranteed by the contract of `Weights`.
    weights.weights(tensor..tensor + 1).expect("a single tensor is one view")
}

/// Returns the place for one tensor's gradients.
pub(crate) fn gradient(gradients: &mut dyn Gradients, tensor: usize) -> (ViewMut<'_>, Write) {
    // Guaranteed by the contract of `Gradients`.
    gradients.gradients(tensor..tensor + 1).expect("a single tensor is one view")
}
