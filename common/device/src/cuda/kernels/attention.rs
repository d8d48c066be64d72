//! Launches of `attention.cu` (any type and head, f32 arithmetic), `attention_mma.cu` (16-bit types on tensor cores) and
//! `softmax.cu` (what stands between two matrix products).

use super::table::{
    ATTENTION, ATTENTION_DELTA, ATTENTION_KEYS, ATTENTION_MMA, ATTENTION_MMA_KEYS, ATTENTION_MMA_QUERIES,
    ATTENTION_QUERIES, ATTENTION_SOFTMAX, ATTENTION_SOFTMAX_BACKWARD, ByType, of_type, same_type,
};
use super::{Argument, Kernel, Launch, Launcher, Operand, THREADS, launch_blocks, row_threads};
use crate::kernels::Attention;
use crate::{DType, DeviceError, Result};

/// The widest head that tiled attention takes.
pub const TILED_HEAD_DIM: usize = 128;

/// Queries, and keys, of a tile in f32 arithmetic.
const TILE: usize = 32;

/// Queries, and keys, of a tile on tensor cores: 16 per warp.
const MMA_TILE: usize = 64;

/// Threads of a block on tensor cores.
const MMA_THREADS: usize = 128;

/// What the forward pass writes.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOutput {
    /// `[batch · tokens, heads · head_dim]`, in the type of the input.
    pub out: Operand,
    /// f32 `[batch, heads, tokens]`.
    pub log_sum: u64,
}

/// What the backward pass reads beside `qkv`, and writes.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradient {
    /// Written; the shape of `qkv`.
    pub dqkv: Operand,
    /// The shape of `out`.
    pub dout: Operand,
    /// Of the forward pass.
    pub output: AttentionOutput,
}

/// Kernels of one pass, and their geometry.
struct Tiling<const N: usize> {
    kernels: [Kernel; N],
    /// Queries, and keys, of a tile.
    tile: usize,
    threads: usize,
    shared_bytes: [usize; N],
}

/// See [`crate::Kernels::attention`]; operands have one type. On tensor cores where the type and the head allow it.
///
/// # Errors
/// If types differ or are no floats; if heads are wider than [`TILED_HEAD_DIM`]; the launcher's.
pub fn attention(l: &impl Launcher, output: AttentionOutput, qkv: Operand, shape: Attention) -> Result<()> {
    same_type("attention", qkv, [("out", output.out)])?;
    let tiling = forward_tiling(l, qkv, shape)?;
    let pointers = [output.out.pointer, output.log_sum, qkv.pointer].map(Argument::Pointer);
    let arguments = [pointers.as_slice(), &shape_arguments(shape)].concat();
    launch_tiles(
        l,
        (tiling.kernels[0], tiling.shared_bytes[0]),
        &tiling,
        [shape.heads, shape.batch],
        shape,
        &arguments,
    )
}

/// See [`crate::Kernels::attention_backward`]; operands have one type. A kernel per gradient: a block adds up the keys' and
/// values' over the queries in order, or the queries' over the keys. Scratch: f32 `[batch, heads, tokens]`.
///
/// # Errors
/// As [`attention`].
pub fn attention_backward(
    l: &impl Launcher,
    gradient: AttentionGradient,
    qkv: Operand,
    shape: Attention,
) -> Result<()> {
    let AttentionGradient { dqkv, dout, output } = gradient;
    same_type("attention_backward", qkv, [("dqkv", dqkv), ("dout", dout), ("out", output.out)])?;
    let tiling = backward_tiling(l, [qkv, dout], shape)?;
    let delta = l.scratch((shape.rows() * shape.heads * 4).max(1))?;
    attention_delta(l, delta, dout, output.out, shape)?;
    let pointers = [dqkv.pointer, dout.pointer, qkv.pointer, output.log_sum, delta].map(Argument::Pointer);
    let arguments = [pointers.as_slice(), &shape_arguments(shape)].concat();
    let [keys, queries] = [0, 1].map(|i| (tiling.kernels[i], tiling.shared_bytes[i]));
    launch_tiles(l, keys, &tiling, [shape.kv_heads, shape.batch], shape, &arguments)?;
    launch_tiles(l, queries, &tiling, [shape.heads, shape.batch], shape, &arguments)
}

/// `delta = Σ dout · out` per row and head: f32 `[batch, heads, tokens]`. A warp each.
///
/// # Errors
/// If types differ or are no floats; the launcher's.
pub fn attention_delta(
    l: &impl Launcher,
    delta: u64,
    dout: Operand,
    out: Operand,
    shape: Attention,
) -> Result<()> {
    let kernel = of_type(&ATTENTION_DELTA, "dout", dout.dtype)?;
    same_type(kernel.name, dout, [("out", out)])?;
    let sizes =
        [shape.rows(), shape.tokens, shape.heads, shape.head_dim].map(|size| Argument::U32(size as u32));
    let pointers = [delta, dout.pointer, out.pointer].map(Argument::Pointer);
    let arguments = [pointers.as_slice(), &sizes].concat();
    let warps = shape.rows() * shape.heads;
    launch_blocks(l, kernel, [warps.div_ceil(THREADS / 32), 1], THREADS, &arguments)
}

/// Scores of some queries of some heads against the keys before them: packed `[heads, queries, keys]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreTile {
    /// Heads, which follow each other in `log_sum`.
    pub heads: usize,
    /// Position of the first query.
    pub first: usize,
    /// Queries.
    pub queries: usize,
    /// Keys: those up to the last query, at least.
    pub keys: usize,
    /// Tokens of a sequence: the distance of two heads in `log_sum`.
    pub tokens: usize,
    /// What scores are multiplied with.
    pub scale: f32,
}

/// `probabilities = softmax(scores · scale + causal mask)` and `log_sum` = the log of its denominator. `scores` is f32;
/// `log_sum` is the address of the first head's first token, f32. `probabilities` may lie where `scores` do if it is f32.
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
/// `dscores = probabilities · (dprobabilities − delta) · scale`. `scores` and `dprobabilities` are f32, and outputs may lie
/// where they do if they are f32 too; `delta` is laid out as `log_sum`.
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
    let sizes = [tile.first, tile.queries, tile.keys, tile.tokens].map(|size| Argument::U32(size as u32));
    let arguments = [pointers, &sizes, &[Argument::F32(tile.scale)]].concat();
    launch_blocks(l, kernel, [tile.queries, tile.heads], row_threads(tile.keys, THREADS), &arguments)
}

fn launch_tiles<const N: usize>(
    l: &impl Launcher,
    (kernel, shared_bytes): (Kernel, usize),
    tiling: &Tiling<N>,
    [heads, batch]: [usize; 2],
    shape: Attention,
    arguments: &[Argument<'_>],
) -> Result<()> {
    let grid = [shape.tokens.div_ceil(tiling.tile), heads, batch].map(|blocks| blocks as u32);
    if grid.contains(&0) {
        return Ok(());
    }
    let block = [tiling.threads as u32, 1, 1];
    l.launch(Launch { kernel, grid, block, shared_bytes: shared_bytes as u32, arguments })
}

fn shape_arguments(shape: Attention) -> [Argument<'static>; 5] {
    let scale = (1.0 / (shape.head_dim as f64).sqrt()) as f32;
    let [tokens, heads, kv_heads, head_dim] =
        [shape.tokens, shape.heads, shape.kv_heads, shape.head_dim].map(|size| Argument::U32(size as u32));
    [tokens, heads, kv_heads, head_dim, Argument::F32(scale)]
}

/// Where in the tables of kernels on tensor cores a type and head stand, if they do; these read 16 bytes at a time.
fn on_tensor_cores(l: &impl Launcher, inputs: &[Operand], shape: Attention) -> Option<(usize, usize)> {
    let head = [64, 128].into_iter().position(|width| width == shape.head_dim)?;
    let dtype = [DType::Bf16, DType::F16].into_iter().position(|known| known == inputs[0].dtype)?;
    let aligned = inputs.iter().all(|input| input.pointer.is_multiple_of(16));
    (aligned && l.architecture() >= 80).then_some((head, dtype))
}

fn forward_tiling(l: &impl Launcher, qkv: Operand, shape: Attention) -> Result<Tiling<1>> {
    if let Some((head, dtype)) = on_tensor_cores(l, &[qkv], shape) {
        // The queries, and two tiles of keys and values: one is computed with while the next arrives.
        let shared_bytes = [5 * MMA_TILE * shape.head_dim * 2];
        let kernels = [ATTENTION_MMA[head][dtype]];
        return Ok(Tiling { kernels, tile: MMA_TILE, threads: MMA_THREADS, shared_bytes });
    }
    let (index, width) = padded_head(shape)?;
    let kernels = [of_type(&ATTENTION[index], "qkv", qkv.dtype)?];
    // Queries, keys and values, rows one element apart from a multiple of 32.
    Ok(Tiling { kernels, tile: TILE, threads: THREADS, shared_bytes: [3 * TILE * (width + 1) * 4] })
}

fn backward_tiling(l: &impl Launcher, inputs: [Operand; 2], shape: Attention) -> Result<Tiling<2>> {
    if let Some((head, dtype)) = on_tensor_cores(l, &inputs, shape) {
        let kernels = [ATTENTION_MMA_KEYS[head][dtype], ATTENTION_MMA_QUERIES[head][dtype]];
        let shared_bytes =
            [6 * MMA_TILE * shape.head_dim * 2 + 4 * MMA_TILE * 4, 6 * MMA_TILE * shape.head_dim * 2];
        return Ok(Tiling { kernels, tile: MMA_TILE, threads: MMA_THREADS, shared_bytes });
    }
    let (index, width) = padded_head(shape)?;
    let of = |family: &[ByType; 3]| of_type(&family[index], "qkv", inputs[0].dtype);
    let kernels = [of(&ATTENTION_KEYS)?, of(&ATTENTION_QUERIES)?];
    // Queries, their output's gradient, keys and values.
    Ok(Tiling { kernels, tile: TILE, threads: THREADS, shared_bytes: [4 * TILE * (width + 1) * 4; 2] })
}

/// The narrowest head that kernels are made for and that holds this one: its index, and its width.
fn padded_head(shape: Attention) -> Result<(usize, usize)> {
    let widths = [32, 64, TILED_HEAD_DIM];
    let index = widths.into_iter().position(|width| width >= shape.head_dim);
    let kernel = "attention";
    let too_wide =
        DeviceError::Shape { kernel, operand: "head", expected: TILED_HEAD_DIM, got: shape.head_dim };
    index.map(|index| (index, widths[index])).ok_or(too_wide)
}
