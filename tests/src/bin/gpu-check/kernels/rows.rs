//! Checks kernels over rows: normalisation, rotation, the gated activation, look-up, cross-entropy.

use super::Closeness::{Bits, Rounding};
use super::{Operation, Output, logarithms, output, outputs, shapes, tensor};
use device::{
    AttentionShape, Class, CrossEntropy, DType, Device, Embedding, EmbeddingBackward, GroupedRows, Result,
    RmsNorm, RmsNormBackward, Rope, RopeScaling, RowShape, Swiglu, SwigluBackward, Write,
};

pub(super) fn all() -> Vec<Operation> {
    let any = |seed| [vec![[19, 100], [1, 1]], shapes(seed, 5, [60, 700])].concat();
    // Rows whose shared memory is exactly a GPU's default limit, before a block's own is added.
    let wide = |seed| [any(seed), vec![[3, 12_288], [2, 12_260]]].concat();
    let rotations = [vec![[2, 13, 4, 2, 20], [1, 1, 1, 1, 2]], rope_shapes()].concat();
    vec![
        Operation::new("rms_norm", Rounding, wide(11), rms_norm),
        Operation::new("rms_norm_backward", Rounding, wide(12), rms_norm_backward),
        Operation::new("rms_norm_backward of heads, in place", Rounding, head_shapes(), backward_of_heads),
        Operation::new("rope", Bits, rotations.clone(), |device, dtype, shape| {
            rope(device, dtype, shape, false)
        }),
        Operation::new("rope, inverse", Bits, rotations, |device, dtype, shape| {
            rope(device, dtype, shape, true)
        }),
        Operation::new("swiglu and its backward", Bits, any(13), swiglu),
        Operation::new(
            "embedding and its backward",
            Bits,
            [vec![[19, 100, 11]], shapes(14, 5, [90, 200, 300])].concat(),
            embedding,
        ),
        Operation::new("cross_entropy", Rounding, [any(15), vec![[5, 32_003]]].concat(), cross_entropy),
    ]
}

fn rows([rows, width]: [usize; 2]) -> RowShape {
    RowShape { rows, width }
}

fn rms_norm(device: &Device, dtype: DType, shape: [usize; 2]) -> Result<Vec<Output>> {
    let shape = rows(shape);
    let RowShape { rows, width } = shape;
    let (x, weight) = (tensor(device, dtype, 6, rows * width)?, tensor(device, dtype, 7, width)?);
    let mut out = device.allocate(Class::Workspace, dtype, rows * width)?;
    let mut inverse = device.allocate(Class::Workspace, DType::F32, rows)?;
    device.kernels().rms_norm(RmsNorm {
        out: out.view_mut(),
        inverse_rms: inverse.view_mut(),
        x: x.view(),
        weight: weight.view(),
        shape: shape.into(),
        eps: 1e-5,
    })?;
    outputs(device, [("out", &out), ("inverse_rms", &inverse)])
}

fn rms_norm_backward(device: &Device, dtype: DType, shape: [usize; 2]) -> Result<Vec<Output>> {
    let shape = rows(shape);
    let RowShape { rows, width } = shape;
    let (x, weight) = (tensor(device, dtype, 8, rows * width)?, tensor(device, dtype, 9, width)?);
    let (dout, inverse) = (tensor(device, dtype, 10, rows * width)?, tensor(device, DType::F32, 11, rows)?);
    let (mut dx, mut dweight) =
        (tensor(device, dtype, 12, rows * width)?, tensor(device, DType::F32, 13, width)?);
    let (dout, x) = (dout.view(), x.view());
    device.kernels().rms_norm_backward(RmsNormBackward {
        dx: dx.view_mut(),
        dweight: dweight.view_mut(),
        write: Write::Accumulate,
        dout: Some(dout),
        x,
        weight: weight.view(),
        inverse_rms: inverse.view(),
        shape: shape.into(),
    })?;
    outputs(device, [("dx", &dx), ("dweight", &dweight)])
}

/// Returns tokens, heads, head width, and the number of other elements in a token's row.
fn head_shapes() -> Vec<[usize; 4]> {
    [vec![[37, 4, 64, 128], [1, 1, 2, 0]], shapes(50, 4, [40, 6, 140, 200])].concat()
}

/// Checks Qwen3's case: heads are parts of packed projections, the gradient is in place, and the
/// weight's gradient has the type of the others.
fn backward_of_heads(
    device: &Device,
    dtype: DType,
    [tokens, heads, width, rest]: [usize; 4],
) -> Result<Vec<Output>> {
    let (rows, stride) = (tokens * heads, heads * width + rest);
    let shape = GroupedRows { rows, width, group: heads, stride };
    let all = (tokens - 1) * stride + heads * width;
    let (x, weight) = (tensor(device, dtype, 51, all)?, tensor(device, dtype, 52, width)?);
    let inverse = tensor(device, DType::F32, 53, rows)?;
    let (mut dx, mut dweight) = (tensor(device, dtype, 54, all)?, tensor(device, dtype, 55, width)?);
    device.kernels().rms_norm_backward(RmsNormBackward {
        dx: dx.view_mut(),
        dweight: dweight.view_mut(),
        write: Write::Replace,
        dout: None,
        x: x.view(),
        weight: weight.view(),
        inverse_rms: inverse.view(),
        shape,
    })?;
    outputs(device, [("dx", &dx), ("dweight", &dweight)])
}

/// Returns batch, tokens, heads, key/value heads and the head width, which is even.
fn rope_shapes() -> Vec<[usize; 5]> {
    let even = |[batch, tokens, group, kv_heads, half]: [usize; 5]| {
        [batch, tokens, group * kv_heads, kv_heads, 2 * half]
    };
    shapes(16, 4, [2, 40, 3, 3, 70]).into_iter().map(even).collect()
}

fn rope(
    device: &Device,
    dtype: DType,
    [batch, tokens, heads, kv_heads, head_dim]: [usize; 5],
    inverse: bool,
) -> Result<Vec<Output>> {
    let attention = AttentionShape { batch, tokens, heads, kv_heads, head_dim };
    let mut qkv = tensor(device, dtype, 14, attention.rows() * attention.packed_width())?;
    let rope = Rope { attention, theta: 10_000.0, scaling: RopeScaling::None, first_position: 3, inverse };
    device.kernels().rope(qkv.view_mut(), rope)?;
    outputs(device, [("qkv", &qkv)])
}

fn swiglu(device: &Device, dtype: DType, shape: [usize; 2]) -> Result<Vec<Output>> {
    let (shape, len) = (rows(shape), shape[0] * shape[1]);
    let (gate_up, dout) = (tensor(device, dtype, 17, 2 * len)?, tensor(device, dtype, 18, len)?);
    let mut out = device.allocate(Class::Workspace, dtype, len)?;
    let mut dgate_up = device.allocate(Class::Workspace, dtype, 2 * len)?;
    device.kernels().swiglu(Swiglu { out: out.view_mut(), gate_up: gate_up.view(), shape })?;
    device.kernels().swiglu_backward(SwigluBackward {
        dgate_up: dgate_up.view_mut(),
        dout: dout.view(),
        gate_up: gate_up.view(),
        shape,
    })?;
    outputs(device, [("out", &out), ("dgate_up", &dgate_up)])
}

fn embedding(device: &Device, dtype: DType, [rows, width, vocabulary]: [usize; 3]) -> Result<Vec<Output>> {
    let shape = RowShape { rows, width };
    let ids: Vec<u32> = (0..rows).map(|i| (i * i % vocabulary) as u32).collect();
    let ids = device.upload(Class::Workspace, &ids)?;
    let (table, dout) =
        (tensor(device, dtype, 19, vocabulary * width)?, tensor(device, dtype, 20, rows * width)?);
    let mut out = device.allocate(Class::Workspace, dtype, rows * width)?;
    let mut dtable = device.allocate(Class::Workspace, DType::F32, vocabulary * width)?;
    let mut added = tensor(device, dtype, 22, vocabulary * width)?;
    device.kernels().embedding(Embedding {
        out: out.view_mut(),
        table: table.view(),
        ids: ids.view(),
        shape,
        vocabulary,
    })?;
    device.kernels().embedding_backward(EmbeddingBackward {
        dtable: dtable.view_mut(),
        write: Write::Replace,
        dout: dout.view(),
        ids: ids.view(),
        shape,
        vocabulary,
    })?;
    device.kernels().embedding_backward(EmbeddingBackward {
        dtable: added.view_mut(),
        write: Write::Accumulate,
        dout: dout.view(),
        ids: ids.view(),
        shape,
        vocabulary,
    })?;
    outputs(device, [("out", &out), ("dtable", &dtable), ("added", &added)])
}

fn cross_entropy(device: &Device, dtype: DType, shape: [usize; 2]) -> Result<Vec<Output>> {
    let shape = rows(shape);
    let RowShape { rows, width } = shape;
    // Every fourth row has no target.
    let target = |i: usize| if i % 4 == 3 { width } else { i * 7 % width };
    let targets: Vec<u32> = (0..rows).map(|i| target(i) as u32).collect();
    let targets = device.upload(Class::Workspace, &targets)?;
    let mut logits = tensor(device, dtype, 21, rows * width)?;
    let mut losses = device.allocate(Class::Workspace, DType::F32, rows)?;
    device.kernels().cross_entropy(CrossEntropy {
        losses: losses.view_mut(),
        logits: logits.view_mut(),
        targets: targets.view(),
        gradient_scale: 0.5,
        shape,
    })?;
    Ok(vec![logarithms(device, "losses", &losses)?, output(device, "dlogits", &logits)?])
}
