//! Attention: tiled in f32 arithmetic, tiled on tensor cores, by matrix products, and the softmax
//! between these.

use crate::memory::{Bench, Memory, Setting, assert_close, cases, floats, roundings, settings};
use crate::shim::{Shim, shim_or_return};
use device::cuda::kernels::{self, Launch, Launcher, MatrixOperand, Multiplier, Operand, ScoreTile};
use device::{Attention, AttentionBackward, AttentionShape, Buffer, DType, Matrix, Result, View, Write};
use proptest::prelude::*;

fn shapes(
    heads: impl Strategy<Value = usize>,
    tokens: impl Strategy<Value = usize>,
) -> impl Strategy<Value = AttentionShape> {
    (1usize..3, tokens, 1usize..4, 1usize..3, heads).prop_map(|(batch, tokens, group, kv_heads, head_dim)| {
        AttentionShape { batch, tokens, heads: group * kv_heads, kv_heads, head_dim }
    })
}

/// A way to compute attention: forward and backward.
#[derive(Clone, Copy)]
struct Way {
    forward: fn(&Shim, Attention<Operand, Operand>) -> Result<()>,
    backward: fn(&Shim, AttentionBackward<Operand, Operand>) -> Result<()>,
}

/// The fastest kernels for the operands.
const CHOSEN: Way = Way { forward: kernels::attention, backward: kernels::attention_backward };

const BY_PRODUCTS: Way =
    Way { forward: kernels::attention_by_products, backward: kernels::attention_backward_by_products };

/// One block of queries takes all heads in turn, where [`CHOSEN`] has so few blocks that each takes
/// one.
const HEADS_IN_TURN: Way = Way {
    forward: kernels::attention,
    backward: |shim, arguments| kernels::attention_backward(&HeadsInTurn(shim), arguments),
};

struct HeadsInTurn<'a>(&'a Shim);

impl Launcher for HeadsInTurn<'_> {
    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        let in_turn = launch.kernel.name.starts_with("attention_wgmma_queries");
        let [heads, batch, tiles] = launch.grid;
        self.0.launch(Launch { grid: [if in_turn { 1 } else { heads }, batch, tiles], ..launch })
    }

    fn scratch(&self, bytes: usize) -> Result<u64> {
        self.0.scratch(bytes)
    }

    fn architecture(&self) -> u32 {
        self.0.architecture()
    }
}

impl Multiplier for HeadsInTurn<'_> {
    fn multiply(&self, out: MatrixOperand, a: MatrixOperand, b: MatrixOperand, write: Write) -> Result<()> {
        self.0.multiply(out, a, b, write)
    }
}

/// The results of both sides.
struct Results {
    want: [Buffer; 3],
    got: [Memory; 3],
}

/// Output, log_sum and the gradient of the input; the backward pass of both sides starts from the
/// CPU's output.
fn run(bench: &mut Bench, shim: &Shim, way: Way, dtype: DType, shape: AttentionShape) -> Results {
    let rows = shape.rows();
    let (qkv, qkv_memory) = bench.tensor(dtype, rows * shape.packed_width(), 1.5);
    let (dout, dout_memory) = bench.tensor(dtype, rows * shape.width(), 1.0);
    let (mut out, out_memory) = bench.tensor(dtype, rows * shape.width(), 1.0);
    let (mut log_sum, log_sum_memory) = bench.tensor(DType::F32, rows * shape.heads, 1.0);
    let (mut dqkv, dqkv_memory) = bench.tensor(dtype, rows * shape.packed_width(), 1.0);
    let device = bench.device.clone();
    device
        .kernels()
        .attention(Attention { out: out.view_mut(), log_sum: log_sum.view_mut(), qkv: qkv.view(), shape })
        .unwrap();
    let forward = Attention {
        out: out_memory.operand(),
        log_sum: log_sum_memory.operand(),
        qkv: qkv_memory.operand(),
        shape,
    };
    (way.forward)(shim, forward).unwrap();
    let (dqkv_view, out_view, log_sum_view) = (dqkv.view_mut(), out.view(), log_sum.view());
    device
        .kernels()
        .attention_backward(AttentionBackward {
            dqkv: dqkv_view,
            dout: dout.view(),
            qkv: qkv.view(),
            out: out_view,
            log_sum: log_sum_view,
            shape,
        })
        .unwrap();
    let (given_out, given_log_sum) = (Memory::copy_of(&out, bench.shift), Memory::copy_of(&log_sum, 0));
    let backward = AttentionBackward {
        dqkv: dqkv_memory.operand(),
        dout: dout_memory.operand(),
        qkv: qkv_memory.operand(),
        out: given_out.operand(),
        log_sum: given_log_sum.operand(),
        shape,
    };
    (way.backward)(shim, backward).unwrap();
    Results { want: [out, log_sum, dqkv], got: [out_memory, log_sum_memory, dqkv_memory] }
}

fn check(setting: Setting, shim: &Shim, dtype: DType, shape: AttentionShape, tolerances: [f64; 2]) {
    check_way(setting, shim, CHOSEN, dtype, shape, tolerances);
}

fn check_way(
    setting: Setting,
    shim: &Shim,
    way: Way,
    dtype: DType,
    shape: AttentionShape,
    [forward, backward]: [f64; 2],
) {
    let Results { want, got } = run(&mut setting.bench(), shim, way, dtype, shape);
    assert_close(&got[0], &want[0], forward);
    assert_close(&got[1], &want[1], roundings(64.0));
    assert_close(&got[2], &want[2], backward);
}

/// Probabilities are rounded to the storage type before the next product; in the backward pass,
/// their gradients too.
fn tolerances(dtype: DType) -> [f64; 2] {
    match dtype {
        DType::Bf16 => [2f64.powi(-7), 2f64.powi(-6)],
        DType::F16 => [2f64.powi(-10), 2f64.powi(-9)],
        _ => [roundings(64.0), roundings(256.0)],
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn in_f32_arithmetic(
        setting in settings(),
        dtype in floats(),
        shape in shapes(prop_oneof![1usize..40, Just(100)], prop_oneof![1usize..20, 30usize..70]),
    ) {
        check(setting, &Shim::new(setting.seed), dtype, shape, [roundings(64.0), roundings(256.0)]);
    }

    #[test]
    fn on_tensor_cores(
        seed in any::<u64>(),
        architecture in prop_oneof![Just(80u32), Just(90)],
        dtype in prop_oneof![Just(DType::Bf16), Just(DType::F16)],
        shape in shapes(prop_oneof![Just(64usize), Just(128)], prop_oneof![1usize..20, 60usize..70, 120usize..140, 185usize..260]),
    ) {
        let shim = Shim::new(seed).with_architecture(architecture);
        check(Setting { seed, shift: 0 }, &shim, dtype, shape, tolerances(dtype));
    }

    #[test]
    fn by_products(
        setting in settings(),
        dtype in floats(),
        shape in shapes(prop_oneof![1usize..40, 129usize..140], prop_oneof![1usize..20, 30usize..40]),
    ) {
        check_way(setting, &Shim::new(setting.seed), BY_PRODUCTS, dtype, shape, tolerances(dtype));
    }
}

#[test]
fn by_products_in_several_tiles_of_queries() {
    shim_or_return!();
    let shape = AttentionShape { batch: 1, tokens: 300, heads: 2, kv_heads: 1, head_dim: 6 };
    for dtype in [DType::F32, DType::Bf16] {
        let setting = Setting { seed: 4, shift: 1 };
        check_way(setting, &Shim::new(4), BY_PRODUCTS, dtype, shape, tolerances(dtype));
    }
}

/// Products round their intermediate results to 16 bits; no other kernel for these heads does.
#[test]
fn heads_that_are_too_wide_for_tiles_are_computed_by_products() {
    shim_or_return!();
    let too_wide = |architecture, head_dim| {
        let shape = AttentionShape { batch: 1, tokens: 20, heads: 2, kv_heads: 1, head_dim };
        let setting = Setting { seed: 3, shift: 0 };
        let results = |way| {
            let shim = Shim::new(3).with_architecture(architecture);
            let Results { got, .. } = run(&mut setting.bench(), &shim, way, DType::F16, shape);
            got.map(|memory| memory.bytes().to_vec())
        };
        let ([out, _, dqkv], [out_by_products, _, dqkv_by_products]) =
            (results(CHOSEN), results(BY_PRODUCTS));
        check(
            setting,
            &Shim::new(3).with_architecture(architecture),
            DType::F16,
            shape,
            tolerances(DType::F16),
        );
        [out == out_by_products, dqkv == dqkv_by_products]
    };
    assert_eq!(too_wide(90, 130), [true, true]);
    assert_eq!(too_wide(75, 130), [true, true]);
    // Four tiles of 128 elements are more than such a GPU has room for, three are not.
    assert_eq!(too_wide(75, 100), [false, true]);
    assert_eq!(too_wide(75, 64), [false, false]);
    assert_eq!(too_wide(86, 100), [false, false]);
}

/// Two shares of a group of four, and a whole group of two: with this many sequences a GPU needs no
/// more.
#[test]
fn groups_are_cut_into_as_few_shares_as_fill_a_gpu() {
    shim_or_return!();
    std::thread::scope(|threads| {
        for (dtype, head_dim, batch, heads) in [(DType::F32, 8, 256, 4), (DType::Bf16, 64, 3, 4)] {
            let shape = AttentionShape { batch, tokens: 2, heads, kv_heads: 1, head_dim };
            let setting = Setting { seed: 6, shift: 0 };
            threads.spawn(move || check(setting, &Shim::new(6), dtype, shape, tolerances(dtype)));
        }
    });
}

#[test]
fn without_tensor_cores_or_alignment_wide_heads_are_computed_in_f32() {
    shim_or_return!();
    let shape = AttentionShape { batch: 1, tokens: 33, heads: 2, kv_heads: 1, head_dim: 64 };
    let aligned = Setting { seed: 5, shift: 0 };
    let older = Shim::new(5).with_architecture(75);
    check(aligned, &older, DType::F16, shape, [roundings(64.0), roundings(256.0)]);
    let shifted = Setting { seed: 5, shift: 1 };
    check(shifted, &Shim::new(5), DType::F16, shape, [roundings(64.0), roundings(256.0)]);
}

/// Both add up in the same order.
#[test]
fn products_of_warps_and_of_warpgroups_have_the_same_bits_and_so_do_heads_in_turn() {
    shim_or_return!();
    let bytes = |architecture, way, dtype, shape| {
        let shim = Shim::new(7).with_architecture(architecture);
        let results = run(&mut Setting { seed: 2, shift: 0 }.bench(), &shim, way, dtype, shape);
        results.got.map(|memory| memory.bytes().to_vec())
    };
    std::thread::scope(|threads| {
        let bytes = &bytes;
        for (dtype, head_dim, tokens) in
            [(DType::Bf16, 64, 40), (DType::F16, 64, 270), (DType::Bf16, 128, 270)]
        {
            let shape = AttentionShape { batch: 1, tokens, heads: 4, kv_heads: 2, head_dim };
            threads.spawn(move || {
                let want = bytes(80, CHOSEN, dtype, shape);
                assert!(bytes(90, CHOSEN, dtype, shape) == want, "{shape:?}");
                assert!(bytes(90, HEADS_IN_TURN, dtype, shape) == want, "{shape:?}, heads in turn");
            });
        }
    });
}

#[test]
fn the_order_of_lanes_and_blocks_changes_no_bit() {
    shim_or_return!();
    let shape = AttentionShape { batch: 1, tokens: 130, heads: 2, kv_heads: 1, head_dim: 64 };
    for dtype in [DType::F32, DType::Bf16] {
        let bytes = |seed| {
            let setting = Setting { seed: 1, shift: 0 };
            let results = run(&mut setting.bench(), &Shim::new(seed), CHOSEN, dtype, shape);
            results.got.map(|memory| memory.bytes().to_vec())
        };
        assert_eq!(bytes(1), bytes(2));
    }
}

/// One head's attention as matrix products with the softmax kernels between them, a tile of queries
/// at a time.
struct Products {
    shape: AttentionShape,
    queries: usize,
}

impl Products {
    /// `out = a · b`, packed, by the CPU.
    fn product(bench: &Bench, out: (usize, usize), a: Matrix<View<'_>>, b: Matrix<View<'_>>) -> Memory {
        let (mut product, _) = bench.store(DType::F32, &vec![0.0; out.0 * out.1]);
        let matrix = Matrix::new(product.view_mut(), out.0, out.1);
        bench.device.kernels().matmul(matrix, a, b, Write::Replace).unwrap();
        Memory::copy_of(&product, 0)
    }

    fn check(&self, setting: Setting, dtype: DType) {
        let mut bench = setting.bench();
        let shim = Shim::new(setting.seed);
        let AttentionShape { tokens, head_dim, .. } = self.shape;
        let Results { want: [_, log_sum, _], .. } =
            run(&mut setting.bench(), &shim, CHOSEN, DType::F32, self.shape);
        // The same numbers again.
        let (qkv, _) = bench.tensor(DType::F32, tokens * 3 * head_dim, 1.5);
        let part = |column: usize, rows: std::ops::Range<usize>| {
            let from = rows.start * 3 * head_dim + column * head_dim;
            let to = (rows.end - 1) * 3 * head_dim + (column + 1) * head_dim;
            Matrix::new(qkv.slice(from..to), rows.len(), head_dim).with_stride(3 * head_dim)
        };
        let log_sums = Memory::poisoned(DType::F32, tokens, 0);
        let (delta, delta_memory) = bench.tensor(DType::F32, tokens, 1.0);
        for first in (0..tokens).step_by(self.queries) {
            let (end, scale) = ((first + self.queries).min(tokens), 1.0 / (head_dim as f32).sqrt());
            let tile = ScoreTile { first, queries: end - first, keys: end, scale };
            let size = (tile.queries, tile.keys);
            let scores = Self::product(&bench, size, part(0, first..end), part(1, 0..end).t());
            let before = scores.values();
            let probabilities = Memory::poisoned(dtype, size.0 * size.1, 0);
            let (out, statistics) = (probabilities.operand(), log_sums.pointer());
            kernels::attention_softmax(&shim, out, statistics, scores.pointer(), tile).unwrap();
            let again = Memory::poisoned(dtype, size.0 * size.1, 0);
            let dscores = Memory::poisoned(dtype, size.0 * size.1, 0);
            let (_, dprobabilities) = bench.tensor(DType::F32, size.0 * size.1, 1.0);
            let inputs = [scores.pointer(), dprobabilities.pointer()];
            let statistics = [log_sums.pointer(), delta_memory.pointer()];
            let outputs: [Operand; 2] = [again.operand(), dscores.operand()];
            kernels::attention_softmax_backward(&shim, outputs, inputs, statistics, tile).unwrap();
            let tolerance = if dtype == DType::F32 { 1e-5 } else { 2f64.powi(-8) };
            for (i, score) in before.into_iter().enumerate() {
                let (query, key) = (first + i / tile.keys, i % tile.keys);
                let shift = f64::from(log_sum.as_slice::<f32>()[query]);
                let want = if key <= query { (score * f64::from(scale) - shift).exp() } else { 0.0 };
                assert!((probabilities.values()[i] - want).abs() < tolerance);
                assert!((again.values()[i] - want).abs() < tolerance);
                let mean = f64::from(delta.as_slice::<f32>()[query]);
                let want = want * (dprobabilities.values()[i] - mean) * f64::from(scale);
                assert!((dscores.values()[i] - want).abs() < 2.0 * tolerance);
            }
        }
        assert_close(&log_sums, &log_sum, roundings(64.0));
    }
}

#[test]
fn softmax_between_matrix_products() {
    shim_or_return!();
    let shape = AttentionShape { batch: 1, tokens: 45, heads: 1, kv_heads: 1, head_dim: 16 };
    for (seed, dtype) in [(1, DType::F32), (2, DType::Bf16), (3, DType::F16)] {
        Products { shape, queries: 20 }.check(Setting { seed, shift: 0 }, dtype);
    }
}
