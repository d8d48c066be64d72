//! Attention: launches of `attention_wgmma.cu` and `attention_wgmma_backward.cu` (16-bit types on
//! Hopper's tensor cores), `attention_mma.cu` (16-bit types on tensor cores) and `attention.cu`
//! (any type, f32 arithmetic), and the choice between them. Heads that fit into none use matrix
//! products.

use super::products::{attention_backward_by_products, attention_by_products, parts};
use super::softmax::{attention_delta, attention_store};
use super::table::{
    ATTENTION, ATTENTION_KEYS, ATTENTION_MMA, ATTENTION_MMA_KEYS, ATTENTION_MMA_QUERIES, ATTENTION_QUERIES,
    ATTENTION_WGMMA, ATTENTION_WGMMA_KEYS, ATTENTION_WGMMA_QUERIES, of_type, same_type,
};
use super::{
    Argument, Kernel, Launch, Launcher, MatrixOperand, Multiplier, Operand, THREADS, counts, most_shared,
};
use crate::operations::{Attention, AttentionBackward};
use crate::shapes::{AttentionShape, Matrix};
use crate::{DType, Result};

/// Widths of heads that `attention.cu` is made for; narrower ones are padded.
const HEAD_DIMS: [usize; 3] = [32, 64, 128];

/// Queries, and keys, of a tile in f32 arithmetic.
const TILE: usize = 32;

/// Queries, and keys, of a tile on tensor cores: 16 per warp.
const MMA_TILE: usize = 64;

/// Tiles of queries that a block owns in the forward pass on tensor cores.
const FORWARD_TILES: usize = 2;

/// The only compute capability that has products of warpgroups.
const WARPGROUPS: u32 = 90;

/// Tiles of queries, or of keys, that a block owns in the backward pass on tensor cores: registers
/// hold the gradients of this many.
const fn backward_tiles(head_dim: usize) -> usize {
    128 / head_dim
}

/// Blocks that fill any GPU. Where keys have fewer, as with few sequences and few heads that many
/// queries share, a group of query heads is cut into shares.
const ENOUGH_BLOCKS: usize = 512;

/// Threads of a block on tensor cores, or of a warpgroup.
const MMA_THREADS: usize = 128;

/// Warpgroups of a block in the backward pass, each with a tile of keys or queries.
const BACKWARD_WARPGROUPS: usize = 2;

/// Returns the number of streamed tiles of each kind that a block of the backward pass by
/// warpgroups holds: `STAGES` in `attention_wgmma_backward.cu`.
const fn backward_stages(head_dim: usize) -> usize {
    if head_dim == 64 { 5 } else { 4 }
}

/// Kernels of one pass, and their geometry.
struct Tiling<const N: usize> {
    kernels: [Kernel; N],
    /// Queries, or keys, of a block.
    rows: usize,
    threads: usize,
    shared_bytes: [usize; N],
}

/// The kernels of the backward pass, for keys and queries.
struct BackwardTiling {
    tiling: Tiling<2>,
    /// Equal shares of the query heads: a block of queries takes the heads of one in turn.
    shares_of_heads: usize,
}

/// See [`Attention`]; operands but `log_sum` have one type. On tensor cores where the type and the
/// head allow it; by matrix products where tiles of the heads do not fit into shared memory.
///
/// # Errors
/// If types differ or are no floats; the launcher's.
pub fn attention(l: &impl Multiplier, arguments: Attention<Operand, Operand>) -> Result<()> {
    let Attention { out, log_sum, qkv, shape } = arguments;
    same_type("attention", qkv, [("out", out)])?;
    let Some(tiling) = forward_tiling(l, [qkv, out], shape)? else {
        return attention_by_products(l, arguments);
    };
    let pointers = [out, log_sum, qkv].map(Argument::from);
    let arguments = [pointers.as_slice(), &shape_arguments(shape)].concat();
    launch_tiles(l, &tiling, 0, [shape.heads, shape.batch], shape, &arguments)
}

/// See [`AttentionBackward`]; operands but `log_sum` have one type. A kernel per gradient: a block
/// adds up the keys' and values' over the queries in order, or the queries' over the keys. Scratch:
/// f32 `[batch, heads, tokens]`, and the sums of shares of groups, f32
/// `[shares, batch · tokens, 2 · kv_heads · head_dim]`.
///
/// # Errors
/// As [`attention`].
pub fn attention_backward(l: &impl Multiplier, arguments: AttentionBackward<Operand, Operand>) -> Result<()> {
    let AttentionBackward { dqkv, dout, qkv, out, log_sum, shape } = arguments;
    same_type("attention_backward", qkv, [("dqkv", dqkv), ("dout", dout), ("out", out)])?;
    let Some(BackwardTiling { tiling, shares_of_heads }) = backward_tiling(l, [qkv, dout, dqkv], shape)?
    else {
        return attention_backward_by_products(l, arguments);
    };
    let shares = shares_of_groups(tiling.rows, shape);
    let gradients = key_gradients(dqkv, shape);
    let partial_bytes = if shares == 1 { 0 } else { shares * gradients.rows * gradients.columns * 4 };
    let [delta, partial] = parts(l, [shape.rows() * shape.heads * 4, partial_bytes])?;
    attention_delta(l, delta, dout, out, shape)?;
    let pointers = [dqkv.pointer, dout.pointer, qkv.pointer, log_sum.pointer, delta].map(Argument::Pointer);
    let arguments = [pointers.as_slice(), &shape_arguments(shape)].concat();
    let of_keys = [&arguments[..], &[Argument::Pointer(partial), Argument::U32(shares as u32)]].concat();
    launch_tiles(l, &tiling, 0, [shape.kv_heads * shares, shape.batch], shape, &of_keys)?;
    if shares > 1 {
        attention_store(l, gradients, partial, shares)?;
    }
    launch_tiles(l, &tiling, 1, [shares_of_heads, shape.batch], shape, &arguments)
}

/// Returns the number of shares that a group of query heads is cut into, whose gradients of keys
/// and values are added up last: the minimum that gives [`ENOUGH_BLOCKS`] of `rows` keys. It
/// depends only on the shape and the kernel's rows, so that sums are the same on all GPUs of one
/// architecture.
fn shares_of_groups(rows: usize, shape: AttentionShape) -> usize {
    let group = (shape.heads / shape.kv_heads.max(1)).max(1);
    enough_shares(group, shape.tokens.div_ceil(rows) * shape.kv_heads * shape.batch)
}

/// Returns the minimum number of equal shares of `heads` that gives [`ENOUGH_BLOCKS`] if each has
/// `blocks`.
fn enough_shares(heads: usize, blocks: usize) -> usize {
    let mut even = (1..=heads).filter(|shares| heads.is_multiple_of(*shares));
    even.find(|shares| blocks * shares >= ENOUGH_BLOCKS).unwrap_or(heads)
}

/// Returns the columns of `dqkv` that belong to keys and values.
fn key_gradients(dqkv: Operand, shape: AttentionShape) -> MatrixOperand {
    let data = Operand { pointer: dqkv.pointer + (shape.width() * dqkv.dtype.size()) as u64, ..dqkv };
    Matrix::new(data, shape.rows(), 2 * shape.kv_heads * shape.head_dim).with_stride(shape.packed_width())
}

/// Launches the kernel of `tiling` with this number.
fn launch_tiles<const N: usize>(
    l: &impl Launcher,
    tiling: &Tiling<N>,
    number: usize,
    [heads, batch]: [usize; 2],
    shape: AttentionShape,
    arguments: &[Argument<'_>],
) -> Result<()> {
    let grid = [heads, batch, shape.tokens.div_ceil(tiling.rows)].map(|blocks| blocks as u32);
    if grid.contains(&0) {
        return Ok(());
    }
    let block = [tiling.threads as u32, 1, 1];
    let (kernel, shared_bytes) = (tiling.kernels[number], tiling.shared_bytes[number] as u32);
    l.launch(Launch { kernel, grid, block, shared_bytes, arguments })
}

fn shape_arguments(shape: AttentionShape) -> [Argument<'static>; 5] {
    let scale = (1.0 / (shape.head_dim as f64).sqrt()) as f32;
    let [tokens, heads, kv_heads, head_dim] =
        counts([shape.tokens, shape.heads, shape.kv_heads, shape.head_dim]);
    [tokens, heads, kv_heads, head_dim, Argument::F32(scale)]
}

/// Returns the index into the tables of kernels on tensor cores, by head and type; `None` if there
/// is no such kernel, or an operand is not aligned to the 16 bytes that they read at a time.
fn on_tensor_cores(l: &impl Launcher, operands: &[Operand], shape: AttentionShape) -> Option<(usize, usize)> {
    let head = [64, 128].into_iter().position(|width| width == shape.head_dim)?;
    let dtype = [DType::Bf16, DType::F16].into_iter().position(|known| known == operands[0].dtype)?;
    let aligned = operands.iter().all(|operand| operand.pointer.is_multiple_of(16));
    (aligned && l.architecture() >= 80).then_some((head, dtype))
}

/// `None` if a tile does not fit.
fn forward_tiling(
    l: &impl Launcher,
    operands: [Operand; 2],
    shape: AttentionShape,
) -> Result<Option<Tiling<1>>> {
    let on_tensor_cores = on_tensor_cores(l, &operands, shape);
    if let Some((head, dtype)) = on_tensor_cores.filter(|_| l.architecture() == WARPGROUPS) {
        // Two tiles each of keys and values, one in use while the next arrives, and the queries
        // without their first 64 columns.
        let shared_bytes = [mma_tiles(5, shape) - MMA_TILE * 64 * 2];
        let kernels = [ATTENTION_WGMMA[head][dtype]];
        return Ok(Some(Tiling { kernels, rows: MMA_TILE, threads: MMA_THREADS, shared_bytes }));
    }
    if let Some((head, dtype)) = on_tensor_cores {
        // The queries, and a tile each of keys and values: one is in use while the other arrives.
        let shared_bytes = [mma_tiles(FORWARD_TILES + 2, shape)];
        let (kernels, rows) = ([ATTENTION_MMA[head][dtype]], FORWARD_TILES * MMA_TILE);
        return Ok(Some(Tiling { kernels, rows, threads: MMA_THREADS, shared_bytes }));
    }
    // Queries, keys and values.
    let Some((head, bytes)) = padded_tiles(l, 3, shape) else { return Ok(None) };
    let kernels = [of_type(&ATTENTION[head], "qkv", operands[0].dtype)?];
    Ok(Some(Tiling { kernels, rows: TILE, threads: THREADS, shared_bytes: [bytes] }))
}

/// `None` if a tile does not fit.
fn backward_tiling(
    l: &impl Launcher,
    operands: [Operand; 3],
    shape: AttentionShape,
) -> Result<Option<BackwardTiling>> {
    let head_by_head = |tiling| Ok(Some(BackwardTiling { tiling, shares_of_heads: shape.heads }));
    let on_tensor_cores = on_tensor_cores(l, &operands, shape);
    if let Some((head, dtype)) = on_tensor_cores.filter(|_| l.architecture() == WARPGROUPS) {
        let kernels = [ATTENTION_WGMMA_KEYS[head][dtype], ATTENTION_WGMMA_QUERIES[head][dtype]];
        // Of both inputs the block's own tiles, and stages of those that stream by; and statistics
        // of the queries among them.
        let stages = backward_stages(shape.head_dim);
        let tiles = mma_tiles(2 * BACKWARD_WARPGROUPS + 2 * stages, shape);
        let shared_bytes =
            [stages, BACKWARD_WARPGROUPS].map(|of_queries| tiles + of_queries * 2 * MMA_TILE * 4);
        let (rows, threads) = (BACKWARD_WARPGROUPS * MMA_TILE, BACKWARD_WARPGROUPS * MMA_THREADS);
        let tiling = Tiling { kernels, rows, threads, shared_bytes };
        // As few shares as give enough blocks: a block with several heads fetches the next head's
        // tiles while it computes.
        let shares_of_heads = enough_shares(shape.heads, shape.tokens.div_ceil(rows) * shape.batch);
        return Ok(Some(BackwardTiling { tiling, shares_of_heads }));
    }
    if let Some((head, dtype)) = on_tensor_cores {
        let kernels = [ATTENTION_MMA_KEYS[head][dtype], ATTENTION_MMA_QUERIES[head][dtype]];
        let own = backward_tiles(shape.head_dim);
        // Of both inputs the block's own tiles, and two of those that stream by: one is in use
        // while the next arrives. A block of keys also holds two tiles' statistics.
        let tiles = mma_tiles(2 * own + 4, shape);
        let (rows, shared_bytes) = (own * MMA_TILE, [tiles + 4 * MMA_TILE * 4, tiles]);
        return head_by_head(Tiling { kernels, rows, threads: MMA_THREADS, shared_bytes });
    }
    // Queries, their output's gradient, keys and values.
    let Some((head, bytes)) = padded_tiles(l, 4, shape) else { return Ok(None) };
    let of = |family: &[_; 3]| of_type(&family[head], "qkv", operands[0].dtype);
    let kernels = [of(&ATTENTION_KEYS)?, of(&ATTENTION_QUERIES)?];
    head_by_head(Tiling { kernels, rows: TILE, threads: THREADS, shared_bytes: [bytes; 2] })
}

/// Returns the bytes of `count` tiles on tensor cores, which take types of 16 bits.
fn mma_tiles(count: usize, shape: AttentionShape) -> usize {
    count * MMA_TILE * shape.head_dim * 2
}

/// Returns the narrowest of [`HEAD_DIMS`] that holds this head, and the bytes of `count` tiles of
/// it, whose rows lie four elements apart from a multiple of 32. `None` if there is no such width,
/// or the tiles do not fit into a block's shared memory.
fn padded_tiles(l: &impl Launcher, count: usize, shape: AttentionShape) -> Option<(usize, usize)> {
    let head = HEAD_DIMS.iter().position(|&width| width >= shape.head_dim)?;
    let bytes = count * TILE * (HEAD_DIMS[head] + 4) * 4;
    (bytes <= most_shared(l.architecture())).then_some((head, bytes))
}

#[cfg(test)]
mod tests {
    use super::{enough_shares, shares_of_groups};
    use crate::shapes::AttentionShape;

    #[test]
    fn shares_are_even_and_as_few_as_are_enough() {
        let shares = |batch, heads, kv_heads| {
            shares_of_groups(128, AttentionShape { batch, tokens: 2048, heads, kv_heads, head_dim: 64 })
        };
        assert_eq!([1, 2, 4, 8].map(|batch| shares(batch, 32, 4)), [8, 4, 2, 1]);
        assert_eq!([1, 2, 4].map(|batch| shares(batch, 12, 4)), [3, 3, 3]);
        assert_eq!([shares(1, 32, 32), shares(1, 9, 9), shares(0, 32, 4)], [1, 1, 8]);
        assert_eq!([1, 16, 128].map(|batch| enough_shares(12, 16 * batch)), [12, 2, 1]);
        assert_eq!(enough_shares(0, 16), 0);
    }
}
