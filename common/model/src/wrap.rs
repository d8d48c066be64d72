//! Wrapping: which of a model's tensors form a unit, which is gathered, reduced and released as
//! one.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Determines where the list of a model's tensors, in the order of
/// [`Layout::tensors`](crate::Layout::tensors), is split into units. A tensor is never split, and a
/// tensor that several layers use is listed once.
///
/// A unit is gathered when the first layer that needs it begins, and released when the last one has
/// ended. Finer units mean more and smaller collectives, and fewer parameters gathered ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrap {
    /// One unit: the whole model.
    Model,
    /// A unit per layer: the embedding, each block, the final norm with the head.
    #[default]
    Block,
    /// A unit per module: the embedding, each block's attention, feed-forward layer and two norms,
    /// the final norm, the head.
    Module,
    /// A unit per tensor: the naive choice, slow on purpose.
    Parameter,
    /// Units that close with the first tensor that brings them to this many parameters, like FSDP's
    /// size-based policy.
    Size(u64),
}

impl fmt::Display for Wrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrap::Model => f.pad("model"),
            Wrap::Block => f.pad("block"),
            Wrap::Module => f.pad("module"),
            Wrap::Parameter => f.pad("parameter"),
            Wrap::Size(parameters) => f.pad(&format!("size:{parameters}")),
        }
    }
}

impl FromStr for Wrap {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let refused = || {
            "choose model, block, module, parameter, or size:N with a whole number N of at least 1, such as size:100000"
                .to_string()
        };
        let coarse = [Wrap::Model, Wrap::Block, Wrap::Module, Wrap::Parameter];
        if let Some(wrap) = coarse.into_iter().find(|wrap| wrap.to_string() == word) {
            return Ok(wrap);
        }
        let size = word.strip_prefix("size:").and_then(|size| size.replace('_', "").parse().ok());
        size.filter(|&size| size > 0).map(Wrap::Size).ok_or_else(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_choices_are_one_to_one() {
        for wrap in [Wrap::Model, Wrap::Block, Wrap::Module, Wrap::Parameter, Wrap::Size(12)] {
            assert_eq!(wrap.to_string().parse(), Ok(wrap));
        }
        for word in ["", "size:", "size:0", "size:-1", "size:1e3", "layer", "Model"] {
            assert!(word.parse::<Wrap>().unwrap_err().contains("size:N"), "{word}");
        }
    }
}
