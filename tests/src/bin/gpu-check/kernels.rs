//! Every kernel on the device, against the CPU's over the same inputs: one function per operation, run on both.

use crate::Finding;
use device::{
    AdamW, Attention, Buffer, Class, DType, Device, Matrix, MatrixMut, Result, Rope, RowShape, Write,
};

/// An operation over inputs that it makes itself; everything that it has written, as f32.
type Operation = fn(&Device, DType) -> Result<Vec<f32>>;

/// How close an operation has to come: to the bit, or to rounding.
#[derive(Clone, Copy, PartialEq)]
enum Closeness {
    Bits,
    Rounding,
}

use Closeness::{Bits, Rounding};

const OPERATIONS: [(&str, Closeness, Operation); 16] = [
    ("matmul", Rounding, matmul),
    ("matmul, transposed and accumulated", Rounding, matmul_transposed),
    ("matmul onto another matrix", Rounding, matmul_onto),
    ("rms_norm", Rounding, rms_norm),
    ("rms_norm_backward", Rounding, rms_norm_backward),
    ("rope", Bits, rope),
    ("attention, heads of 64", Rounding, attention_64),
    ("attention, heads of 20", Rounding, attention_20),
    ("attention, heads of 136", Rounding, attention_136),
    ("swiglu and its backward", Bits, swiglu),
    ("embedding and its backward", Bits, embedding),
    ("cross_entropy", Rounding, cross_entropy),
    ("add, copy, fill", Bits, elementwise),
    ("adamw", Bits, adamw),
    ("adamw_rounding", Bits, adamw_rounding),
    ("max_magnitude, sum_of_squares", Bits, reductions),
];

/// Every operation in every type that the GPU has.
pub(crate) fn check(cpu: &Device, gpu: &Device, bf16: bool) -> Vec<Finding> {
    types(bf16)
        .flat_map(|dtype| OPERATIONS.iter().map(move |operation| compare(cpu, gpu, operation, dtype)))
        .collect()
}

/// Tiled attention against attention by matrix products, both on the GPU.
pub(crate) fn check_attention(by_products: &Device, tiled: &Device, bf16: bool) -> Vec<Finding> {
    let ways: [(&str, Closeness, Operation); 2] = [
        ("tiled attention, heads of 64", Rounding, attention_64),
        ("tiled attention, heads of 20", Rounding, attention_20),
    ];
    types(bf16)
        .flat_map(|dtype| ways.iter().map(move |operation| compare(by_products, tiled, operation, dtype)))
        .collect()
}

fn types(bf16: bool) -> impl Iterator<Item = DType> {
    let types = [DType::F32, DType::F16, DType::Bf16];
    types.into_iter().filter(move |&dtype| bf16 || dtype != DType::Bf16)
}

fn compare(
    cpu: &Device,
    gpu: &Device,
    (name, closeness, operation): &(&str, Closeness, Operation),
    dtype: DType,
) -> Finding {
    let what = format!("{name}, {dtype}");
    let (expected, got) = match (operation(cpu, dtype), operation(gpu, dtype)) {
        (Ok(expected), Ok(got)) => (expected, got),
        (Err(error), _) | (_, Err(error)) => {
            return Finding { what, result: error.to_string(), holds: false };
        }
    };
    let (allowed, words) = match (closeness, dtype) {
        (Bits, _) => (0.0, "to the bit"),
        (Rounding, DType::F32) => (2e-5, "at most 2e-5"),
        (Rounding, _) => (2e-2, "at most 2e-2"),
    };
    let error = relative_error(&expected, &got);
    Finding { what, result: format!("{error:.1e} of the largest ({words})"), holds: error <= allowed }
}

/// The largest difference, relative to the largest magnitude; infinite for other lengths or stray NaNs.
fn relative_error(expected: &[f32], got: &[f32]) -> f32 {
    if expected.len() != got.len() || got.is_empty() {
        return f32::INFINITY;
    }
    let largest = expected.iter().fold(f32::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
    let apart = |(a, b): (&f32, &f32)| if a.to_bits() == b.to_bits() { 0.0 } else { (a - b).abs() / largest };
    let worst = |worst: f32, x: f32| if x.is_nan() { f32::INFINITY } else { worst.max(x) };
    expected.iter().zip(got).map(apart).fold(0.0, worst)
}

/// `len` numbers from −1 to 1, the same on every call with the same seed.
fn values(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn tensor(device: &Device, dtype: DType, seed: u64, len: usize) -> Result<Buffer> {
    device.upload_as(Class::Workspace, dtype, &values(seed, len))
}

/// A buffer's elements, widened.
fn numbers(device: &Device, buffer: &Buffer) -> Result<Vec<f32>> {
    let mut wide = device.allocate(Class::Workspace, DType::F32, buffer.len())?;
    device.kernels().copy(wide.view_mut(), buffer.view())?;
    Ok(device.read::<f32>(wide.view())?.into_owned())
}

fn all(device: &Device, buffers: &[&Buffer]) -> Result<Vec<f32>> {
    let parts: Vec<Vec<f32>> = buffers.iter().map(|buffer| numbers(device, buffer)).collect::<Result<_>>()?;
    Ok(parts.concat())
}

fn matmul(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let (m, n, k) = (37, 66, 129);
    let (a, b) = (tensor(device, dtype, 1, m * k)?, tensor(device, dtype, 2, k * n)?);
    let mut out = device.allocate(Class::Workspace, dtype, m * n)?;
    let (a, b) = (Matrix::new(a.view(), m, k), Matrix::new(b.view(), k, n));
    device.kernels().matmul(MatrixMut::new(out.view_mut(), m, n), a, b, Write::Replace)?;
    numbers(device, &out)
}

fn matmul_transposed(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let (m, n, k) = (64, 48, 40);
    let (a, b) = (tensor(device, dtype, 3, k * m)?, tensor(device, dtype, 4, n * k)?);
    let mut out = tensor(device, DType::F32, 5, m * n)?;
    let (a, b) = (Matrix::new(a.view(), k, m).t(), Matrix::new(b.view(), n, k).t());
    device.kernels().matmul(MatrixMut::new(out.view_mut(), m, n), a, b, Write::Accumulate)?;
    numbers(device, &out)
}

fn matmul_onto(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let (m, n, k) = (50, 33, 72);
    let (a, b) = (tensor(device, dtype, 30, m * k)?, tensor(device, dtype, 31, n * k)?);
    let base = tensor(device, dtype, 32, m * n)?;
    let mut out = device.allocate(Class::Workspace, dtype, m * n)?;
    let (a, b) = (Matrix::new(a.view(), m, k), Matrix::new(b.view(), n, k).t());
    device.kernels().matmul_onto(MatrixMut::new(out.view_mut(), m, n), base.view(), a, b)?;
    all(device, &[&out, &base])
}

const ROWS: RowShape = RowShape { rows: 19, width: 100 };

fn rms_norm(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let RowShape { rows, width } = ROWS;
    let (x, weight) = (tensor(device, dtype, 6, rows * width)?, tensor(device, dtype, 7, width)?);
    let mut out = device.allocate(Class::Workspace, dtype, rows * width)?;
    let mut inverse = device.allocate(Class::Workspace, DType::F32, rows)?;
    device.kernels().rms_norm(out.view_mut(), inverse.view_mut(), x.view(), weight.view(), ROWS, 1e-5)?;
    all(device, &[&out, &inverse])
}

fn rms_norm_backward(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let RowShape { rows, width } = ROWS;
    let (x, weight) = (tensor(device, dtype, 8, rows * width)?, tensor(device, dtype, 9, width)?);
    let (dout, inverse) = (tensor(device, dtype, 10, rows * width)?, tensor(device, DType::F32, 11, rows)?);
    let (mut dx, mut dweight) =
        (tensor(device, dtype, 12, rows * width)?, tensor(device, DType::F32, 13, width)?);
    let (dout, x) = (dout.view(), x.view());
    device.kernels().rms_norm_backward(
        dx.view_mut(),
        dweight.view_mut(),
        Write::Accumulate,
        dout,
        x,
        weight.view(),
        inverse.view(),
        ROWS,
    )?;
    all(device, &[&dx, &dweight])
}

fn rope(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let attention = Attention { batch: 2, tokens: 13, heads: 4, kv_heads: 2, head_dim: 20 };
    let mut qkv = tensor(device, dtype, 14, attention.rows() * attention.packed_width())?;
    let rope = Rope { attention, theta: 10_000.0, first_position: 3, inverse: false };
    device.kernels().rope(qkv.view_mut(), rope)?;
    numbers(device, &qkv)
}

fn attention_64(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    attention(device, dtype, Attention { batch: 2, tokens: 70, heads: 4, kv_heads: 2, head_dim: 64 })
}

fn attention_20(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    attention(device, dtype, Attention { batch: 1, tokens: 37, heads: 3, kv_heads: 1, head_dim: 20 })
}

fn attention_136(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    attention(device, dtype, Attention { batch: 1, tokens: 300, heads: 4, kv_heads: 2, head_dim: 136 })
}

fn attention(device: &Device, dtype: DType, shape: Attention) -> Result<Vec<f32>> {
    let (rows, packed, width) = (shape.rows(), shape.packed_width(), shape.width());
    let qkv = tensor(device, dtype, 15, rows * packed)?;
    let dout = tensor(device, dtype, 16, rows * width)?;
    let mut out = device.allocate(Class::Workspace, dtype, rows * width)?;
    let mut log_sum = device.allocate(Class::Workspace, DType::F32, rows * shape.heads)?;
    let mut dqkv = device.allocate(Class::Workspace, dtype, rows * packed)?;
    let kernels = device.kernels();
    kernels.attention(out.view_mut(), log_sum.view_mut(), qkv.view(), shape)?;
    kernels.attention_backward(
        dqkv.view_mut(),
        dout.view(),
        qkv.view(),
        out.view(),
        log_sum.view(),
        shape,
    )?;
    all(device, &[&out, &log_sum, &dqkv])
}

fn swiglu(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let len = ROWS.rows * ROWS.width;
    let (gate_up, dout) = (tensor(device, dtype, 17, 2 * len)?, tensor(device, dtype, 18, len)?);
    let mut out = device.allocate(Class::Workspace, dtype, len)?;
    let mut dgate_up = device.allocate(Class::Workspace, dtype, 2 * len)?;
    device.kernels().swiglu(out.view_mut(), gate_up.view(), ROWS)?;
    device.kernels().swiglu_backward(dgate_up.view_mut(), dout.view(), gate_up.view(), ROWS)?;
    all(device, &[&out, &dgate_up])
}

fn embedding(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let (RowShape { rows, width }, vocabulary) = (ROWS, 11);
    let ids: Vec<u32> = (0..rows as u32).map(|i| i * i % vocabulary as u32).collect();
    let ids = device.upload(Class::Workspace, &ids)?;
    let (table, dout) =
        (tensor(device, dtype, 19, vocabulary * width)?, tensor(device, dtype, 20, rows * width)?);
    let mut out = device.allocate(Class::Workspace, dtype, rows * width)?;
    let mut dtable = device.allocate(Class::Workspace, DType::F32, vocabulary * width)?;
    device.kernels().embedding(out.view_mut(), table.view(), ids.view(), ROWS)?;
    device.kernels().embedding_backward(dtable.view_mut(), Write::Replace, dout.view(), ids.view(), ROWS)?;
    all(device, &[&out, &dtable])
}

fn cross_entropy(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let RowShape { rows, width } = ROWS;
    let targets: Vec<u32> = (0..rows as u32).map(|i| i * 7 % width as u32).collect();
    let targets = device.upload(Class::Workspace, &targets)?;
    let mut logits = tensor(device, dtype, 21, rows * width)?;
    let mut losses = device.allocate(Class::Workspace, DType::F32, rows)?;
    device.kernels().cross_entropy(losses.view_mut(), logits.view_mut(), targets.view(), 0.5, ROWS)?;
    all(device, &[&losses, &logits])
}

fn elementwise(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let len = 1003;
    let (mut sum, x) = (tensor(device, dtype, 22, len)?, tensor(device, DType::F32, 23, len)?);
    let mut constant = device.allocate(Class::Workspace, dtype, len)?;
    let mut zeros = device.zeros(Class::Workspace, dtype, len)?;
    device.kernels().add(sum.view_mut(), x.view())?;
    device.kernels().fill(constant.view_mut(), 0.1)?;
    device.kernels().copy(zeros.slice_mut(1..len), x.slice(0..len - 1))?;
    all(device, &[&sum, &constant, &zeros])
}

const UPDATE: AdamW =
    AdamW { lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, step: 3, gradient_scale: 0.7 };

/// Master weights, momentum, and a variance that is not negative.
fn states(device: &Device, len: usize) -> Result<[Buffer; 3]> {
    let variance: Vec<f32> = values(26, len).into_iter().map(|x| x * x).collect();
    let master = tensor(device, DType::F32, 24, len)?;
    let momentum = tensor(device, DType::F32, 25, len)?;
    Ok([master, momentum, device.upload(Class::Workspace, &variance)?])
}

fn adamw(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let len = 1003;
    let [mut master, mut momentum, mut variance] = states(device, len)?;
    let gradients = tensor(device, dtype, 27, len)?;
    let (w, m, v) = (master.view_mut(), momentum.view_mut(), variance.view_mut());
    device.kernels().adamw(w, m, v, gradients.view(), UPDATE)?;
    all(device, &[&master, &momentum, &variance])
}

fn adamw_rounding(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let len = 1003;
    let [mut master, mut momentum, mut variance] = states(device, len)?;
    let (gradients, mut rounded) =
        (tensor(device, dtype, 28, len)?, device.allocate(Class::Workspace, dtype, len)?);
    let (w, m, v) = (master.view_mut(), momentum.view_mut(), variance.view_mut());
    device.kernels().adamw_rounding(rounded.view_mut(), w, m, v, gradients.view(), UPDATE)?;
    all(device, &[&rounded, &master, &momentum, &variance])
}

/// The fixed-point sum in pieces of 16 bits, which f32 holds exactly.
fn reductions(device: &Device, dtype: DType) -> Result<Vec<f32>> {
    let x = tensor(device, dtype, 29, 70_001)?;
    let largest = device.kernels().max_magnitude(x.view())?;
    let sum = device.kernels().sum_of_squares(x.view(), 0)?;
    let pieces = (0..8).map(|piece| (sum >> (16 * piece) & 0xffff) as f32);
    Ok([largest].into_iter().chain(pieces).collect())
}
