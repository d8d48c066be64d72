//! Launches of `softmax.cu`: the kernels between the matrix products of attention.

use super::table::{
    ATTENTION_DELTA, ATTENTION_SOFTMAX, ATTENTION_SOFTMAX_BACKWARD, ATTENTION_STORE, of_type, same_type,
};
use super::{
    Argument, CHUNK, Kernel, Launcher, MatrixOperand, Operand, THREADS, counts, launch_blocks, launch_each,
    row_threads,
};
use crate::Result;
use crate::shapes::AttentionShape;

/// `delta = Σ dout · out` per row and head: f32 `[batch, heads, tokens]`. As many lanes each as a
/// head has chunks, a warp at most.
///
/// # Errors
/// If types differ or are no floats; the launcher's.
pub fn attention_delta(
    l: &impl Launcher,
    delta: u64,
    dout: Operand,
    out: Operand,
    shape: AttentionShape,
) -> Result<()> {
    let kernel = of_type(&ATTENTION_DELTA, "dout", dout.dtype)?;
    same_type(kernel.name, dout, [("out", out)])?;
    let lanes = shape.head_dim.div_ceil(CHUNK).next_power_of_two().min(32);
    let sizes = counts([shape.rows(), shape.tokens, shape.heads, shape.head_dim, lanes]);
    let pointers = [delta, dout.pointer, out.pointer].map(Argument::Pointer);
    let arguments = [pointers.as_slice(), &sizes].concat();
    let items = shape.rows() * shape.heads;
    launch_blocks(l, kernel, [items.div_ceil(THREADS / lanes), 1], THREADS, &arguments)
}

/// Scores of some queries of a head against the keys before them: packed `[queries, keys]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreTile {
    /// Position of the first query.
    pub first: usize,
    /// Queries.
    pub queries: usize,
    /// Keys: those up to the last query, at least.
    pub keys: usize,
    /// Factor of the scores.
    pub scale: f32,
}

/// `probabilities = softmax(scores · scale + causal mask)` and `log_sum` = the log of its
/// denominator. `scores` is f32; `log_sum` is the address of the head's first token, f32.
/// `probabilities` may be the memory of `scores` if it is f32.
///
/// # Errors
/// If `probabilities` holds no floats; the launcher's.
pub fn attention_softmax(
    l: &impl Launcher,
    probabilities: Operand,
    log_sum: u64,
    scores: u64,
    tile: ScoreTile,
) -> Result<()> {
    let kernel = of_type(&ATTENTION_SOFTMAX, "probabilities", probabilities.dtype)?;
    let pointers = [probabilities.pointer, log_sum, scores].map(Argument::Pointer);
    launch_scores(l, kernel, &pointers, tile)
}

/// The probabilities again, and the gradient of the raw scores:
/// `dscores = probabilities · (dprobabilities − delta) · scale`. `scores` and `dprobabilities` are
/// f32, and outputs may be their memory if they are f32 too; `delta` has the layout of `log_sum`.
///
/// # Errors
/// If outputs differ in type or are no floats; the launcher's.
pub fn attention_softmax_backward(
    l: &impl Launcher,
    [probabilities, dscores]: [Operand; 2],
    [scores, dprobabilities]: [u64; 2],
    [log_sum, delta]: [u64; 2],
    tile: ScoreTile,
) -> Result<()> {
    let kernel = of_type(&ATTENTION_SOFTMAX_BACKWARD, "probabilities", probabilities.dtype)?;
    same_type(kernel.name, probabilities, [("dscores", dscores)])?;
    let pointers = [probabilities.pointer, dscores.pointer, scores, dprobabilities, log_sum, delta];
    launch_scores(l, kernel, &pointers.map(Argument::Pointer), tile)
}

fn launch_scores(
    l: &impl Launcher,
    kernel: Kernel,
    pointers: &[Argument<'_>],
    tile: ScoreTile,
) -> Result<()> {
    let arguments = [pointers, &counts([tile.first, tile.keys]), &[Argument::F32(tile.scale)]].concat();
    launch_blocks(l, kernel, [tile.queries, 1], row_threads(tile.keys, THREADS), &arguments)
}

/// `to` = the sum of `shares` matrices at `from`, in order, rounded once; these are f32, and
/// packed.
///
/// # Errors
/// If `to` holds no floats; the launcher's.
pub(super) fn attention_store(l: &impl Launcher, to: MatrixOperand, from: u64, shares: usize) -> Result<()> {
    let kernel = of_type(&ATTENTION_STORE, "to", to.data.dtype)?;
    let pointers = [to.data.pointer, from].map(Argument::Pointer);
    let sizes = counts([to.rows, to.columns, to.stride, shares]);
    launch_each(l, kernel, to.rows * to.columns, &[pointers.as_slice(), &sizes].concat())
}
