//! This project's matrix products beside libraries', on one thread, at the presets' shapes.
//!
//! `scripts/products-bench [ROUNDS]`
//!
//! Each round times every contender once, one after the other; the table has the medians, as shares
//! of what multiply-additions in registers reach in the same run.

use device::{Buffer, Class, DType, Device, Ledger, Matrix, Write, multiply_add_peak};
use half::bf16;
use std::time::Instant;

/// A product `[rows, columns]` over a depth, and which operands are read transposed.
struct Shape {
    name: &'static str,
    rows: usize,
    columns: usize,
    depth: usize,
    transposed: [bool; 2],
}

/// A linear layer of a preset: forward, the gradient of its input, the gradient of its weights.
fn layer(name: [&'static str; 3], tokens: usize, inputs: usize, outputs: usize) -> [Shape; 3] {
    let shape = |name, rows, columns, depth, transposed| Shape { name, rows, columns, depth, transposed };
    [
        shape(name[0], tokens, outputs, inputs, [false, true]),
        shape(name[1], tokens, inputs, outputs, [false, false]),
        shape(name[2], outputs, inputs, tokens, [true, false]),
    ]
}

impl Shape {
    fn flops(&self) -> f64 {
        2.0 * (self.rows * self.columns * self.depth) as f64
    }

    /// Strides of an operand `[rows, columns]`, which may be stored transposed.
    fn strides((rows, columns): (usize, usize), transposed: bool) -> (isize, isize) {
        if transposed { (1, rows as isize) } else { (columns as isize, 1) }
    }

    fn a_strides(&self) -> (isize, isize) {
        Shape::strides((self.rows, self.depth), self.transposed[0])
    }

    fn b_strides(&self) -> (isize, isize) {
        Shape::strides((self.depth, self.columns), self.transposed[1])
    }
}

/// Uniform from −1 to 1.
fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state as f32 / 2f32.powi(31) - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

struct Ours {
    device: Device,
    a: Buffer,
    b: Buffer,
    out: Buffer,
}

impl Ours {
    fn new(dtype: DType, a: &[f32], b: &[f32], out: usize) -> Self {
        let device = Device::cpu(Ledger::new(events::Emitter::silent(0), None), 1);
        let buffer = |x: &[f32]| {
            let wide = device.upload(Class::Workspace, x).expect("memory");
            let mut buffer = device.allocate(Class::Workspace, dtype, x.len()).expect("memory");
            device.kernels().copy(buffer.view_mut(), wide.view()).expect("a copy");
            buffer
        };
        let (a, b, out) = (buffer(a), buffer(b), buffer(&vec![0.0; out]));
        Ours { device, a, b, out }
    }

    fn multiply(&mut self, shape: &Shape) {
        let stored = |view, (rows, columns), transposed| match transposed {
            true => Matrix::new(view, columns, rows).t(),
            false => Matrix::new(view, rows, columns),
        };
        let a = stored(self.a.view(), (shape.rows, shape.depth), shape.transposed[0]);
        let b = stored(self.b.view(), (shape.depth, shape.columns), shape.transposed[1]);
        let out = Matrix::new(self.out.view_mut(), shape.rows, shape.columns);
        self.device.kernels().matmul(out, a, b, Write::Replace).expect("a product");
    }
}

#[cfg(target_arch = "x86_64")]
fn private_gemm(shape: &Shape, a: &[f32], b: &[f32], out: &mut [f32]) {
    use private_gemm_x86::{Accum, DType, DstKind, IType, InstrSet, gemm};
    use std::ptr::null;
    let instructions =
        if std::arch::is_x86_feature_detected!("avx512f") { InstrSet::Avx512 } else { InstrSet::Avx256 };
    let (a_strides, b_strides, alpha) = (shape.a_strides(), shape.b_strides(), 1.0_f32);
    // SAFETY: the operands have the shape's elements, and the null pointers say that no rows and
    // columns are chosen.
    unsafe {
        gemm(
            DType::F32,
            IType::U64,
            instructions,
            shape.rows,
            shape.columns,
            shape.depth,
            out.as_mut_ptr().cast(),
            shape.columns as isize,
            1,
            null(),
            null(),
            DstKind::Full,
            Accum::Replace,
            a.as_ptr().cast(),
            a_strides.0,
            a_strides.1,
            false,
            null(),
            0,
            b.as_ptr().cast(),
            b_strides.0,
            b_strides.1,
            false,
            (&raw const alpha).cast(),
            1,
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn private_gemm(_: &Shape, _: &[f32], _: &[f32], _: &mut [f32]) {}

fn matrixmultiply(shape: &Shape, a: &[f32], b: &[f32], out: &mut [f32]) {
    let (a_strides, b_strides) = (shape.a_strides(), shape.b_strides());
    let Shape { rows, columns, depth, .. } = *shape;
    // SAFETY: the operands have the shape's elements.
    unsafe {
        matrixmultiply::sgemm(
            rows,
            depth,
            columns,
            1.0,
            a.as_ptr(),
            a_strides.0,
            a_strides.1,
            b.as_ptr(),
            b_strides.0,
            b_strides.1,
            0.0,
            out.as_mut_ptr(),
            columns as isize,
            1,
        );
    }
}

fn faer(shape: &Shape, a: &[f32], b: &[f32], out: &mut [f32]) {
    use faer::{Accum, MatMut, MatRef, Par, linalg::matmul::matmul};
    let matrix = |x: &[f32], rows, columns, (row, column)| {
        // SAFETY: the operands have the shape's elements.
        unsafe { MatRef::from_raw_parts(x.as_ptr(), rows, columns, row, column) }
    };
    let a = matrix(a, shape.rows, shape.depth, shape.a_strides());
    let b = matrix(b, shape.depth, shape.columns, shape.b_strides());
    let out = MatMut::from_row_major_slice_mut(out, shape.rows, shape.columns);
    matmul(out, Accum::Replace, a, b, 1.0, Par::Seq);
}

fn gemmkit<T: gemmkit::GemmScalar>(shape: &Shape, (one, zero): (T, T), a: &[T], b: &[T], out: &mut [T]) {
    use gemmkit::{MatMut, MatRef, Parallelism, gemm};
    let Shape { rows, columns, depth, .. } = *shape;
    let (a_strides, b_strides) = (shape.a_strides(), shape.b_strides());
    gemm(
        one,
        MatRef::new(a, rows, depth, a_strides.0, a_strides.1),
        MatRef::new(b, depth, columns, b_strides.0, b_strides.1),
        zero,
        MatMut::new(out, rows, columns, columns as isize, 1),
        Parallelism::Serial,
    );
}

/// The contenders, as the table's columns.
const NAMES: [&str; 7] = ["ours", "private-gemm", "faer", "matrixmultiply", "gemmkit", "ours, bf16", "gemmkit, bf16"];

/// GFLOP/s of every contender: the median of `rounds`.
fn compare(shape: &Shape, rounds: usize) -> Vec<f64> {
    let (a, b) = (numbers(shape.rows * shape.depth, 1), numbers(shape.depth * shape.columns, 2));
    let len = shape.rows * shape.columns;
    let mut outs = [(); 4].map(|()| vec![0.0_f32; len]);
    let round = |x: &[f32]| x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
    let (a_bf16, b_bf16, mut out_bf16) = (round(&a), round(&b), vec![bf16::ZERO; len]);
    let (mut ours, mut ours_bf16) = (Ours::new(DType::F32, &a, &b, len), Ours::new(DType::Bf16, &a, &b, len));
    let [private, faers, portable, kit] = &mut outs;
    let mut contenders: [Box<dyn FnMut() + '_>; 7] = [
        Box::new(|| ours.multiply(shape)),
        Box::new(|| private_gemm(shape, &a, &b, private)),
        Box::new(|| faer(shape, &a, &b, faers)),
        Box::new(|| matrixmultiply(shape, &a, &b, portable)),
        Box::new(|| gemmkit(shape, (1.0, 0.0), &a, &b, kit)),
        Box::new(|| ours_bf16.multiply(shape)),
        Box::new(|| gemmkit(shape, (bf16::ONE, bf16::ZERO), &a_bf16, &b_bf16, &mut out_bf16)),
    ];
    let mut speeds = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        for (contender, speeds) in contenders.iter_mut().zip(&mut speeds) {
            let start = Instant::now();
            contender();
            speeds.push(shape.flops() / 1e9 / start.elapsed().as_secs_f64());
        }
    }
    drop(contenders);
    for out in &outs {
        let ours = ours.out.as_slice::<f32>();
        let apart = ours.iter().zip(out).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-2, "{}: results are {apart} apart", shape.name);
    }
    speeds.into_iter().map(median).collect()
}

fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    x[x.len() / 2]
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(21);
    let limits = [DType::F32, DType::Bf16].map(|dtype| multiply_add_peak(1, dtype));
    println!("registers: f32 {:.0}, bf16 {:.0} GFLOP/s; below, shares of them in %", limits[0], limits[1]);
    let widest = NAMES.map(str::len);
    print!("{:<24}", "");
    NAMES.iter().for_each(|name| print!("  {name}"));
    println!();
    let layers = [
        layer(["tiny up, forward", "tiny up, input", "tiny up, weights"], 1024, 128, 768),
        layer(["small up, forward", "small up, input", "small up, weights"], 2048, 384, 2048),
        layer(["base up, forward", "base up, input", "base up, weights"], 1024, 768, 4096),
    ];
    for shape in layers.iter().flatten() {
        print!("{:<24}", shape.name);
        for (i, speed) in compare(shape, rounds).into_iter().enumerate() {
            let limit = limits[usize::from(NAMES[i].ends_with("bf16"))];
            print!("  {:>width$.0}", 100.0 * speed / limit, width = widest[i]);
        }
        println!();
    }
}
