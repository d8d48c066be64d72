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

/// A kernel, or a family of them.
trait Members {
    fn add_to(&self, all: &mut Vec<Kernel>);
}

impl Members for Kernel {
    fn add_to(&self, all: &mut Vec<Kernel>) {
        all.push(*self);
    }
}

impl<T: Members, const N: usize> Members for [T; N] {
    fn add_to(&self, all: &mut Vec<Kernel>) {
        self.iter().for_each(|member| member.add_to(all));
    }
}

/// Defines families of kernels, and the list of all.
macro_rules! families {
    ($($name:ident: $family:ty = $kernels:expr;)+) => {
        $(pub(super) static $name: $family = $kernels;)+

        /// Returns every kernel.
        pub fn kernels() -> Vec<Kernel> {
            let mut all = Vec::new();
            $($name.add_to(&mut all);)+
            all
        }
    };
}

families! {
    FILL: ByType = by_type!(Elementwise, "fill");
    ADD: ByTypes = by_types!(Elementwise, "add");
    CONVERT: ByTypes = by_types!(Elementwise, "convert");
    ADAMW: ByType = by_type!(Adamw, "adamw");
    ADAMW_ROUNDING: ByTypes = by_types!(Adamw, "adamw_rounding");
    RMS_NORM: ByType = by_type!(Norm, "rms_norm");
    RMS_NORM_BACKWARD: ByType = by_type!(Norm, "rms_norm_backward");
    COLUMN_SUMS: ByType = by_type!(Norm, "column_sums");
    ROPE: ByType = by_type!(Rope, "rope");
    SWIGLU: ByType = by_type!(Swiglu, "swiglu");
    SWIGLU_BACKWARD: ByType = by_type!(Swiglu, "swiglu_backward");
    EMBEDDING: ByType = by_type!(Embedding, "embedding");
    EMBEDDING_BACKWARD: ByTypes = by_types!(Embedding, "embedding_backward");
    CROSS_ENTROPY: ByType = by_type!(CrossEntropy, "cross_entropy");
    MAX_MAGNITUDE: ByType = by_type!(Reduction, "max_magnitude");
    SUM_OF_SQUARES: ByType = by_type!(Reduction, "sum_of_squares");
    MAX_OF_PARTS: Kernel = kernel!(Reduction, "max_of_parts");
    SUM_OF_PARTS: Kernel = kernel!(Reduction, "sum_of_parts");
    ATTENTION_DELTA: ByType = by_type!(Softmax, "attention_delta");
    ATTENTION_SOFTMAX: ByType = by_type!(Softmax, "attention_softmax");
    ATTENTION_SOFTMAX_BACKWARD: ByType = by_type!(Softmax, "attention_softmax_backward");
    ATTENTION_STORE: ByType = by_type!(Softmax, "attention_store");
    ATTENTION: [ByType; 3] = by_head_dim!("attention");
    ATTENTION_KEYS: [ByType; 3] = by_head_dim!("attention_keys");
    ATTENTION_QUERIES: [ByType; 3] = by_head_dim!("attention_queries");
    ATTENTION_MMA: [[Kernel; 2]; 2] = on_tensor_cores!(AttentionMma, "attention_mma");
    ATTENTION_MMA_KEYS: [[Kernel; 2]; 2] = on_tensor_cores!(AttentionMma, "attention_mma_keys");
    ATTENTION_MMA_QUERIES: [[Kernel; 2]; 2] = on_tensor_cores!(AttentionMma, "attention_mma_queries");
    ATTENTION_WGMMA: [[Kernel; 2]; 2] = on_tensor_cores!(AttentionWgmma, "attention_wgmma");
    ATTENTION_WGMMA_KEYS: [[Kernel; 2]; 2] = on_tensor_cores!(AttentionWgmmaBackward, "attention_wgmma_keys");
    ATTENTION_WGMMA_QUERIES: [[Kernel; 2]; 2] =
        on_tensor_cores!(AttentionWgmmaBackward, "attention_wgmma_queries");
    TREE_SUM: ByType = by_type!(TreeSum, "tree_sum");
    TREE_SUM_EXACT: ByType = by_type!(TreeSum, "tree_sum_exact");
}

/// Returns the member of a family for `dtype`.
pub(super) fn of_type(family: &ByType, operand: &'static str, dtype: DType) -> Result<Kernel> {
    match index(dtype) {
        Some(index) => Ok(family[index]),
        None => Err(DeviceError::Type { kernel: family[0].name, operand, got: dtype }),
    }
}

/// Returns the member of a family for two types, each with its operand's name.
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
