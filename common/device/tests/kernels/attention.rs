//! Attention, forward and backward.

use crate::oracle;
use crate::support::{Bench, Setting, assert_close, cases, finite_differences, inner, settings};
use device::{Attention, AttentionBackward, AttentionShape, Buffer, DType};
use proptest::prelude::*;

fn shapes() -> impl Strategy<Value = AttentionShape> {
    let tokens = prop_oneof![1usize..20, 60usize..70, 120usize..140];
    (1usize..3, tokens, 1usize..4, 1usize..3, 1usize..20).prop_map(
        |(batch, tokens, group, kv_heads, head_dim)| AttentionShape {
            batch,
            tokens,
            heads: group * kv_heads,
            kv_heads,
            head_dim,
        },
    )
}

fn check_forward(setting: Setting, shape: AttentionShape) {
    let mut bench = setting.bench();
    let qkv = bench.tensor(setting.dtype, shape.rows() * shape.packed_width(), 2.0);
    let mut out = bench.tensor(setting.dtype, shape.rows() * shape.width(), 1.0);
    let mut log_sum = bench.tensor(DType::F32, shape.rows() * shape.heads, 1.0);
    let kernels = bench.device.kernels();
    kernels
        .attention(Attention {
            out: out.buffer.view_mut(),
            log_sum: log_sum.buffer.view_mut(),
            qkv: qkv.buffer.view(),
            shape,
        })
        .unwrap();
    let (want, log_sum_want) = oracle::attention(&qkv.values, shape);
    assert_close(&out.buffer, &want, 32.0);
    assert_close(&log_sum.buffer, &log_sum_want, 32.0);
}

/// The gradient by the chain rule, one score at a time.
fn gradient(qkv: &[f64], dout: &[f64], shape: AttentionShape) -> Vec<f64> {
    let AttentionShape { batch, tokens, heads, kv_heads, head_dim } = shape;
    let scale = 1.0 / (head_dim as f64).sqrt();
    let (out, log_sums) = oracle::attention(qkv, shape);
    let mut dqkv = vec![0.0; qkv.len()];
    for (sequence, head) in (0..batch).flat_map(|sequence| (0..heads).map(move |head| (sequence, head))) {
        let kv_head = head / (heads / kv_heads);
        let at =
            |token: usize, head: usize| (sequence * tokens + token) * shape.packed_width() + head * head_dim;
        for query in 0..tokens {
            let q = at(query, head);
            let o = (sequence * tokens + query) * shape.width() + head * head_dim;
            let (out, dout) = (&out[o..o + head_dim], &dout[o..o + head_dim]);
            for key in 0..=query {
                let (k, v) = (at(key, heads + kv_head), at(key, heads + kv_heads + kv_head));
                let score = scale * inner(&qkv[q..q + head_dim], &qkv[k..k + head_dim]);
                let probability = (score - log_sums[(sequence * heads + head) * tokens + query]).exp();
                let dscore = probability * (inner(dout, &qkv[v..v + head_dim]) - inner(dout, out)) * scale;
                for i in 0..head_dim {
                    dqkv[v + i] += probability * dout[i];
                    dqkv[q + i] += dscore * qkv[k + i];
                    dqkv[k + i] += dscore * qkv[q + i];
                }
            }
        }
    }
    dqkv
}

/// The kernels' gradient, from f32 `out` and `log_sum` of the kernels themselves.
fn run_backward(
    bench: &mut Bench,
    dtype: DType,
    qkv: &Buffer,
    dout: &Buffer,
    shape: AttentionShape,
) -> Buffer {
    let mut out = bench.tensor(DType::F32, shape.rows() * shape.width(), 1.0).buffer;
    let mut log_sum = bench.tensor(DType::F32, shape.rows() * shape.heads, 1.0).buffer;
    let mut dqkv = bench.tensor(dtype, qkv.len(), 1.0).buffer;
    let kernels = bench.device.kernels();
    kernels
        .attention(Attention { out: out.view_mut(), log_sum: log_sum.view_mut(), qkv: qkv.view(), shape })
        .unwrap();
    kernels
        .attention_backward(AttentionBackward {
            dqkv: dqkv.view_mut(),
            dout: dout.view(),
            qkv: qkv.view(),
            out: out.view(),
            log_sum: log_sum.view(),
            shape,
        })
        .unwrap();
    dqkv
}

fn check_backward(setting: Setting, shape: AttentionShape) {
    let mut bench = setting.bench();
    let qkv = bench.tensor(setting.dtype, shape.rows() * shape.packed_width(), 2.0);
    let dout = bench.tensor(setting.dtype, shape.rows() * shape.width(), 1.0);
    let dqkv = run_backward(&mut bench, setting.dtype, &qkv.buffer, &dout.buffer, shape);
    assert_close(&dqkv, &gradient(&qkv.values, &dout.values, shape), 128.0);
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn forward_matches_the_reference(setting in settings(), shape in shapes()) {
        check_forward(setting, shape);
    }

    #[test]
    fn backward_matches_the_reference(setting in settings(), shape in shapes()) {
        check_backward(setting, shape);
    }
}

#[test]
fn gradient_is_the_slope() {
    let shape = AttentionShape { batch: 2, tokens: 5, heads: 4, kv_heads: 2, head_dim: 3 };
    let mut bench = Bench::seeded(6);
    let qkv = bench.tensor(DType::F32, shape.rows() * shape.packed_width(), 2.0);
    let dout = bench.tensor(DType::F32, shape.rows() * shape.width(), 1.0);
    let want = finite_differences(&qkv.values, |x| inner(&dout.values, &oracle::attention(x, shape).0));
    let dqkv = run_backward(&mut bench, DType::F32, &qkv.buffer, &dout.buffer, shape);
    assert_close(&dqkv, &want, 64.0);
}

#[test]
fn backward_reads_outputs_of_sixteen_bits_as_the_same_numbers() {
    for (tokens, head_dim) in [(70, 16), (9, 136)] {
        let shape = AttentionShape { batch: 1, tokens, heads: 2, kv_heads: 1, head_dim };
        let mut bench = Bench::seeded(9);
        let [qkv, dout] = [shape.packed_width(), shape.width()]
            .map(|width| bench.tensor(DType::Bf16, shape.rows() * width, 1.0).buffer);
        let out = bench.tensor(DType::Bf16, shape.rows() * shape.width(), 1.0);
        let wide = bench.store(DType::F32, &out.values);
        let log_sum = bench.tensor(DType::F32, shape.rows() * shape.heads, 1.0).buffer;
        let [narrow, wide] = [out.buffer, wide.buffer].map(|out| {
            let mut dqkv = bench.tensor(DType::F32, qkv.len(), 1.0).buffer;
            let (dqkv_mut, dout, qkv) = (dqkv.view_mut(), dout.view(), qkv.view());
            let (out, log_sum) = (out.view(), log_sum.view());
            let arguments = AttentionBackward { dqkv: dqkv_mut, dout, qkv, out, log_sum, shape };
            bench.device.kernels().attention_backward(arguments).unwrap();
            dqkv.as_slice::<f32>().to_vec()
        });
        assert!(narrow.iter().all(|x| x.is_finite()));
        assert_eq!(narrow, wide);
    }
}

#[test]
fn threads_do_not_change_the_bits() {
    let shape = AttentionShape { batch: 3, tokens: 150, heads: 4, kv_heads: 2, head_dim: 16 };
    let run = |threads| {
        let mut bench = Setting { seed: 8, dtype: DType::F32, threads }.bench();
        let qkv = bench.tensor(DType::F32, shape.rows() * shape.packed_width(), 2.0).buffer;
        let dout = bench.tensor(DType::F32, shape.rows() * shape.width(), 1.0).buffer;
        run_backward(&mut bench, DType::F32, &qkv, &dout, shape).as_slice::<f32>().to_vec()
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn tokens_do_not_see_the_future() {
    let shape = AttentionShape { batch: 1, tokens: 100, heads: 1, kv_heads: 1, head_dim: 8 };
    let run = |change: bool| {
        let mut bench = Bench::seeded(9);
        let mut qkv = bench.tensor(DType::F32, shape.rows() * shape.packed_width(), 2.0).buffer;
        if change {
            qkv.as_mut_slice::<f32>()[90 * shape.packed_width()..].fill(1e6);
        }
        let mut out = bench.tensor(DType::F32, shape.rows() * shape.width(), 1.0).buffer;
        let mut log_sum = bench.tensor(DType::F32, shape.tokens, 1.0).buffer;
        bench
            .device
            .kernels()
            .attention(Attention { out: out.view_mut(), log_sum: log_sum.view_mut(), qkv: qkv.view(), shape })
            .unwrap();
        out.as_slice::<f32>()[..90 * shape.width()].to_vec()
    };
    assert_eq!(run(false), run(true));
}
