//! The reference: the formulas, in f64, as plainly as possible.

use device::{AttentionShape, Rope, RopeScaling, RowShape};

/// `[rows, columns]`, row-major.
pub(crate) fn matmul(
    a: impl Fn(usize, usize) -> f64,
    b: impl Fn(usize, usize) -> f64,
    size: (usize, usize, usize),
) -> Vec<f64> {
    let (rows, columns, depth) = size;
    let element = |i: usize| (0..depth).map(|k| a(i / columns, k) * b(k, i % columns)).sum();
    (0..rows * columns).map(element).collect()
}

/// The normalised rows and 1/rms of each.
pub(crate) fn rms_norm(x: &[f64], weight: &[f64], shape: RowShape, eps: f64) -> (Vec<f64>, Vec<f64>) {
    let inverse: Vec<_> = x
        .chunks(shape.width)
        .map(|x| 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / shape.width as f64 + eps).sqrt())
        .collect();
    let out =
        x.iter().enumerate().map(|(i, x)| x * inverse[i / shape.width] * weight[i % shape.width]).collect();
    (out, inverse)
}

pub(crate) fn swiglu(gate_up: &[f64], shape: RowShape) -> Vec<f64> {
    let silu = |x: f64| x / (1.0 + (-x).exp());
    gate_up
        .chunks(2 * shape.width)
        .flat_map(|row| (0..shape.width).map(|i| silu(row[i]) * row[shape.width + i]))
        .collect()
}

/// Losses, and the gradient of their sum. Both are 0 where the target is `width`.
pub(crate) fn cross_entropy(logits: &[f64], targets: &[usize], width: usize) -> (Vec<f64>, Vec<f64>) {
    let mut gradient = Vec::new();
    let loss = |(row, &target): (&[f64], &usize)| {
        if target == width {
            gradient.extend(vec![0.0; width]);
            return 0.0;
        }
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        gradient.extend((0..width).map(|i| row[i].exp() / sum - if i == target { 1.0 } else { 0.0 }));
        sum.ln() - row[target]
    };
    let losses = logits.chunks(width).zip(targets).map(loss).collect();
    (losses, gradient)
}

/// The frequency of a wave after scaling, by the wave's length.
fn scaled(frequency: f64, scaling: RopeScaling) -> f64 {
    let length = std::f64::consts::TAU / frequency;
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear(factor) => frequency / f64::from(factor),
        RopeScaling::Llama3 { factor, low, high, positions } => {
            let (factor, low, high) = (f64::from(factor), f64::from(low), f64::from(high));
            if length < positions as f64 / high {
                return frequency;
            }
            if length > positions as f64 / low {
                return frequency / factor;
            }
            let smooth = (positions as f64 / length - low) / (high - low);
            (1.0 - smooth) * frequency / factor + smooth * frequency
        }
    }
}

pub(crate) fn rope(qkv: &[f64], rope: Rope) -> Vec<f64> {
    let shape = rope.attention;
    let (half, width) = (shape.head_dim / 2, shape.packed_width());
    let mut out = qkv.to_vec();
    for row in 0..shape.rows() {
        let position = (rope.first_position + row % shape.tokens) as f64;
        for head in 0..shape.heads + shape.kv_heads {
            for pair in 0..half {
                let frequency = f64::from(rope.theta).powf(-2.0 * pair as f64 / shape.head_dim as f64);
                let angle = position * scaled(frequency, rope.scaling);
                let angle = if rope.inverse { -angle } else { angle };
                let first = row * width + head * shape.head_dim + pair;
                let (x, y) = (qkv[first], qkv[first + half]);
                out[first] = x * angle.cos() - y * angle.sin();
                out[first + half] = y * angle.cos() + x * angle.sin();
            }
        }
    }
    out
}

/// The output, and the logarithms of the softmaxes' denominators.
pub(crate) fn attention(qkv: &[f64], shape: AttentionShape) -> (Vec<f64>, Vec<f64>) {
    let AttentionShape { batch, tokens, heads, kv_heads, head_dim } = shape;
    let packed = shape.packed_width();
    let mut out = vec![0.0; shape.rows() * shape.width()];
    let mut log_sums = Vec::new();
    for (sequence, head) in (0..batch).flat_map(|sequence| (0..heads).map(move |head| (sequence, head))) {
        let kv_head = head / (heads / kv_heads);
        let part = |token: usize, head: usize| {
            &qkv[(sequence * tokens + token) * packed + head * head_dim..][..head_dim]
        };
        for query in 0..tokens {
            let score = |key| {
                let products = part(query, head).iter().zip(part(key, heads + kv_head)).map(|(q, k)| q * k);
                products.sum::<f64>() / (head_dim as f64).sqrt()
            };
            let log_sum = (0..=query).map(|key| score(key).exp()).sum::<f64>().ln();
            log_sums.push(log_sum);
            for key in 0..=query {
                let probability = (score(key) - log_sum).exp();
                for (i, value) in part(key, heads + kv_heads + kv_head).iter().enumerate() {
                    out[(sequence * tokens + query) * shape.width() + head * head_dim + i] +=
                        probability * value;
                }
            }
        }
    }
    (out, log_sums)
}
