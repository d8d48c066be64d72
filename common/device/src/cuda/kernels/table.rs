//! The names of all kernels: a family of kernels is one template, instantiated by element type.
//!
//! Parameter lists are in the sources; the tests compare them with the arguments of the operations.

use super::{Operand, Source};
use crate::{DType, DeviceError, Result};

/// A kernel: its source, and its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Where it is defined.
    pub source: Source,
    /// The `extern "C"` function.
    pub name: &'static str,
}

/// A kernel for each of f32, bf16 and f16.
pub(super) type ByType = [Kernel; 3];

/// By the type of the output or parameter first, then by that of the input or gradient.
pub(super) type ByTypes = [ByType; 3];

macro_rules! kernel {
    ($source:ident, $($name:literal),+) => {
        Kernel { source: Source::$source, name: concat!($($name),+) }
    };
}

macro_rules! by_type {
    ($source:ident, $($name:literal),+) => {
        [kernel!($source, $($name),+, "_f32"), kernel!($source, $($name),+, "_bf16"), kernel!($source, $($name),+, "_f16")]
    };
}

macro_rules! by_types {
    ($source:ident, $name:literal) => {
        [
            by_type!($source, $name, "_f32"),
            by_type!($source, $name, "_bf16"),
            by_type!($source, $name, "_f16"),
        ]
    };
}

/// By the padded width of a head: 32, 64, 128.
macro_rules! by_head_dim {
    ($name:literal) => {
        [
            by_type!(Attention, $name, "_d32"),
            by_type!(Attention, $name, "_d64"),
            by_type!(Attention, $name, "_d128"),
        ]
    };
}

/// By the width of a head, 64 or 128, then bf16 or f16.
macro_rules! on_tensor_cores {
    ($source:ident, $name:literal) => {
        [
            [kernel!($source, $name, "_d64_bf16"), kernel!($source, $name, "_d64_f16")],
            [kernel!($source, $name, "_d128_bf16"), kernel!($source, $name, "_d128_f16")],
        ]
    };
}

pub(super) static FILL: ByType = by_type!(Elementwise, "fill");
pub(super) static ADD: ByTypes = by_types!(Elementwise, "add");
pub(super) static CONVERT: ByTypes = by_types!(Elementwise, "convert");
pub(super) static ADAMW: ByType = by_type!(Adamw, "adamw");
pub(super) static ADAMW_ROUNDING: ByTypes = by_types!(Adamw, "adamw_rounding");
pub(super) static RMS_NORM: ByType = by_type!(Norm, "rms_norm");
pub(super) static RMS_NORM_BACKWARD: ByType = by_type!(Norm, "rms_norm_backward");
pub(super) static COLUMN_SUMS: ByType = by_type!(Norm, "column_sums");
pub(super) static ROPE: ByType = by_type!(Rope, "rope");
pub(super) static SWIGLU: ByType = by_type!(Swiglu, "swiglu");
pub(super) static SWIGLU_BACKWARD: ByType = by_type!(Swiglu, "swiglu_backward");
pub(super) static EMBEDDING: ByType = by_type!(Embedding, "embedding");
pub(super) static EMBEDDING_BACKWARD: ByTypes = by_types!(Embedding, "embedding_backward");
pub(super) static CROSS_ENTROPY: ByType = by_type!(CrossEntropy, "cross_entropy");
pub(super) static MAX_MAGNITUDE: ByType = by_type!(Reduction, "max_magnitude");
pub(super) static SUM_OF_SQUARES: ByType = by_type!(Reduction, "sum_of_squares");
pub(super) static MAX_OF_PARTS: Kernel = kernel!(Reduction, "max_of_parts");
pub(super) static SUM_OF_PARTS: Kernel = kernel!(Reduction, "sum_of_parts");
pub(super) static ATTENTION_DELTA: ByType = by_type!(Softmax, "attention_delta");
pub(super) static ATTENTION_SOFTMAX: ByType = by_type!(Softmax, "attention_softmax");
pub(super) static ATTENTION_SOFTMAX_BACKWARD: ByType = by_type!(Softmax, "attention_softmax_backward");
pub(super) static ATTENTION_STORE: ByType = by_type!(Softmax, "attention_store");
pub(super) static ATTENTION: [ByType; 3] = by_head_dim!("attention");
pub(super) static ATTENTION_KEYS: [ByType; 3] = by_head_dim!("attention_keys");
pub(super) static ATTENTION_QUERIES: [ByType; 3] = by_head_dim!("attention_queries");
pub(super) static ATTENTION_MMA: [[Kernel; 2]; 2] = on_tensor_cores!(AttentionMma, "attention_mma");
pub(super) static ATTENTION_MMA_KEYS: [[Kernel; 2]; 2] = on_tensor_cores!(AttentionMma, "attention_mma_keys");
pub(super) static ATTENTION_MMA_QUERIES: [[Kernel; 2]; 2] =
    on_tensor_cores!(AttentionMma, "attention_mma_queries");
pub(super) static ATTENTION_WGMMA: [[Kernel; 2]; 2] = on_tensor_cores!(AttentionWgmma, "attention_wgmma");
pub(super) static ATTENTION_WGMMA_KEYS: [[Kernel; 2]; 2] =
    on_tensor_cores!(AttentionWgmmaBackward, "attention_wgmma_keys");
pub(super) static ATTENTION_WGMMA_QUERIES: [[Kernel; 2]; 2] =
    on_tensor_cores!(AttentionWgmmaBackward, "attention_wgmma_queries");
pub(super) static TREE_SUM: ByType = by_type!(TreeSum, "tree_sum");
pub(super) static TREE_SUM_EXACT: ByType = by_type!(TreeSum, "tree_sum_exact");

/// Every kernel.
pub fn kernels() -> Vec<Kernel> {
    let families = [
        &FILL,
        &ADAMW,
        &RMS_NORM,
        &RMS_NORM_BACKWARD,
        &COLUMN_SUMS,
        &ROPE,
        &SWIGLU,
        &SWIGLU_BACKWARD,
        &EMBEDDING,
        &CROSS_ENTROPY,
        &MAX_MAGNITUDE,
        &SUM_OF_SQUARES,
        &ATTENTION_DELTA,
        &ATTENTION_SOFTMAX,
        &ATTENTION_SOFTMAX_BACKWARD,
        &ATTENTION_STORE,
        &TREE_SUM,
        &TREE_SUM_EXACT,
    ];
    let squares = [&ADD, &CONVERT, &ADAMW_ROUNDING, &EMBEDDING_BACKWARD];
    let tiled = [&ATTENTION, &ATTENTION_KEYS, &ATTENTION_QUERIES];
    let by_warps = [&ATTENTION_MMA, &ATTENTION_MMA_KEYS, &ATTENTION_MMA_QUERIES];
    let by_warpgroups = [&ATTENTION_WGMMA, &ATTENTION_WGMMA_KEYS, &ATTENTION_WGMMA_QUERIES];
    let by_type =
        families.into_iter().chain(squares.into_iter().flatten()).chain(tiled.into_iter().flatten());
    let mut all: Vec<Kernel> = by_type.flatten().copied().collect();
    all.extend(by_warps.into_iter().chain(by_warpgroups).flatten().flatten());
    all.extend([MAX_OF_PARTS, SUM_OF_PARTS]);
    all
}

/// The member of a family for `dtype`.
pub(super) fn of_type(family: &ByType, operand: &'static str, dtype: DType) -> Result<Kernel> {
    match index(dtype) {
        Some(index) => Ok(family[index]),
        None => Err(DeviceError::Type { kernel: family[0].name, operand, got: dtype }),
    }
}

/// The member of a family for two types, each with its operand's name.
pub(super) fn of_types(
    family: &ByTypes,
    first: (&'static str, DType),
    second: (&'static str, DType),
) -> Result<Kernel> {
    match index(first.1) {
        Some(index) => of_type(&family[index], second.0, second.1),
        None => Err(DeviceError::Type { kernel: family[0][0].name, operand: first.0, got: first.1 }),
    }
}

fn index(dtype: DType) -> Option<usize> {
    match dtype {
        DType::F32 => Some(0),
        DType::Bf16 => Some(1),
        DType::F16 => Some(2),
        DType::U32 => None,
    }
}

/// Fails unless `others` have the type of `x`.
pub(super) fn same_type<const N: usize>(
    kernel: &'static str,
    x: Operand,
    others: [(&'static str, Operand); N],
) -> Result<()> {
    match others.into_iter().find(|(_, other)| other.dtype != x.dtype) {
        Some((operand, other)) => Err(DeviceError::Type { kernel, operand, got: other.dtype }),
        None => Ok(()),
    }
}
