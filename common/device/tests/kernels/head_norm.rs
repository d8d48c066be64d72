//! The norm of heads inside packed projections, against the norm of the same rows side by side.

use crate::support::{Bench, Setting, Tensor, assert_same, cases, read, settings};
use device::{Buffer, DType, GroupedRows, RmsNorm, RmsNormBackward, RowShape, Write};
use proptest::prelude::*;

const EPS: f32 = 1e-5;

/// Some heads of each token's row: between others, or at the end of the buffer.
fn shapes() -> impl Strategy<Value = GroupedRows> {
    let small = (1usize..9, 1usize..5, 1usize..40);
    let large = (150usize..200, 2usize..5, 30usize..40);
    (prop_oneof![3 => small, 1 => large], 0usize..30).prop_map(|((tokens, group, width), others)| {
        GroupedRows { rows: tokens * group, width, group, stride: group * width + others }
    })
}

/// Where the elements of the rows are, in order.
fn places(shape: GroupedRows) -> Vec<usize> {
    let place = |i: usize| {
        let (row, column) = (i / shape.width, i % shape.width);
        row / shape.group * shape.stride + row % shape.group * shape.width + column
    };
    (0..shape.elements()).map(place).collect()
}

/// The rows of `packed`, side by side.
fn gathered(bench: &Bench, packed: &Tensor, shape: GroupedRows) -> Tensor {
    let values: Vec<f64> = places(shape).into_iter().map(|place| packed.values[place]).collect();
    bench.store(packed.buffer.dtype(), &values)
}

/// Fails unless `packed` holds `rows`, and between them what it held at first.
fn assert_scattered(packed: &Tensor, rows: &Buffer, shape: GroupedRows) {
    let mut want = packed.values.clone();
    places(shape).into_iter().zip(read(rows)).for_each(|(place, value)| want[place] = value);
    assert_same(&packed.buffer, &want);
}

fn check_forward(setting: Setting, shape: GroupedRows) {
    let mut bench = setting.bench();
    let extent = (shape.rows / shape.group - 1) * shape.stride + shape.group * shape.width;
    let (x, mut out) = (bench.tensor(setting.dtype, extent, 2.0), bench.tensor(setting.dtype, extent, 1.0));
    let weight = bench.tensor(setting.dtype, shape.width, 1.0);
    let plain_x = gathered(&bench, &x, shape);
    let mut plain_out = bench.tensor(setting.dtype, shape.elements(), 1.0);
    let [mut inverse, mut plain_inverse] = [(); 2].map(|()| bench.tensor(DType::F32, shape.rows, 1.0));
    let rows = RowShape { rows: shape.rows, width: shape.width };
    let device = bench.device.clone();
    let run = |out: &mut Tensor, inverse: &mut Tensor, x: &Tensor, shape| {
        let (out, inverse_rms, weight) =
            (out.buffer.view_mut(), inverse.buffer.view_mut(), weight.buffer.view());
        let x = x.buffer.view();
        device.kernels().rms_norm(RmsNorm { out, inverse_rms, x, weight, shape, eps: EPS }).unwrap();
    };
    run(&mut out, &mut inverse, &x, shape);
    run(&mut plain_out, &mut plain_inverse, &plain_x, rows.into());
    assert_scattered(&out, &plain_out.buffer, shape);
    assert_same(&inverse.buffer, &read(&plain_inverse.buffer));
}

/// The gradient in place, against that of a plain norm, which is added to zeros.
fn check_backward(setting: Setting, shape: GroupedRows, write: Write) {
    let mut bench = setting.bench();
    let extent = (shape.rows / shape.group - 1) * shape.stride + shape.group * shape.width;
    let (x, mut dx) = (bench.tensor(setting.dtype, extent, 2.0), bench.tensor(setting.dtype, extent, 1.0));
    let weight = bench.tensor(setting.dtype, shape.width, 1.0);
    let dweights = bench.tensor(setting.dtype, shape.width, 1.0).values;
    let [mut dweight, mut plain_dweight] = [(); 2].map(|()| bench.store(setting.dtype, &dweights));
    let inverse = bench.tensor(DType::F32, shape.rows, 1.0);
    let (plain_x, dout) = (gathered(&bench, &x, shape), gathered(&bench, &dx, shape));
    let mut plain_dx = bench.store(setting.dtype, &vec![0.0; shape.elements()]);
    let rows = RowShape { rows: shape.rows, width: shape.width };
    let device = bench.device.clone();
    let run = |dx: &mut Tensor, dweight: &mut Tensor, dout: Option<&Tensor>, x: &Tensor, shape| {
        let arguments = RmsNormBackward {
            dx: dx.buffer.view_mut(),
            dweight: dweight.buffer.view_mut(),
            write,
            dout: dout.map(|dout| dout.buffer.view()),
            x: x.buffer.view(),
            weight: weight.buffer.view(),
            inverse_rms: inverse.buffer.view(),
            shape,
        };
        device.kernels().rms_norm_backward(arguments).unwrap();
    };
    run(&mut dx, &mut dweight, None, &x, shape);
    run(&mut plain_dx, &mut plain_dweight, Some(&dout), &plain_x, rows.into());
    assert_scattered(&dx, &plain_dx.buffer, shape);
    assert_same(&dweight.buffer, &read(&plain_dweight.buffer));
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn heads_are_normalised_where_they_lie(setting in settings(), shape in shapes()) {
        check_forward(setting, shape);
    }

    #[test]
    fn their_gradient_takes_the_place_of_the_output_s(setting in settings(), shape in shapes(), add: bool) {
        check_backward(setting, shape, if add { Write::Accumulate } else { Write::Replace });
    }
}
