//! Products of every shape, stride, transpose and storage.

use crate::oracle;
use crate::support::{Setting, Tensor, assert_close, cases, read, settings};
use device::{Addend, DType, Matmul, Matrix, Rounding, View, Write};
use proptest::prelude::*;

/// A stored matrix: rows, columns, stride, and whether it is read transposed.
type Stored = (usize, usize, usize, bool);

fn stored(rows: usize, columns: usize, padding: usize, transposed: bool) -> Stored {
    let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
    (rows, columns, columns + padding, transposed)
}

fn matrix<'a>(tensor: &'a Tensor, (rows, columns, stride, transposed): Stored) -> Matrix<View<'a>> {
    let matrix = Matrix::new(tensor.buffer.view(), rows, columns).with_stride(stride);
    if transposed { matrix.t() } else { matrix }
}

fn element(tensor: &Tensor, (_, _, stride, transposed): Stored) -> impl Fn(usize, usize) -> f64 {
    move |i, j| if transposed { tensor.values[j * stride + i] } else { tensor.values[i * stride + j] }
}

fn check(
    setting: Setting,
    size: (usize, usize, usize),
    paddings: [usize; 3],
    transposed: [bool; 2],
    write: Write,
) {
    let (rows, columns, depth) = size;
    let mut bench = setting.bench();
    let a_stored = stored(rows, depth, paddings[0], transposed[0]);
    let b_stored = stored(depth, columns, paddings[1], transposed[1]);
    let a = bench.tensor(setting.dtype, a_stored.0 * a_stored.2, 1.0);
    let b = bench.tensor(setting.dtype, b_stored.0 * b_stored.2, 1.0);
    let stride = columns + paddings[2];
    let mut out = bench.tensor(setting.dtype, rows * stride, 1.0);
    let product = oracle::matmul(element(&a, a_stored), element(&b, b_stored), size);
    let mut want = out.values.clone();
    for (i, x) in product.iter().enumerate() {
        let at = i / columns * stride + i % columns;
        want[at] = if write == Write::Accumulate { want[at] + x } else { *x };
    }
    let out_matrix = Matrix::new(out.buffer.view_mut(), rows, columns).with_stride(stride);
    bench.device.kernels().matmul(out_matrix, matrix(&a, a_stored), matrix(&b, b_stored), write).unwrap();
    assert_close(&out.buffer, &want, 8.0 + depth as f64 / 4.0);
    let untouched = |i: &usize| i % stride >= columns;
    let got = read(&out.buffer);
    assert!((0..rows * stride).filter(untouched).all(|i| got[i] == out.values[i]), "padding was written");
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn matches_the_reference(
        setting in settings(),
        size in (1usize..70, 1usize..70, 0usize..70),
        paddings in prop::array::uniform3(0usize..5),
        transposed in prop::array::uniform2(any::<bool>()),
        accumulate in any::<bool>(),
    ) {
        let write = if accumulate { Write::Accumulate } else { Write::Replace };
        check(setting, size, paddings, transposed, write);
    }
}

#[test]
fn large_products_are_cut_over_threads_and_panels() {
    for dtype in [DType::F32, DType::Bf16] {
        for (size, threads) in
            // The second of these is cut by rows and by columns if its left operand is copied.
            [
                ((300, 130, 250), 3),
                ((130, 140, 250), 4),
                ((40, 1100, 300), 2),
                ((1100, 70, 90), 1),
                ((130, 130, 5000), 1),
            ]
        {
            let setting = Setting { seed: 7, dtype, threads };
            check(setting, size, [0, 3, 0], [false, true], Write::Accumulate);
            check(setting, size, [1, 0, 0], [true, false], Write::Replace);
        }
    }
}

/// The output becomes a base and the product, with the bits of a copy to which it is added.
#[test]
fn a_base_is_added_as_if_it_were_there() {
    for (rows, columns, depth) in [(40, 64, 70), (100, 96, 900), (33, 50, 20)] {
        for (dtype, of_base, threads) in [
            (DType::F32, DType::F32, 1),
            (DType::F32, DType::F32, 3),
            (DType::F32, DType::F16, 1),
            (DType::Bf16, DType::Bf16, 1),
            (DType::Bf16, DType::F32, 1),
        ] {
            let mut bench = Setting { seed: 9, dtype, threads }.bench();
            let (a, b) = (bench.tensor(dtype, rows * depth, 1.0), bench.tensor(dtype, depth * columns, 1.0));
            let base = bench.tensor(of_base, rows * columns, 1.0);
            let [mut out, mut want] = [(); 2].map(|()| bench.tensor(dtype, rows * columns, 1.0));
            let kernels = bench.device.kernels();
            kernels.copy(want.buffer.view_mut(), base.buffer.view()).unwrap();
            for (out, addend) in [(&mut out, Addend::Base(base.buffer.view())), (&mut want, Addend::Out)] {
                let out = Matrix::new(out.buffer.view_mut(), rows, columns);
                let (a, b) =
                    (Matrix::new(a.buffer.view(), rows, depth), Matrix::new(b.buffer.view(), depth, columns));
                kernels.product(Matmul { out, a, b, addend, rounding: Rounding::None }).unwrap();
            }
            assert_eq!(
                read(&out.buffer),
                read(&want.buffer),
                "{rows}×{depth}×{columns}, {dtype}, {of_base}, {threads}"
            );
        }
    }
}

/// Adjacent tensors may be multiplied as one matrix or as several, and are cut over threads:
/// neither may change a bit.
#[test]
fn columns_do_not_know_their_neighbours() {
    for depth in [20, 600] {
        check_columns(depth);
    }
}

fn check_columns(depth: usize) {
    let (rows, widest) = (8, 150);
    let mut bench = Setting { seed: 3, dtype: DType::F32, threads: 1 }.bench();
    let a = bench.tensor(DType::F32, rows * depth, 1.0);
    let b = bench.tensor(DType::F32, depth * widest, 1.0);
    let mut product = |columns: usize, transposed: bool| {
        let mut out = bench.tensor(DType::F32, rows * columns, 1.0);
        let a = if transposed {
            Matrix::new(a.buffer.view(), depth, rows).t()
        } else {
            Matrix::new(a.buffer.view(), rows, depth)
        };
        let b = Matrix::new(b.buffer.view(), depth, columns).with_stride(widest);
        let matrix = Matrix::new(out.buffer.view_mut(), rows, columns);
        bench.device.kernels().matmul(matrix, a, b, Write::Replace).unwrap();
        out.buffer.as_slice::<f32>().to_vec()
    };
    for transposed in [false, true] {
        let all = product(widest, transposed);
        for columns in (1..60).chain([96, 119, 120, 121, 128, 129]) {
            let some = product(columns, transposed);
            for row in 0..rows {
                let (some, all) = (&some[row * columns..][..columns], &all[row * widest..][..columns]);
                assert_eq!(some, all, "{columns} columns of depth {depth}, row {row}");
            }
        }
    }
}

/// Returns the bits of one product, computed on `setting.threads` threads.
fn bits(setting: Setting, size: (usize, usize, usize), transposed: [bool; 2], write: Write) -> Vec<u64> {
    let (rows, columns, depth) = size;
    let mut bench = setting.bench();
    let (a_stored, b_stored) =
        (stored(rows, depth, 0, transposed[0]), stored(depth, columns, 0, transposed[1]));
    let a = bench.tensor(setting.dtype, rows * depth, 1.0);
    let b = bench.tensor(setting.dtype, depth * columns, 1.0);
    let mut out = bench.tensor(setting.dtype, rows * columns, 1.0);
    let matrix_out = Matrix::new(out.buffer.view_mut(), rows, columns);
    let kernels = bench.device.kernels();
    kernels.matmul(matrix_out, matrix(&a, a_stored), matrix(&b, b_stored), write).unwrap();
    read(&out.buffer).into_iter().map(f64::to_bits).collect()
}

/// Sizes at which a cut over threads could leave a single row or column, or choose another path for
/// a part than for the whole.
#[test]
fn threads_do_not_change_the_bits() {
    for size in
        [(33, 31, 4100), (17, 16, 8000), (40, 100, 600), (70, 190, 513), (2049, 33, 40), (20, 961, 130)]
    {
        for (a, b) in [(false, false), (true, false), (false, true)] {
            for dtype in [DType::F32, DType::Bf16] {
                for write in [Write::Replace, Write::Accumulate] {
                    let run = |threads| bits(Setting { seed: 5, dtype, threads }, size, [a, b], write);
                    let one = run(1);
                    for threads in 2..5 {
                        assert!(one == run(threads), "{size:?}, {dtype}, {a}, {b}, {threads} threads");
                    }
                }
            }
        }
    }
}

#[test]
fn a_sum_of_nothing_is_zero() {
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        for transposed in [false, true] {
            let setting = Setting { seed: 1, dtype, threads: 1 };
            for rows in [3, 100] {
                check(setting, (rows, 100, 0), [1, 0, 2], [transposed, false], Write::Replace);
                check(setting, (rows, 100, 0), [1, 0, 2], [transposed, false], Write::Accumulate);
            }
        }
    }
}
