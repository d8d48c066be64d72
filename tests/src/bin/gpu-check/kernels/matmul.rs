//! Checks matrix products.

use super::Closeness::{Bits, Rounding};
use super::{Operation, Output, outputs, shapes, tensor, values};
use device::{Addend, Class, DType, Device, Matmul, Matrix, Result, Write};

pub(super) fn all(bf16: bool) -> Vec<Operation> {
    let any = |seed| [vec![[37, 66, 129], [1, 1, 1]], shapes(seed, 6, [200, 200, 300])].concat();
    let mut all = vec![
        Operation::new("matmul", Rounding, any(1), plain),
        Operation::new("matmul, transposed and accumulated", Rounding, any(2), transposed),
        Operation::new("matmul onto another matrix", Rounding, any(3), onto),
        Operation::new(
            "matmul, sums of many terms that cancel",
            Bits,
            [[64, 64, 4096], [8, 24, 9000]],
            cancelling,
        ),
    ];
    if bf16 {
        let even = [[64, 64, 64], [128, 256, 512], [40, 24, 16]];
        let shapes = [any(4), even.to_vec()].concat();
        let operation = Operation::new("matmul, rounded to bf16", Rounding, shapes, rounded);
        all.push(Operation { types: &[DType::F32], ..operation });
    }
    all
}

/// Rows, columns and depth.
type Sizes = [usize; 3];

fn plain(device: &Device, dtype: DType, [m, n, k]: Sizes) -> Result<Vec<Output>> {
    let (a, b) = (tensor(device, dtype, 1, m * k)?, tensor(device, dtype, 2, k * n)?);
    let mut out = device.allocate(Class::Workspace, dtype, m * n)?;
    let (a, b) = (Matrix::new(a.view(), m, k), Matrix::new(b.view(), k, n));
    device.kernels().matmul(Matrix::new(out.view_mut(), m, n), a, b, Write::Replace)?;
    outputs(device, [("out", &out)])
}

fn transposed(device: &Device, dtype: DType, [m, n, k]: Sizes) -> Result<Vec<Output>> {
    let (a, b) = (tensor(device, dtype, 3, k * m)?, tensor(device, dtype, 4, n * k)?);
    let mut out = tensor(device, DType::F32, 5, m * n)?;
    let (a, b) = (Matrix::new(a.view(), k, m).t(), Matrix::new(b.view(), n, k).t());
    device.kernels().matmul(Matrix::new(out.view_mut(), m, n), a, b, Write::Accumulate)?;
    outputs(device, [("out", &out)])
}

fn onto(device: &Device, dtype: DType, [m, n, k]: Sizes) -> Result<Vec<Output>> {
    let (a, b) = (tensor(device, dtype, 30, m * k)?, tensor(device, dtype, 31, n * k)?);
    let base = tensor(device, dtype, 32, m * n)?;
    let mut out = device.allocate(Class::Workspace, dtype, m * n)?;
    let (a, b) = (Matrix::new(a.view(), m, k), Matrix::new(b.view(), n, k).t());
    let (out_matrix, addend) = (Matrix::new(out.view_mut(), m, n), Addend::Base(base.view()));
    device.kernels().product(Matmul { out: out_matrix, a, b, addend, rounding: device::Rounding::None })?;
    outputs(device, [("out", &out), ("base", &base)])
}

/// Runs autocast's product of f32 operands. If both sides round the operands, results differ only
/// by the rounding of the sums.
fn rounded(device: &Device, dtype: DType, [m, n, k]: Sizes) -> Result<Vec<Output>> {
    let (a, b) = (tensor(device, dtype, 35, m * k)?, tensor(device, dtype, 36, n * k)?);
    let mut out = device.allocate(Class::Workspace, dtype, m * n)?;
    let (a, b) = (Matrix::new(a.view(), m, k), Matrix::new(b.view(), n, k).t());
    let (out_matrix, rounding) = (Matrix::new(out.view_mut(), m, n), device::Rounding::Bf16);
    device.kernels().product(Matmul { out: out_matrix, a, b, addend: Addend::Zero, rounding })?;
    outputs(device, [("out", &out)])
}

/// Multiplies multiples of a quarter from 1 to 2, with the sign flipped in the second half of each
/// row. Every sum is exact in f32, in any order and in any parts; a part that is rounded to 16 bits
/// is not.
fn cancelling(device: &Device, dtype: DType, [m, n, k]: Sizes) -> Result<Vec<Output>> {
    let quarters =
        |seed, len| values(seed, len).into_iter().map(|x| 1.0 + (2.0 * (x + 1.0)).floor().min(3.0) / 4.0);
    let signed = |(place, x): (usize, f32)| if place % k < k / 2 { x } else { -x };
    let a: Vec<f32> = quarters(33, m * k).enumerate().map(signed).collect();
    let b: Vec<f32> = quarters(34, n * k).collect();
    let upload = |values: &[f32]| device.upload_as(Class::Workspace, dtype, values);
    let (a, b) = (upload(&a)?, upload(&b)?);
    let mut out = device.allocate(Class::Workspace, dtype, m * n)?;
    let (a, b) = (Matrix::new(a.view(), m, k), Matrix::new(b.view(), n, k).t());
    device.kernels().matmul(Matrix::new(out.view_mut(), m, n), a, b, Write::Replace)?;
    let mut all = outputs(device, [("out", &out)])?;
    // The sign of a zero sum depends on the order: −0 becomes 0.
    all.iter_mut().flat_map(|output| &mut output.values).for_each(|value| *value += 0.0);
    Ok(all)
}
