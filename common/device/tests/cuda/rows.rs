//! Kernels over rows: normalisation, rotation, the gated activation, look-up, cross-entropy.

use crate::memory::{Memory, Setting, assert_close, assert_same, cases, floats, roundings, settings};
use crate::shim::{Shim, shim_or_return};
use device::cuda::kernels;
use device::{
    AttentionShape, Class, CrossEntropy, DType, Embedding, EmbeddingBackward, GroupedRows, RmsNorm,
    RmsNormBackward, Rope, RopeScaling, RowShape, Swiglu, SwigluBackward, Write,
};
use proptest::prelude::*;

const EPS: f32 = 1e-5;

/// Narrow rows, rows that are whole chunks, and rows that take a block more than one round.
fn shapes() -> impl Strategy<Value = RowShape> {
    let widths = prop_oneof![3 => 1usize..70, 2 => (1usize..40).prop_map(|n| 8 * n), 1 => 4090usize..4110];
    (1usize..40, widths)
        .prop_map(|(rows, width)| RowShape { rows: if width > 4000 { 1 + rows % 3 } else { rows }, width })
}

fn writes() -> impl Strategy<Value = Write> {
    prop_oneof![Just(Write::Replace), Just(Write::Accumulate)]
}

/// Such rows side by side, or some heads of each row of packed projections.
fn grouped_rows() -> impl Strategy<Value = GroupedRows> {
    let heads = (1usize..9, 1usize..5, prop_oneof![1usize..40, Just(64)], 0usize..30);
    let heads = heads.prop_map(|(tokens, group, width, others)| GroupedRows {
        rows: tokens * group,
        width,
        group,
        stride: group * width + others,
    });
    prop_oneof![2 => shapes().prop_map(GroupedRows::from), 1 => heads]
}

/// Elements from the first of the first row to the last of the last.
fn extent(shape: GroupedRows) -> usize {
    (shape.rows / shape.group - 1) * shape.stride + shape.group * shape.width
}

fn check_rms_norm(setting: Setting, dtype: DType, shape: GroupedRows) {
    let mut bench = setting.bench();
    let (GroupedRows { rows, width, .. }, extent) = (shape, extent(shape));
    let (x, x_memory) = bench.tensor(dtype, extent, 2.0);
    let (weight, weight_memory) = bench.tensor(dtype, width, 1.5);
    let (mut out, out_memory) = bench.tensor(dtype, extent, 1.0);
    let (mut inverse, inverse_memory) = bench.tensor(DType::F32, rows, 1.0);
    let device = bench.device.clone();
    let (out_view, inverse_view) = (out.view_mut(), inverse.view_mut());
    device
        .kernels()
        .rms_norm(RmsNorm {
            out: out_view,
            inverse_rms: inverse_view,
            x: x.view(),
            weight: weight.view(),
            shape,
            eps: EPS,
        })
        .unwrap();
    let (out_operand, x, weight) = (out_memory.operand(), x_memory.operand(), weight_memory.operand());
    kernels::rms_norm(
        &Shim::new(setting.seed),
        RmsNorm { out: out_operand, inverse_rms: inverse_memory.operand(), x, weight, shape, eps: EPS },
    )
    .unwrap();
    assert_close(&inverse_memory, &inverse, roundings(8.0));
    assert_close(&out_memory, &out, roundings(8.0));
}

fn check_rms_norm_backward(
    setting: Setting,
    dtype: DType,
    dweight: DType,
    shape: GroupedRows,
    (write, in_place): (Write, bool),
) {
    let mut bench = setting.bench();
    let (GroupedRows { rows, width, .. }, extent) = (shape, extent(shape));
    let (x, x_memory) = bench.tensor(dtype, extent, 2.0);
    let (weight, weight_memory) = bench.tensor(dtype, width, 1.5);
    let (dout, dout_memory) = bench.tensor(dtype, extent, 1.0);
    let (inverse, inverse_memory) = bench.store(DType::F32, &vec![0.8; rows]);
    let (mut dx, dx_memory) = bench.tensor(dtype, extent, 1.0);
    let (mut dweight, dweight_memory) = bench.tensor(dweight, width, 1.0);
    let (dx_view, dweight_view, inverse_view) = (dx.view_mut(), dweight.view_mut(), inverse.view());
    let device = bench.device.clone();
    let inputs = (dout.view(), x.view(), weight.view());
    device
        .kernels()
        .rms_norm_backward(RmsNormBackward {
            dx: dx_view,
            dweight: dweight_view,
            write,
            dout: (!in_place).then_some(inputs.0),
            x: inputs.1,
            weight: inputs.2,
            inverse_rms: inverse_view,
            shape,
        })
        .unwrap();
    let arguments = RmsNormBackward {
        dx: dx_memory.operand(),
        dweight: dweight_memory.operand(),
        write,
        dout: (!in_place).then_some(dout_memory.operand()),
        x: x_memory.operand(),
        weight: weight_memory.operand(),
        inverse_rms: inverse_memory.operand(),
        shape,
    };
    kernels::rms_norm_backward(&Shim::new(setting.seed), arguments).unwrap();
    assert_close(&dx_memory, &dx, roundings(32.0));
    assert_close(&dweight_memory, &dweight, roundings(8.0 + rows as f64 / 2.0));
}

fn check_swiglu(setting: Setting, dtype: DType, shape: RowShape) {
    let mut bench = setting.bench();
    let elements = shape.rows * shape.width;
    let (gate_up, gate_up_memory) = bench.tensor(dtype, 2 * elements, 20.0);
    let (dout, dout_memory) = bench.tensor(dtype, elements, 1.0);
    let (mut out, out_memory) = bench.tensor(dtype, elements, 1.0);
    let (mut dgate_up, dgate_up_memory) = bench.tensor(dtype, 2 * elements, 1.0);
    let (device, shim) = (bench.device.clone(), Shim::new(setting.seed));
    device.kernels().swiglu(Swiglu { out: out.view_mut(), gate_up: gate_up.view(), shape }).unwrap();
    kernels::swiglu(&shim, Swiglu { out: out_memory.operand(), gate_up: gate_up_memory.operand(), shape })
        .unwrap();
    assert_same(&out_memory, &out);
    device
        .kernels()
        .swiglu_backward(SwigluBackward {
            dgate_up: dgate_up.view_mut(),
            dout: dout.view(),
            gate_up: gate_up.view(),
            shape,
        })
        .unwrap();
    let (dgate_up_operand, dout) = (dgate_up_memory.operand(), dout_memory.operand());
    kernels::swiglu_backward(
        &shim,
        SwigluBackward { dgate_up: dgate_up_operand, dout, gate_up: gate_up_memory.operand(), shape },
    )
    .unwrap();
    assert_same(&dgate_up_memory, &dgate_up);
}

fn check_embedding(
    setting: Setting,
    types: (DType, DType),
    shape: RowShape,
    vocabulary: usize,
    write: Write,
) {
    let mut bench = setting.bench();
    let (elements, (gradient, dtype)) = (shape.rows * shape.width, types);
    let (table, table_memory) = bench.tensor(dtype, vocabulary * shape.width, 1.0);
    let (ids, ids_memory) = bench.indices(shape.rows, vocabulary);
    let (mut out, out_memory) = bench.tensor(dtype, elements, 1.0);
    let (device, shim) = (bench.device.clone(), Shim::new(setting.seed));
    device
        .kernels()
        .embedding(Embedding { out: out.view_mut(), table: table.view(), ids: ids.view(), shape, vocabulary })
        .unwrap();
    let (table, ids_operand) = (table_memory.operand(), ids_memory.operand());
    kernels::embedding(
        &shim,
        Embedding { out: out_memory.operand(), table, ids: ids_operand, vocabulary, shape },
    )
    .unwrap();
    assert_same(&out_memory, &out);
    let (mut dtable, dtable_memory) = bench.tensor(gradient, vocabulary * shape.width, 1.0);
    device
        .kernels()
        .embedding_backward(EmbeddingBackward {
            dtable: dtable.view_mut(),
            write,
            dout: out.view(),
            ids: ids.view(),
            shape,
            vocabulary,
        })
        .unwrap();
    let (dtable_operand, dout) = (dtable_memory.operand(), out_memory.operand());
    kernels::embedding_backward(
        &shim,
        EmbeddingBackward { dtable: dtable_operand, write, dout, ids: ids_operand, vocabulary, shape },
    )
    .unwrap();
    assert_same(&dtable_memory, &dtable);
}

fn check_cross_entropy(setting: Setting, dtype: DType, shape: RowShape, scale: f32) {
    let mut bench = setting.bench();
    let (mut logits, logits_memory) = bench.tensor(dtype, shape.rows * shape.width, 8.0);
    let (mut losses, losses_memory) = bench.tensor(DType::F32, shape.rows, 1.0);
    let (targets, targets_memory) = bench.indices(shape.rows, shape.width + 1);
    let (losses_view, logits_view) = (losses.view_mut(), logits.view_mut());
    let device = bench.device.clone();
    device
        .kernels()
        .cross_entropy(CrossEntropy {
            losses: losses_view,
            logits: logits_view,
            targets: targets.view(),
            gradient_scale: scale,
            shape,
        })
        .unwrap();
    let (shim, targets) = (Shim::new(setting.seed), targets_memory.operand());
    kernels::cross_entropy(
        &shim,
        CrossEntropy {
            losses: losses_memory.operand(),
            logits: logits_memory.operand(),
            targets,
            gradient_scale: scale,
            shape,
        },
    )
    .unwrap();
    assert_close(&losses_memory, &losses, roundings(8.0));
    assert_close(&logits_memory, &logits, roundings(16.0));
}

fn scalings() -> impl Strategy<Value = RopeScaling> {
    let llama3 = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, positions: 32 };
    prop_oneof![Just(RopeScaling::None), Just(RopeScaling::Linear(4.0)), Just(llama3)]
}

fn ropes() -> impl Strategy<Value = Rope> {
    let shape = (1usize..3, 1usize..20, 1usize..4, 1usize..3, prop_oneof![1usize..20, Just(16), Just(32)]);
    let turn = (prop_oneof![Just(10_000f32), Just(500_000f32)], scalings(), 0usize..9, any::<bool>());
    (shape, turn).prop_map(
        |((batch, tokens, group, kv_heads, half), (theta, scaling, first_position, inverse))| {
            let attention =
                AttentionShape { batch, tokens, heads: group * kv_heads, kv_heads, head_dim: 2 * half };
            Rope { attention, theta, scaling, first_position, inverse }
        },
    )
}

fn check_rope(setting: Setting, dtype: DType, rope: Rope) {
    let mut bench = setting.bench();
    let shape = rope.attention;
    let (mut qkv, qkv_memory) = bench.tensor(dtype, shape.rows() * shape.packed_width(), 1.0);
    bench.device.clone().kernels().rope(qkv.view_mut(), rope).unwrap();
    let turns = kernels::rope_table(
        rope.theta,
        rope.scaling,
        shape.head_dim / 2,
        rope.first_position + shape.tokens + 3,
    );
    let (_, table) = bench.store(DType::F32, &turns);
    kernels::rope(&Shim::new(setting.seed), qkv_memory.operand(), table.pointer(), rope).unwrap();
    assert_same(&qkv_memory, &qkv);
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn rms_norm(setting in settings(), dtype in floats(), shape in grouped_rows()) {
        check_rms_norm(setting, dtype, shape);
    }

    #[test]
    fn rms_norm_backward(
        setting in settings(),
        dtype in floats(),
        dweight in floats(),
        shape in grouped_rows(),
        write in (writes(), any::<bool>()),
    ) {
        check_rms_norm_backward(setting, dtype, dweight, shape, write);
    }

    #[test]
    fn swiglu(setting in settings(), dtype in floats(), shape in shapes()) {
        check_swiglu(setting, dtype, shape);
    }

    #[test]
    fn rope(setting in settings(), dtype in floats(), rope in ropes()) {
        check_rope(setting, dtype, rope);
    }

    #[test]
    fn embedding(
        setting in settings(),
        types in (floats(), floats()),
        shape in shapes(),
        vocabulary in prop_oneof![1usize..5, 1usize..400],
        write in writes(),
    ) {
        check_embedding(setting, types, shape, vocabulary, write);
    }

    #[test]
    fn cross_entropy(
        setting in settings(),
        dtype in floats(),
        shape in prop_oneof![shapes(), Just(RowShape { rows: 2, width: 20_003 })],
        scale in prop_oneof![Just(1.0), Just(0.125), Just(1024.0)],
    ) {
        check_cross_entropy(setting, dtype, shape, scale);
    }
}

#[test]
fn many_rows_share_their_parts_of_a_gradient() {
    shim_or_return!();
    // More rows than 512 parts of 16 hold, and a last part that is shorter.
    let shape = RowShape { rows: 512 * 16 + 100, width: 9 };
    let setting = Setting { seed: 1, shift: 0 };
    check_rms_norm_backward(setting, DType::F32, DType::F32, shape.into(), (Write::Replace, false));
}

#[test]
fn warps_that_run_ahead_do_not_disturb_the_others_sums() {
    shim_or_return!();
    for seed in 0..4 {
        let (setting, shape) = (Setting { seed, shift: 0 }, RowShape { rows: 20, width: 700 });
        check_rms_norm_backward(setting, DType::F32, DType::F32, shape.into(), (Write::Accumulate, false));
    }
}

#[test]
fn an_id_that_is_everywhere_is_added_up_once() {
    shim_or_return!();
    let shape = RowShape { rows: 1000, width: 24 };
    let setting = Setting { seed: 2, shift: 0 };
    check_embedding(setting, (DType::Bf16, DType::F32), shape, 2, Write::Accumulate);
}

#[test]
fn unknown_ids_give_nan_and_touch_nothing() {
    shim_or_return!();
    let bench = Setting { seed: 3, shift: 0 }.bench();
    let shape = RowShape { rows: 2, width: 4 };
    let table = bench.store(DType::F32, &[1.0; 12]).1;
    let ids = Memory::copy_of(&bench.device.upload(Class::Workspace, &[2u32, 3]).unwrap(), 0);
    let out = Memory::poisoned(DType::F32, 8, 0);
    let shim = Shim::new(0);
    kernels::embedding(
        &shim,
        Embedding { out: out.operand(), table: table.operand(), ids: ids.operand(), vocabulary: 3, shape },
    )
    .unwrap();
    assert_eq!(out.values()[..4], [1.0; 4]);
    assert!(out.values()[4..].iter().all(|x| x.is_nan()));
    let dout = bench.store(DType::F32, &[1.0; 8]).1;
    let table_operand = table.operand();
    kernels::embedding_backward(
        &shim,
        EmbeddingBackward {
            dtable: table_operand,
            write: Write::Accumulate,
            dout: dout.operand(),
            ids: ids.operand(),
            vocabulary: 3,
            shape,
        },
    )
    .unwrap();
    assert_eq!(table.values(), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
    let losses = Memory::poisoned(DType::F32, 2, 0);
    let targets = Memory::copy_of(&bench.device.upload(Class::Workspace, &[2u32, 4]).unwrap(), 0);
    let (logits, shape) = (bench.store(DType::F32, &[0.0; 6]).1, RowShape { rows: 2, width: 3 });
    kernels::cross_entropy(
        &shim,
        CrossEntropy {
            losses: losses.operand(),
            logits: logits.operand(),
            targets: targets.operand(),
            gradient_scale: 1.0,
            shape,
        },
    )
    .unwrap();
    assert!((losses.values()[0] - 3f64.ln()).abs() < 1e-6 && losses.values()[1].is_nan());
}

#[test]
fn hidden_logits_count_for_nothing() {
    shim_or_return!();
    let bench = Setting { seed: 6, shift: 0 }.bench();
    // Whole chunks, and all that some threads see, are −∞.
    let logits: Vec<f32> =
        (0..9000).map(|i| if i < 8500 { f32::NEG_INFINITY } else { (i % 7) as f32 }).collect();
    let (mut want, logits) = bench.store(DType::F32, &logits);
    let (mut losses_want, losses) = bench.store(DType::F32, &[0.0]);
    let targets = bench.device.upload(Class::Workspace, &[8600u32]).unwrap();
    let shape = RowShape { rows: 1, width: 9000 };
    let (losses_view, logits_view) = (losses_want.view_mut(), want.view_mut());
    bench
        .device
        .kernels()
        .cross_entropy(CrossEntropy {
            losses: losses_view,
            logits: logits_view,
            targets: targets.view(),
            gradient_scale: 1.0,
            shape,
        })
        .unwrap();
    let targets = Memory::copy_of(&targets, 0);
    let shim = Shim::new(0);
    kernels::cross_entropy(
        &shim,
        CrossEntropy {
            losses: losses.operand(),
            logits: logits.operand(),
            targets: targets.operand(),
            gradient_scale: 1.0,
            shape,
        },
    )
    .unwrap();
    assert_close(&losses, &losses_want, roundings(8.0));
    assert_close(&logits, &want, roundings(16.0));
}

#[test]
fn overflown_logits_give_a_loss_that_is_no_number() {
    shim_or_return!();
    let bench = Setting { seed: 4, shift: 0 }.bench();
    for bad in [f32::INFINITY, f32::NAN] {
        let mut logits = vec![0.5; 3000];
        logits[1234] = bad;
        let logits = bench.store(DType::F16, &logits).1;
        let targets = Memory::copy_of(&bench.device.upload(Class::Workspace, &[7u32]).unwrap(), 0);
        let losses = Memory::poisoned(DType::F32, 1, 0);
        let shape = RowShape { rows: 1, width: 3000 };
        let shim = Shim::new(0);
        kernels::cross_entropy(
            &shim,
            CrossEntropy {
                losses: losses.operand(),
                logits: logits.operand(),
                targets: targets.operand(),
                gradient_scale: 1.0,
                shape,
            },
        )
        .unwrap();
        assert!(losses.values()[0].is_nan());
    }
}
