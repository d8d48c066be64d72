//! The kernels that training needs, as one trait.
//!
//! Shapes are row-major. `=` means the output is overwritten, `+=` that it is added to. Arithmetic is f32 whatever the
//! storage; a 16-bit result is rounded once, to nearest even. A kernel gives the same bits on every run, and
//! element-wise kernels give an element the same bits wherever a buffer is cut.

use crate::Result;
use crate::view::{View, ViewMut};

/// Whether a kernel overwrites its output or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `=`
    Replace,
    /// `+=`
    Accumulate,
}

/// A matrix to read: `rows × columns`, whose rows start `stride` elements apart; `transposed` reads it the other way.
#[derive(Clone)]
pub struct Matrix<'a> {
    /// The elements, starting at the first of row 0.
    pub data: View<'a>,
    /// Rows as stored.
    pub rows: usize,
    /// Columns as stored.
    pub columns: usize,
    /// Elements between the starts of two stored rows.
    pub stride: usize,
    /// Whether the product takes the transpose.
    pub transposed: bool,
    /// See [`Matrix::with_grain`].
    pub grain: usize,
}

impl<'a> Matrix<'a> {
    /// A packed `rows × columns` matrix.
    pub fn new(data: View<'a>, rows: usize, columns: usize) -> Self {
        Matrix { data, rows, columns, stride: columns, transposed: false, grain: 0 }
    }

    /// The transpose of this matrix.
    pub fn t(self) -> Self {
        Matrix { transposed: !self.transposed, ..self }
    }

    /// The same elements with rows `stride` apart.
    pub fn with_stride(self, stride: usize) -> Self {
        Matrix { stride, ..self }
    }

    /// The same elements, which start at a multiple of `grain` elements wherever they come to lie: what computes the product
    /// reckons with no better alignment than that, so that a place that happens to be aligned better changes no bit.
    pub fn with_grain(self, grain: usize) -> Self {
        Matrix { grain, ..self }
    }

    /// Rows and columns of what the product takes.
    pub(crate) fn shape(&self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }
}

/// A matrix to write: `rows × columns`, whose rows start `stride` elements apart.
pub struct MatrixMut<'a> {
    /// The elements, starting at the first of row 0.
    pub data: ViewMut<'a>,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Elements between the starts of two rows.
    pub stride: usize,
    /// See [`Matrix::with_grain`].
    pub grain: usize,
}

impl<'a> MatrixMut<'a> {
    /// A packed `rows × columns` matrix.
    pub fn new(data: ViewMut<'a>, rows: usize, columns: usize) -> Self {
        MatrixMut { data, rows, columns, stride: columns, grain: 0 }
    }

    /// The same elements with rows `stride` apart.
    pub fn with_stride(self, stride: usize) -> Self {
        MatrixMut { stride, ..self }
    }

    /// As [`Matrix::with_grain`].
    pub fn with_grain(self, grain: usize) -> Self {
        MatrixMut { grain, ..self }
    }
}

/// `rows` vectors of `width` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowShape {
    /// Number of vectors.
    pub rows: usize,
    /// Elements of each.
    pub width: usize,
}

/// Causal attention with grouped key/value heads over packed projections.
///
/// `qkv` is `[batch · tokens, (heads + 2 · kv_heads) · head_dim]`: a row holds all query heads, then all key heads, then
/// all value heads. `out` is `[batch · tokens, heads · head_dim]`. Query head h reads key/value head
/// `h / (heads / kv_heads)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Sequences.
    pub batch: usize,
    /// Tokens per sequence (T).
    pub tokens: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

impl Attention {
    /// Rows of `qkv` and `out`.
    pub const fn rows(&self) -> usize {
        self.batch * self.tokens
    }

    /// Columns of `qkv`.
    pub const fn packed_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Columns of `out`.
    pub const fn width(&self) -> usize {
        self.heads * self.head_dim
    }
}

/// Rotary position embedding (rotate-half, as Llama): which heads of which rows, and the base θ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Shape of the packed projections; query and key heads are rotated, value heads are not.
    pub attention: Attention,
    /// Base of the frequencies: pair i turns by `position · theta^(−2i / head_dim)`.
    pub theta: f32,
    /// Position of a sequence's first token.
    pub first_position: usize,
    /// Turn backwards: the gradient of a rotation.
    pub inverse: bool,
}

/// Hyper-parameters of one AdamW update (Loshchilov & Hutter, 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub lr: f32,
    /// Decay of the momentum.
    pub beta1: f32,
    /// Decay of the variance.
    pub beta2: f32,
    /// Added to the root of the variance.
    pub eps: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Number of this update, from 1, for the bias correction.
    pub step: u32,
    /// Gradients are multiplied by this first: clipping and loss scaling.
    pub gradient_scale: f32,
}

/// The kernels of a device. Weights, activations and gradients are f32, bf16 or f16; statistics are f32.
pub trait Kernels: Send + Sync {
    /// `out = a · b` or `out += a · b`, after the transposes that `a` and `b` ask for. Sums in f32.
    fn matmul(&self, out: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, write: Write) -> Result<()>;

    /// `out = base + a · b`, with `base` packed as `out` is, and of its type.
    fn matmul_onto(
        &self,
        mut out: MatrixMut<'_>,
        base: View<'_>,
        a: Matrix<'_>,
        b: Matrix<'_>,
    ) -> Result<()> {
        self.copy(out.data.reborrow(), base)?;
        self.matmul(out, a, b, Write::Accumulate)
    }

    /// `out = x / rms(x) · weight` per row, `inverse_rms = 1 / rms(x)`, with `rms² = mean(x²) + eps`.
    ///
    /// `out`, `x`: `[rows, width]`; `weight`: `[width]`; `inverse_rms`: f32 `[rows]`.
    fn rms_norm(
        &self,
        out: ViewMut<'_>,
        inverse_rms: ViewMut<'_>,
        x: View<'_>,
        weight: View<'_>,
        shape: RowShape,
        eps: f32,
    ) -> Result<()>;

    /// Backward of [`Kernels::rms_norm`]: `dx += …`, `dweight` as `write` says, from `dout`.
    #[allow(clippy::too_many_arguments)]
    fn rms_norm_backward(
        &self,
        dx: ViewMut<'_>,
        dweight: ViewMut<'_>,
        write: Write,
        dout: View<'_>,
        x: View<'_>,
        weight: View<'_>,
        inverse_rms: View<'_>,
        shape: RowShape,
    ) -> Result<()>;

    /// Rotates the query and key heads of packed projections in place.
    fn rope(&self, qkv: ViewMut<'_>, rope: Rope) -> Result<()>;

    /// `out = softmax(q · kᵀ / √head_dim + causal mask) · v`; `log_sum` = log of each softmax's denominator,
    /// f32 `[batch, heads, tokens]`.
    fn attention(
        &self,
        out: ViewMut<'_>,
        log_sum: ViewMut<'_>,
        qkv: View<'_>,
        shape: Attention,
    ) -> Result<()>;

    /// Backward of [`Kernels::attention`]: `dqkv = …` from `dout`, recomputing the probabilities from `log_sum`.
    fn attention_backward(
        &self,
        dqkv: ViewMut<'_>,
        dout: View<'_>,
        qkv: View<'_>,
        out: View<'_>,
        log_sum: View<'_>,
        shape: Attention,
    ) -> Result<()>;

    /// `out = silu(gate) · up`; a row of `gate_up` holds `width` gates, then `width` ups. `out`: `[rows, width]`.
    fn swiglu(&self, out: ViewMut<'_>, gate_up: View<'_>, shape: RowShape) -> Result<()>;

    /// Backward of [`Kernels::swiglu`]: `dgate_up = …` from `dout`.
    fn swiglu_backward(
        &self,
        dgate_up: ViewMut<'_>,
        dout: View<'_>,
        gate_up: View<'_>,
        shape: RowShape,
    ) -> Result<()>;

    /// `out[i] = table[ids[i]]`; `table`: `[vocabulary, width]`, `ids`: u32 `[rows]`.
    fn embedding(&self, out: ViewMut<'_>, table: View<'_>, ids: View<'_>, shape: RowShape) -> Result<()>;

    /// `dtable[ids[i]] += dout[i]`, in the order of i. With [`Write::Replace`] the table is zeroed first.
    fn embedding_backward(
        &self,
        dtable: ViewMut<'_>,
        write: Write,
        dout: View<'_>,
        ids: View<'_>,
        shape: RowShape,
    ) -> Result<()>;

    /// Cross-entropy and its gradient in one pass: `losses = −log softmax(logits)[target]` per row (f32), and
    /// `logits = (softmax(logits) − onehot(target)) · gradient_scale`. `shape.width` is the vocabulary.
    fn cross_entropy(
        &self,
        losses: ViewMut<'_>,
        logits: ViewMut<'_>,
        targets: View<'_>,
        gradient_scale: f32,
        shape: RowShape,
    ) -> Result<()>;

    /// `out += x`.
    fn add(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()>;

    /// `out = x`, converting between element types.
    fn copy(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()>;

    /// `out = value`.
    fn fill(&self, out: ViewMut<'_>, value: f32) -> Result<()>;

    /// One AdamW update of f32 weights: `master`, `momentum` and `variance` are updated in place from `gradients` (any
    /// float type).
    fn adamw(
        &self,
        master: ViewMut<'_>,
        momentum: ViewMut<'_>,
        variance: ViewMut<'_>,
        gradients: View<'_>,
        update: AdamW,
    ) -> Result<()>;

    /// [`Kernels::adamw`], and in the same pass `parameters = master`, rounded to their type.
    fn adamw_rounding(
        &self,
        parameters: ViewMut<'_>,
        master: ViewMut<'_>,
        momentum: ViewMut<'_>,
        variance: ViewMut<'_>,
        gradients: View<'_>,
        update: AdamW,
    ) -> Result<()>;

    /// The largest magnitude in `x`; NaN if any element is NaN, 0 if there are none.
    fn max_magnitude(&self, x: View<'_>) -> Result<f32>;

    /// `Σ round((x · 2^−exponent)² · 2^48)`, exact and so independent of how a tensor is cut. `exponent` must make
    /// every `|x · 2^−exponent| < 2`.
    fn sum_of_squares(&self, x: View<'_>, exponent: i32) -> Result<u128>;

    /// [`Kernels::max_magnitude`] of several tensors, which lie in one kind of memory: on a GPU the host waits once for all.
    fn max_magnitude_of(&self, all: &[View<'_>]) -> Result<f32> {
        all.iter().try_fold(0.0, |largest, x| Ok(max_or_nan(largest, self.max_magnitude(x.clone())?)))
    }

    /// [`Kernels::sum_of_squares`] over several tensors, which lie in one kind of memory: on a GPU the host waits once for all.
    fn sum_of_squares_of(&self, all: &[View<'_>], exponent: i32) -> Result<u128> {
        all.iter().try_fold(0, |sum, x| Ok(sum + self.sum_of_squares(x.clone(), exponent)?))
    }
}

/// The larger of two numbers, or NaN if one is.
pub fn max_or_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) }
}
