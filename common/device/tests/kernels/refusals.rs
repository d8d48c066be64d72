//! Wrong shapes and types are errors that name the operand, and nothing is computed.

use crate::support::device;
use device::{
    Attention, AttentionBackward, AttentionShape, Buffer, Class, CrossEntropy, DType, Device, DeviceError,
    Embedding, EmbeddingBackward, Matrix, RmsNorm, RmsNormBackward, Rope, RopeScaling, RowShape, Swiglu,
    SwigluBackward, View, Write,
};

fn floats(device: &Device, len: usize) -> Buffer {
    device.zeros(Class::Workspace, DType::F32, len).unwrap()
}

fn shape_of(result: device::Result<()>) -> (&'static str, &'static str, usize, usize) {
    match result {
        Err(DeviceError::Shape { kernel, operand, expected, got }) => (kernel, operand, expected, got),
        other => panic!("expected a shape error, got {other:?}"),
    }
}

#[test]
fn matmul_checks_every_side() {
    let device = device(1);
    let (a, b, mut out) = (floats(&device, 6), floats(&device, 6), floats(&device, 4));
    let mut multiply = |a: Matrix<View<'_>>, b: Matrix<View<'_>>, rows, columns| {
        device.kernels().matmul(Matrix::new(out.view_mut(), rows, columns), a, b, Write::Replace)
    };
    let (a, b) = (Matrix::new(a.view(), 2, 3), Matrix::new(b.view(), 3, 2));
    assert_eq!(multiply(a.clone(), b.clone(), 2, 2), Ok(()));
    assert_eq!(shape_of(multiply(a.clone(), b.clone(), 2, 3)), ("matmul", "out", 6, 4));
    assert_eq!(shape_of(multiply(a.clone(), a.clone(), 2, 2)), ("matmul", "columns of b", 2, 3));
    assert_eq!(shape_of(multiply(b.clone(), b.clone(), 2, 2)), ("matmul", "rows of a", 2, 3));
    assert_eq!(shape_of(multiply(a.clone(), a.clone().t().t(), 2, 2)), ("matmul", "columns of b", 2, 3));
    assert_eq!(shape_of(multiply(a.clone(), b.clone().with_stride(3), 2, 2)), ("matmul", "b", 8, 6));
    assert_eq!(shape_of(multiply(a.with_stride(2), b, 2, 2)), ("matmul", "a", 3, 2));
}

#[test]
fn row_kernels_check_lengths() {
    let device = device(1);
    let (x, mut out, mut one) = (floats(&device, 12), floats(&device, 12), floats(&device, 1));
    let shape = RowShape { rows: 3, width: 4 };
    let kernels = device.kernels();
    assert_eq!(
        shape_of(kernels.swiglu(Swiglu { out: out.view_mut(), gate_up: x.view(), shape })),
        ("swiglu", "gate_up", 24, 12)
    );
    let result = kernels.rms_norm(RmsNorm {
        out: out.view_mut(),
        inverse_rms: one.view_mut(),
        x: x.view(),
        weight: x.slice(0..4),
        shape: shape.into(),
        eps: 1e-5,
    });
    assert_eq!(shape_of(result), ("rms_norm", "inverse_rms", 3, 1));
    assert_eq!(shape_of(kernels.add(out.view_mut(), x.slice(1..12))), ("add", "x", 12, 11));
    assert_eq!(shape_of(kernels.copy(out.view_mut(), x.slice(1..12))), ("copy", "x", 12, 11));
}

#[test]
fn attention_checks_heads() {
    let device = device(1);
    let mut qkv = floats(&device, 70);
    let shape = AttentionShape { batch: 1, tokens: 2, heads: 3, kv_heads: 2, head_dim: 5 };
    let (mut out, mut log_sum) = (floats(&device, 30), floats(&device, 6));
    let kernels = device.kernels();
    let result = kernels.attention(Attention {
        out: out.view_mut(),
        log_sum: log_sum.view_mut(),
        qkv: qkv.view(),
        shape,
    });
    assert_eq!(shape_of(result), ("attention", "heads", 4, 3));
    let none = AttentionShape { kv_heads: 0, ..shape };
    let result = kernels.attention(Attention {
        out: out.view_mut(),
        log_sum: log_sum.view_mut(),
        qkv: qkv.view(),
        shape: none,
    });
    assert_eq!(shape_of(result), ("attention", "kv_heads", 1, 0));
    let rope =
        Rope { attention: shape, theta: 1e4, scaling: RopeScaling::None, first_position: 0, inverse: false };
    assert_eq!(shape_of(kernels.rope(qkv.view_mut(), rope)), ("rope", "head_dim", 6, 5));
}

#[test]
fn types_and_indices_are_checked() {
    let device = device(1);
    let (table, mut out) = (floats(&device, 8), floats(&device, 4));
    let ids = device.upload(Class::Workspace, &[0u32, 4]).unwrap();
    let shape = RowShape { rows: 2, width: 2 };
    let kernels = device.kernels();
    let wrong_type = |operand, got| DeviceError::Type { kernel: "embedding", operand, got };
    let result = kernels.embedding(Embedding {
        out: out.view_mut(),
        table: table.view(),
        ids: table.slice(0..2),
        shape,
        vocabulary: 4,
    });
    assert_eq!(result, Err(wrong_type("ids", DType::F32)));
    let result = kernels.embedding(Embedding {
        out: out.view_mut(),
        table: table.view(),
        ids: ids.view(),
        shape,
        vocabulary: 4,
    });
    assert_eq!(result, Err(DeviceError::Index { kernel: "embedding", operand: "ids", got: 4, bound: 4 }));
    let result = kernels.embedding(Embedding {
        out: out.view_mut(),
        table: table.slice(0..7),
        ids: ids.view(),
        shape,
        vocabulary: 4,
    });
    assert_eq!(shape_of(result), ("embedding", "table", 8, 7));
    let ids = device.upload(Class::Workspace, &[0u32, 1, 2, 3]).unwrap();
    assert_eq!(
        kernels.add(out.view_mut(), ids.view()),
        Err(DeviceError::Type { kernel: "add", operand: "x", got: DType::U32 })
    );
}

#[test]
fn nothing_is_something_to_compute_with() {
    let device = device(2);
    let (x, mut out, mut more) = (floats(&device, 0), floats(&device, 0), floats(&device, 0));
    let ids = device.zeros(Class::Workspace, DType::U32, 0).unwrap();
    let kernels = device.kernels();
    let shape = RowShape { rows: 0, width: 0 };
    let attention = AttentionShape { batch: 0, tokens: 0, heads: 1, kv_heads: 1, head_dim: 0 };
    kernels
        .rms_norm(RmsNorm {
            out: out.view_mut(),
            inverse_rms: more.view_mut(),
            x: x.view(),
            weight: x.view(),
            shape: shape.into(),
            eps: 1e-5,
        })
        .unwrap();
    kernels.swiglu(Swiglu { out: out.view_mut(), gate_up: x.view(), shape }).unwrap();
    kernels
        .swiglu_backward(SwigluBackward {
            dgate_up: out.view_mut(),
            dout: x.view(),
            gate_up: x.view(),
            shape,
        })
        .unwrap();
    kernels
        .cross_entropy(CrossEntropy {
            losses: out.view_mut(),
            logits: more.view_mut(),
            targets: ids.view(),
            gradient_scale: 1.0,
            shape,
        })
        .unwrap();
    kernels
        .embedding(Embedding { out: out.view_mut(), table: x.view(), ids: ids.view(), shape, vocabulary: 0 })
        .unwrap();
    kernels
        .embedding_backward(EmbeddingBackward {
            dtable: out.view_mut(),
            write: Write::Replace,
            dout: x.view(),
            ids: ids.view(),
            shape,
            vocabulary: 0,
        })
        .unwrap();
    kernels
        .attention(Attention {
            out: out.view_mut(),
            log_sum: more.view_mut(),
            qkv: x.view(),
            shape: attention,
        })
        .unwrap();
    kernels
        .attention_backward(AttentionBackward {
            dqkv: out.view_mut(),
            dout: x.view(),
            qkv: x.view(),
            out: x.view(),
            log_sum: x.view(),
            shape: attention,
        })
        .unwrap();
    let (dx, dweight) = (out.view_mut(), more.view_mut());
    kernels
        .rms_norm_backward(RmsNormBackward {
            dx,
            dweight,
            write: Write::Replace,
            dout: Some(x.view()),
            x: x.view(),
            weight: x.view(),
            inverse_rms: x.view(),
            shape: shape.into(),
        })
        .unwrap();
    let product = Matrix::new(out.view_mut(), 0, 0);
    kernels
        .matmul(product, Matrix::new(x.view(), 0, 3), Matrix::new(x.view(), 3, 0), Write::Replace)
        .unwrap();
    assert_eq!(kernels.sum_of_squares(&[x.view()], 0), Ok(0));
}
