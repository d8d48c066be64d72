//! Kernels that work row by row: normalisation, SwiGLU, rotary embedding, embedding.

use crate::oracle;
use crate::support::{Bench, Setting, assert_close, cases, finite_differences, inner, read, settings};
use device::{
    AttentionShape, Class, DType, Embedding, EmbeddingBackward, RmsNorm, RmsNormBackward, Rope, RopeScaling,
    RowShape, Swiglu, SwigluBackward, Write,
};
use proptest::prelude::*;

const EPS: f32 = 1e-5;

fn shapes() -> impl Strategy<Value = RowShape> {
    let small = (1usize..8, 1usize..80);
    let large = (300usize..500, 60usize..80);
    prop_oneof![4 => small, 1 => large].prop_map(|(rows, width)| RowShape { rows, width })
}

fn writes() -> impl Strategy<Value = Write> {
    prop_oneof![Just(Write::Replace), Just(Write::Accumulate)]
}

fn check_rms_norm(setting: Setting, shape: RowShape) {
    let mut bench = setting.bench();
    let x = bench.tensor(setting.dtype, shape.rows * shape.width, 2.0);
    let weight = bench.tensor(setting.dtype, shape.width, 1.0);
    let mut out = bench.tensor(setting.dtype, shape.rows * shape.width, 1.0);
    let mut inverse = bench.tensor(DType::F32, shape.rows, 1.0);
    let kernels = bench.device.kernels();
    let (out_view, inverse_view) = (out.buffer.view_mut(), inverse.buffer.view_mut());
    kernels
        .rms_norm(RmsNorm {
            out: out_view,
            inverse_rms: inverse_view,
            x: x.buffer.view(),
            weight: weight.buffer.view(),
            shape: shape.into(),
            eps: EPS,
        })
        .unwrap();
    let (want, want_inverse) = oracle::rms_norm(&x.values, &weight.values, shape, f64::from(EPS));
    assert_close(&out.buffer, &want, 8.0);
    assert_close(&inverse.buffer, &want_inverse, 8.0);
}

/// The closed form, from the definition dL/dx_j = Σ_i dy_i · ∂y_i/∂x_j.
fn rms_norm_gradient(dout: &[f64], x: &[f64], weight: &[f64], shape: RowShape) -> (Vec<f64>, Vec<f64>) {
    let (_, inverse) = oracle::rms_norm(x, weight, shape, f64::from(EPS));
    let (mut dx, mut dweight) = (vec![0.0; x.len()], vec![0.0; weight.len()]);
    for (row, r) in inverse.iter().enumerate() {
        let at = |i: usize| row * shape.width + i;
        let along: f64 = (0..shape.width).map(|i| dout[at(i)] * weight[i] * x[at(i)]).sum();
        for i in 0..shape.width {
            dx[at(i)] = r * dout[at(i)] * weight[i] - x[at(i)] * r.powi(3) * along / shape.width as f64;
            dweight[i] += dout[at(i)] * x[at(i)] * r;
        }
    }
    (dx, dweight)
}

fn check_rms_norm_backward(setting: Setting, shape: RowShape, write: Write) {
    let mut bench = setting.bench();
    let len = shape.rows * shape.width;
    let x = bench.tensor(setting.dtype, len, 2.0);
    let dout = bench.tensor(setting.dtype, len, 1.0);
    let weight = bench.tensor(setting.dtype, shape.width, 1.0);
    let mut dx = bench.tensor(setting.dtype, len, 1.0);
    let mut dweight = bench.tensor(setting.dtype, shape.width, 1.0);
    let (_, inverse) = oracle::rms_norm(&x.values, &weight.values, shape, f64::from(EPS));
    let inverse = bench.store(DType::F32, &inverse);
    let (dx_want, dweight_want) = rms_norm_gradient(&dout.values, &x.values, &weight.values, shape);
    let kernels = bench.device.kernels();
    let (dout, inputs) = (dout.buffer.view(), (x.buffer.view(), weight.buffer.view(), inverse.buffer.view()));
    let outputs = (dx.buffer.view_mut(), dweight.buffer.view_mut());
    kernels
        .rms_norm_backward(RmsNormBackward {
            dx: outputs.0,
            dweight: outputs.1,
            write,
            dout: Some(dout),
            x: inputs.0,
            weight: inputs.1,
            inverse_rms: inputs.2,
            shape: shape.into(),
        })
        .unwrap();
    let dx_want: Vec<_> = dx_want.iter().zip(&dx.values).map(|(a, b)| a + b).collect();
    let kept = if write == Write::Accumulate { 1.0 } else { 0.0 };
    let dweight_want: Vec<_> = dweight_want.iter().zip(&dweight.values).map(|(a, b)| a + kept * b).collect();
    assert_close(&dx.buffer, &dx_want, 32.0);
    assert_close(&dweight.buffer, &dweight_want, 32.0 + shape.rows as f64 / 4.0);
}

fn check_swiglu(setting: Setting, shape: RowShape) {
    let mut bench = setting.bench();
    let gate_up = bench.tensor(setting.dtype, 2 * shape.rows * shape.width, 6.0);
    let mut out = bench.tensor(setting.dtype, shape.rows * shape.width, 1.0);
    bench
        .device
        .kernels()
        .swiglu(Swiglu { out: out.buffer.view_mut(), gate_up: gate_up.buffer.view(), shape })
        .unwrap();
    assert_close(&out.buffer, &oracle::swiglu(&gate_up.values, shape), 8.0);
}

fn check_swiglu_backward(setting: Setting, shape: RowShape) {
    let mut bench = setting.bench();
    let gate_up = bench.tensor(setting.dtype, 2 * shape.rows * shape.width, 6.0);
    let dout = bench.tensor(setting.dtype, shape.rows * shape.width, 1.0);
    let mut dgate_up = bench.tensor(setting.dtype, 2 * shape.rows * shape.width, 1.0);
    let kernels = bench.device.kernels();
    kernels
        .swiglu_backward(SwigluBackward {
            dgate_up: dgate_up.buffer.view_mut(),
            dout: dout.buffer.view(),
            gate_up: gate_up.buffer.view(),
            shape,
        })
        .unwrap();
    let want: Vec<_> = (0..gate_up.values.len())
        .map(|i| {
            let (row, column) = (i / (2 * shape.width), i % (2 * shape.width));
            let gate = gate_up.values[row * 2 * shape.width + column % shape.width];
            let up = gate_up.values[row * 2 * shape.width + shape.width + column % shape.width];
            let dout = dout.values[row * shape.width + column % shape.width];
            let s = 1.0 / (1.0 + (-gate).exp());
            if column < shape.width { dout * up * (s + gate * s * (1.0 - s)) } else { dout * gate * s }
        })
        .collect();
    assert_close(&dgate_up.buffer, &want, 16.0);
}

fn check_embedding(setting: Setting, shape: RowShape, vocabulary: usize, write: Write) {
    let mut bench = setting.bench();
    let RowShape { rows, width } = shape;
    let table = bench.tensor(setting.dtype, vocabulary * width, 1.0);
    let (ids, indices) = bench.indices(rows, vocabulary);
    let mut out = bench.tensor(setting.dtype, rows * width, 1.0);
    let kernels = bench.device.kernels();
    kernels
        .embedding(Embedding {
            out: out.buffer.view_mut(),
            table: table.buffer.view(),
            ids: ids.view(),
            shape,
            vocabulary,
        })
        .unwrap();
    let looked_up: Vec<_> =
        indices.iter().flat_map(|id| &table.values[id * width..][..width]).copied().collect();
    assert_close(&out.buffer, &looked_up, 0.0);

    let mut bench = setting.bench();
    let mut dtable = bench.tensor(setting.dtype, vocabulary * width, 1.0);
    let dout = bench.tensor(setting.dtype, rows * width, 1.0);
    let mut want =
        if write == Write::Accumulate { dtable.values.clone() } else { vec![0.0; vocabulary * width] };
    for (i, x) in dout.values.iter().enumerate() {
        want[indices[i / width] * width + i % width] += x;
    }
    kernels
        .embedding_backward(EmbeddingBackward {
            dtable: dtable.buffer.view_mut(),
            write,
            dout: dout.buffer.view(),
            ids: ids.view(),
            shape,
            vocabulary,
        })
        .unwrap();
    assert_close(&dtable.buffer, &want, 8.0 + rows as f64 / 4.0);
}

fn scalings() -> impl Strategy<Value = RopeScaling> {
    let llama3 = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, positions: 32 };
    prop_oneof![Just(RopeScaling::None), Just(RopeScaling::Linear(4.0)), Just(llama3)]
}

fn ropes() -> impl Strategy<Value = Rope> {
    let shape = (1usize..3, 1usize..20, 1usize..4, 1usize..3, 1usize..20);
    let turn = (prop_oneof![Just(10_000f32), Just(500_000f32)], scalings(), 0usize..9, any::<bool>());
    (shape, turn).prop_map(
        |((batch, tokens, group, kv_heads, half), (theta, scaling, first_position, inverse))| Rope {
            attention: AttentionShape {
                batch,
                tokens,
                heads: group * kv_heads,
                kv_heads,
                head_dim: 2 * half,
            },
            theta,
            scaling,
            first_position,
            inverse,
        },
    )
}

fn check_rope(setting: Setting, rope: Rope) {
    let mut bench = setting.bench();
    let mut qkv = bench.tensor(setting.dtype, rope.attention.rows() * rope.attention.packed_width(), 1.0);
    bench.device.kernels().rope(qkv.buffer.view_mut(), rope).unwrap();
    assert_close(&qkv.buffer, &oracle::rope(&qkv.values, rope), 4.0);
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn rms_norm(setting in settings(), shape in shapes()) {
        check_rms_norm(setting, shape);
    }

    #[test]
    fn rms_norm_backward(setting in settings(), shape in shapes(), write in writes()) {
        check_rms_norm_backward(setting, shape, write);
    }

    #[test]
    fn swiglu(setting in settings(), shape in shapes()) {
        check_swiglu(setting, shape);
    }

    #[test]
    fn swiglu_backward(setting in settings(), shape in shapes()) {
        check_swiglu_backward(setting, shape);
    }

    #[test]
    fn rope(setting in settings(), rope in ropes()) {
        check_rope(setting, rope);
    }

    #[test]
    fn embedding(setting in settings(), shape in shapes(), vocabulary in 1usize..400, write in writes()) {
        check_embedding(setting, shape, vocabulary, write);
    }
}

#[test]
fn rms_norm_gradient_is_the_slope() {
    let shape = RowShape { rows: 3, width: 11 };
    let mut bench = Bench::seeded(3);
    let x = bench.tensor(DType::F32, 33, 2.0);
    let weight = bench.tensor(DType::F32, 11, 1.0);
    let dout = bench.tensor(DType::F32, 33, 1.0);
    let loss = |x: &[f64], weight: &[f64]| {
        inner(&dout.values, &oracle::rms_norm(x, weight, shape, f64::from(EPS)).0)
    };
    let dx_want = finite_differences(&x.values, |x| loss(x, &weight.values));
    let dweight_want = finite_differences(&weight.values, |weight| loss(&x.values, weight));
    let mut out = bench.tensor(DType::F32, 33, 1.0).buffer;
    let mut inverse = bench.tensor(DType::F32, 3, 1.0).buffer;
    let mut dx = bench.device.zeros(Class::Workspace, DType::F32, 33).unwrap();
    let mut dweight = bench.device.zeros(Class::Workspace, DType::F32, 11).unwrap();
    let kernels = bench.device.kernels();
    let (x, weight, dout) = (x.buffer.view(), weight.buffer.view(), dout.buffer.view());
    kernels
        .rms_norm(RmsNorm {
            out: out.view_mut(),
            inverse_rms: inverse.view_mut(),
            x: x.clone(),
            weight: weight.clone(),
            shape: shape.into(),
            eps: EPS,
        })
        .unwrap();
    let (dx_view, dweight_view) = (dx.view_mut(), dweight.view_mut());
    kernels
        .rms_norm_backward(RmsNormBackward {
            dx: dx_view,
            dweight: dweight_view,
            write: Write::Replace,
            dout: Some(dout),
            x,
            weight,
            inverse_rms: inverse.view(),
            shape: shape.into(),
        })
        .unwrap();
    assert_close(&dx, &dx_want, 32.0);
    assert_close(&dweight, &dweight_want, 32.0);
}

#[test]
fn swiglu_gradient_is_the_slope() {
    let shape = RowShape { rows: 2, width: 19 };
    let mut bench = Bench::seeded(4);
    let gate_up = bench.tensor(DType::F32, 76, 3.0);
    let dout = bench.tensor(DType::F32, 38, 1.0);
    let want = finite_differences(&gate_up.values, |x| inner(&dout.values, &oracle::swiglu(x, shape)));
    let mut got = bench.tensor(DType::F32, 76, 1.0).buffer;
    let kernels = bench.device.kernels();
    kernels
        .swiglu_backward(SwigluBackward {
            dgate_up: got.view_mut(),
            dout: dout.buffer.view(),
            gate_up: gate_up.buffer.view(),
            shape,
        })
        .unwrap();
    assert_close(&got, &want, 32.0);
}

#[test]
fn swiglu_survives_extreme_gates() {
    let bench = Bench::seeded(0);
    let gate_up = bench.store(DType::F32, &[-1e30, -100.0, -88.5, 88.5, 1e30, 2.0, 2.0, 2.0, 2.0, 2.0]);
    let mut out = bench.store(DType::F32, &[1.0; 5]).buffer;
    let shape = RowShape { rows: 1, width: 5 };
    bench
        .device
        .kernels()
        .swiglu(Swiglu { out: out.view_mut(), gate_up: gate_up.buffer.view(), shape })
        .unwrap();
    assert_eq!(out.as_slice::<f32>()[3..], [177.0, 2e30]);
    assert!(out.as_slice::<f32>()[..3].iter().all(|x| x.abs() < 1e-30));
}

#[test]
fn a_rotation_and_its_inverse_cancel() {
    let attention = AttentionShape { batch: 2, tokens: 300, heads: 4, kv_heads: 2, head_dim: 32 };
    let rope = Rope { attention, theta: 1e4, scaling: RopeScaling::None, first_position: 0, inverse: false };
    let mut bench = Setting { seed: 1, dtype: DType::F32, threads: 2 }.bench();
    let mut qkv = bench.tensor(DType::F32, attention.rows() * attention.packed_width(), 1.0);
    let kernels = bench.device.kernels();
    kernels.rope(qkv.buffer.view_mut(), rope).unwrap();
    kernels.rope(qkv.buffer.view_mut(), Rope { inverse: true, ..rope }).unwrap();
    assert_close(&qkv.buffer, &qkv.values, 4.0);
}

#[test]
fn threads_do_not_change_the_bits_of_a_norms_gradient() {
    let shape = RowShape { rows: 700, width: 83 };
    let run = |threads, dtype, write| {
        let mut bench = Setting { seed: 4, dtype, threads }.bench();
        let len = shape.rows * shape.width;
        let [x, dout, mut dx] = [2.0, 1.0, 1.0].map(|magnitude| bench.tensor(dtype, len, magnitude).buffer);
        let [weight, mut dweight] = [1.0, 1.0].map(|size| bench.tensor(dtype, shape.width, size).buffer);
        let inverse = bench.tensor(DType::F32, shape.rows, 1.0).buffer;
        let (kernels, inputs) = (bench.device.kernels(), (x.view(), weight.view(), inverse.view()));
        let (dx_view, dweight_view, dout) = (dx.view_mut(), dweight.view_mut(), dout.view());
        kernels
            .rms_norm_backward(RmsNormBackward {
                dx: dx_view,
                dweight: dweight_view,
                write,
                dout: Some(dout),
                x: inputs.0,
                weight: inputs.1,
                inverse_rms: inputs.2,
                shape: shape.into(),
            })
            .unwrap();
        [read(&dx), read(&dweight)]
    };
    for dtype in [DType::F32, DType::Bf16] {
        for write in [Write::Replace, Write::Accumulate] {
            let one = run(1, dtype, write);
            (2..5).for_each(|threads| assert_eq!(one, run(threads, dtype, write), "{threads} threads"));
        }
    }
}
