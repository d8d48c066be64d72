//! Checks attention by tiles, in f32 arithmetic and on tensor cores, and by matrix products.

use super::Closeness::Rounding;
use super::{Operation, Output, Random, logarithms, numbers, output, tensor};
use device::{Attention, AttentionBackward, AttentionShape, Buffer, Class, DType, Device, Result};

/// Batch, tokens, heads, key/value heads, head width, and the magnitude of queries and keys. With
/// magnitude 1 a query attends to all keys equally; with 4 it attends to few, so that each tile of
/// keys matters in some rows.
type Sizes = [usize; 6];

pub(super) fn all(longest: usize) -> Vec<Operation> {
    let by_products = [[1, longest, 2, 1, 136, 1], [1, longest, 2, 1, 136, 4], [2, 33, 1, 1, 130, 2]];
    let mut all = tiled(longest);
    all.push(Operation::new("attention, random shapes", Rounding, random(), attention));
    all.push(Operation::new("attention, heads of 136", Rounding, by_products, attention));
    all
}

/// Returns operations for heads that fit into tiles. On tensor cores 333 tokens are six tiles, the
/// last one partial. 50 fewer are five, so that a block that owns two tiles has only one at the
/// end. At least two tokens attend, because the gradients of a single query and key are zero except
/// for rounding.
pub(super) fn tiled(longest: usize) -> Vec<Operation> {
    let fewer = longest.saturating_sub(50).max(2);
    let long = |width| {
        [
            [1, longest, 4, 1, width, 4],
            [1, fewer, 4, 2, width, 4],
            [2, 70, 4, 2, width, 1],
            [1, 65, 1, 1, width, 2],
        ]
    };
    let narrow = [[1, 37, 3, 1, 20, 1], [1, 150, 4, 2, 33, 4], [2, 64, 2, 2, 100, 2]];
    vec![
        Operation::new("attention, heads of 64", Rounding, long(64), attention),
        Operation::new("attention, heads of 128", Rounding, long(128), attention),
        Operation::new("attention, other heads", Rounding, narrow, attention),
    ]
}

fn random() -> Vec<Sizes> {
    let mut random = Random::new(40);
    let widths = [64, 64, 128, 128, 32, 96];
    let shape = |width| {
        let kv_heads = random.size(2);
        [random.size(2), random.size(140), kv_heads * random.size(2), kv_heads, width, random.size(4)]
    };
    widths.map(shape).to_vec()
}

fn attention(
    device: &Device,
    dtype: DType,
    [batch, tokens, heads, kv_heads, head_dim, magnitude]: Sizes,
) -> Result<Vec<Output>> {
    let shape = AttentionShape { batch, tokens, heads, kv_heads, head_dim };
    let (rows, packed, width) = (shape.rows(), shape.packed_width(), shape.width());
    let qkv = projections(device, dtype, shape, magnitude as f32)?;
    let dout = tensor(device, dtype, 16, rows * width)?;
    let mut out = device.allocate(Class::Workspace, dtype, rows * width)?;
    let mut log_sum = device.allocate(Class::Workspace, DType::F32, rows * shape.heads)?;
    let mut dqkv = device.allocate(Class::Workspace, dtype, rows * packed)?;
    let kernels = device.kernels();
    kernels.attention(Attention {
        out: out.view_mut(),
        log_sum: log_sum.view_mut(),
        qkv: qkv.view(),
        shape,
    })?;
    let (log_sums, result) = (log_sum.view(), out.view());
    kernels.attention_backward(AttentionBackward {
        dqkv: dqkv.view_mut(),
        dout: dout.view(),
        qkv: qkv.view(),
        out: result,
        log_sum: log_sums,
        shape,
    })?;
    let mut all = vec![output(device, "out", &out)?, logarithms(device, "log_sum", &log_sum)?];
    all.extend(gradients(device, shape, &dqkv)?);
    Ok(all)
}

/// Returns queries, keys and values. The values are from −1 to 1.
fn projections(device: &Device, dtype: DType, shape: AttentionShape, magnitude: f32) -> Result<Buffer> {
    let (packed, scores) = (shape.packed_width(), (shape.heads + shape.kv_heads) * shape.head_dim);
    let mut random = Random::new(15);
    let value = |place: usize| random.value() * if place % packed < scores { magnitude } else { 1.0 };
    let values: Vec<f32> = (0..shape.rows() * packed).map(value).collect();
    device.upload_as(Class::Workspace, dtype, &values)
}

/// Returns the gradients of queries, keys and values as separate outputs, because their magnitudes
/// differ.
fn gradients(device: &Device, shape: AttentionShape, dqkv: &Buffer) -> Result<[Output; 3]> {
    let all = numbers(device, dqkv)?;
    let [queries, keys] = [shape.heads, shape.kv_heads].map(|heads| heads * shape.head_dim);
    let part = |name, from: usize, to: usize| {
        let values = all.chunks(shape.packed_width()).flat_map(|row| &row[from..to]).copied().collect();
        Output { name, values, absolute: false }
    };
    let end = queries + keys;
    Ok([part("dq", 0, queries), part("dk", queries, end), part("dv", end, end + keys)])
}
