//! The file of one rank: ranges of tensor elements, each with all of its states.
//!
//! It is a safetensors file. A tensor `NAME.param`, `NAME.exp_avg` or `NAME.exp_avg_sq` holds a
//! range of the elements of the model's tensor `NAME`, flattened. The metadata says which: `NAME`
//! is `START..END`. Spaces pad the header, so that the data begins on a page.

use crate::header::with_length;
use model::{Layout, TensorId, TensorSpec, TrainingState};
use serde_json::{Map, Value, json};
use std::ops::Range;
use storage::PAGE;

/// A range of elements of one tensor, counted row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementRange {
    /// The tensor.
    pub tensor: TensorId,
    /// The range of its elements.
    pub range: Range<usize>,
}

/// The contents of one rank's file and their places.
#[derive(Clone, Debug)]
pub struct ShardLayout {
    header: Vec<u8>,
    data: usize,
}

impl ShardLayout {
    /// Returns the layout of the file of a rank that holds `groups` of ranges whose elements
    /// are adjacent in the rank's memory. For each group, the data holds its elements in f32 for
    /// each of [`TrainingState::ALL`].
    pub fn new(layout: &Layout, groups: &[Vec<ElementRange>]) -> Self {
        let (mut tensors, mut ranges, mut end) = (Map::new(), Map::new(), 0);
        for group in groups {
            for state in TrainingState::ALL {
                for ElementRange { tensor, range } in group {
                    let (tensor, start) = (&layout.tensors[*tensor], end);
                    end += range.len() * size_of::<f32>();
                    let info = json!({"dtype": "F32", "shape": [range.len()], "data_offsets": [start, end]});
                    tensors.insert(name(state, tensor), info);
                    ranges.insert(tensor.name.clone(), words(range).into());
                }
            }
        }
        tensors.insert("__metadata__".into(), Value::Object(ranges));
        let json = Value::Object(tensors).to_string().into_bytes();
        ShardLayout { header: with_length(json, PAGE), data: end }
    }

    /// Returns the bytes before the data: a whole number of pages.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Returns the size of the data in bytes.
    pub fn data_bytes(&self) -> usize {
        self.data
    }
}

/// Returns the name of `state` of `tensor`: the tensor's name, then PyTorch's name for the state.
pub(super) fn name(state: TrainingState, tensor: &TensorSpec) -> String {
    let word = match state {
        TrainingState::Weight => "param",
        TrainingState::Momentum => "exp_avg",
        TrainingState::Variance => "exp_avg_sq",
    };
    format!("{}.{word}", tensor.name)
}

fn words(range: &Range<usize>) -> String {
    format!("{}..{}", range.start, range.end)
}

/// Parses a range that [`words`] wrote.
pub(super) fn range(words: &str) -> Option<Range<usize>> {
    let (start, end) = words.split_once("..")?;
    let range = start.parse().ok()?..end.parse().ok()?;
    (range.start <= range.end).then_some(range)
}
