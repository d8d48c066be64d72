//! Every instruction set against the same sums, one multiplication at a time.

use super::*;
use crate::Ledger;
use crate::cpu::operand::FloatsMut;
use events::Emitter;
use half::bf16;

/// Returns finite numbers of every size, some of them denormal, and of both signs.
fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    (0..len)
        .map(|_| match next() >> 28 {
            0 => f32::from_bits(next() >> 9 | next() & 1 << 31),
            1 => f32::from_bits((next() >> 7 & 0x03ff_ffff) | next() & 1 << 31),
            _ => next() as f32 / 2f32.powi(31) - 1.0,
        })
        .collect()
}

fn rounded(x: &[f32]) -> Vec<bf16> {
    x.iter().map(|x| bf16::from_f32(*x)).collect()
}

/// Returns a denormal number as the dot product takes it and leaves it.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// `a · b` for `a` `[rows, depth]` and `b` `[columns, depth]`: an element is one chain of rounded
/// sums.
fn f32_model(a: &[f32], b: &[f32], depth: usize) -> Vec<f32> {
    let element = |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0f32, |sum, (a, b)| a.mul_add(*b, sum));
    a.chunks(depth).flat_map(|a| b.chunks(depth).map(move |b| element(a, b))).collect()
}

/// Computes like [`f32_model`], with the dot product's order and its zeros.
fn bf16_model(a: &[bf16], b: &[bf16], depth: usize) -> Vec<f32> {
    let step = |sum: f32, a: bf16, b: bf16| flushed(flushed(a.to_f32()).mul_add(flushed(b.to_f32()), sum));
    let element = |a: &[bf16], b: &[bf16]| {
        a.chunks(2).zip(b.chunks(2)).fold(0f32, |mut sum, (a, b)| {
            for i in (0..a.len()).rev() {
                sum = step(sum, a[i], b[i]);
            }
            sum
        })
    };
    a.chunks(depth).flat_map(|a| b.chunks(depth).map(move |b| element(a, b))).collect()
}

/// Returns the transpose of `x` `[rows, columns]`.
fn transposed<T: Copy>(x: &[T], columns: usize) -> Vec<T> {
    (0..x.len()).map(|i| x[i % (x.len() / columns) * columns + i / (x.len() / columns)]).collect()
}

/// Returns a matrix in both of the ways in which it may be stored.
fn stored<'a>(x: Floats<'a>, turned: Floats<'a>, rows: usize, columns: usize) -> [Tile<'a>; 2] {
    [Tile::new(x, rows, columns, columns), Tile::new(turned, columns, rows, rows).transposed_if(true)]
}

fn cpu() -> Cpu {
    Cpu::new(Ledger::new(Emitter::silent(0), None), 1)
}

/// Computes a product in all ways in which its operands may be stored.
fn all_ways(instructions: Instructions, unit: Unit, a: [Tile<'_>; 2], b: [Tile<'_>; 2]) -> Vec<Vec<f32>> {
    let (rows, columns) = (a[0].shape().0, b[0].shape().0);
    let mut ways = Vec::new();
    for a in a {
        for b in b {
            let mut out = vec![0.0; rows * columns];
            let target = TileMut::new(FloatsMut::F32(&mut out), rows, columns, columns);
            Product { instructions, unit, a, b, addend: Addend::Zero }.compute(&cpu(), target).unwrap();
            ways.push(out);
        }
    }
    ways
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Around tiles, panels, parts of the depth and chunks that are turned.
const SIZES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (3, 5, 2),
    (14, 32, 64),
    (15, 33, 65),
    (29, 31, 257),
    (6, 70, 513),
    (43, 17, 1025),
    (31, 64, 801),
    (100, 40, 130),
    // Rows that compete for cache lines, across the depth only, and rows that do not.
    (512, 33, 5),
    (256, 33, 5),
    (520, 33, 5),
];

#[test]
fn all_instructions_give_the_bits_of_the_chain() {
    for (rows, columns, depth) in SIZES {
        let (a, b) = (numbers(rows * depth, 1), numbers(columns * depth, 2));
        let (a_turned, b_turned) = (transposed(&a, depth), transposed(&b, depth));
        let want = bits(&f32_model(&a, &b, depth));
        for instructions in Instructions::all() {
            let a = stored(Floats::F32(&a), Floats::F32(&a_turned), rows, depth);
            let b = stored(Floats::F32(&b), Floats::F32(&b_turned), columns, depth);
            for (way, out) in all_ways(instructions, Unit::Single, a, b).iter().enumerate() {
                assert!(bits(out) == want, "{instructions:?}, {rows}×{depth}×{columns}, way {way}");
            }
        }
    }
}

/// Full tiles, fewer rows, and both, over several panels.
#[test]
fn runs_of_tiles_give_the_bits_of_the_chain() {
    let depth = 9;
    for instructions in Instructions::all() {
        let (full, width, panel) = (instructions.rows(), instructions.width(), instructions.columns());
        for (rows, columns) in
            (1..=2 * full + 1).flat_map(|rows| [1, panel, 3 * panel + 1].map(|n| (rows, n)))
        {
            let (a, b) = (numbers(rows * depth, 1), numbers(columns * depth, 2));
            let mut copy = vec![f32::NAN; Panels::len(instructions, columns, depth)];
            let b_tile = Tile::new(Floats::F32(&b), columns, depth, depth);
            let panels = Panels::widened(instructions, &mut copy, b_tile);
            let padded = columns.next_multiple_of(width);
            let mut sums = vec![f32::NAN; rows * padded];
            let grid = Grid::new(&mut sums, rows, padded, padded);
            let step = size_of::<f32>();
            let a_rows = Rows { bytes: bytemuck::cast_slice(&a), row: depth * step, step };
            panels.add_products(grid, Start::Zero, a_rows, columns, 0..depth);
            let sums: Vec<f32> = sums.chunks(padded).flat_map(|row| &row[..columns]).copied().collect();
            let same = bits(&sums) == bits(&f32_model(&a, &b, depth));
            assert!(same, "{instructions:?}, {rows}×{depth}×{columns}");
        }
    }
}

/// The output's element is added once, to the complete sum.
#[test]
fn a_product_is_added_when_its_sum_is_complete() {
    for (rows, columns, depth) in SIZES {
        let (a, b) = (numbers(rows * depth, 1), numbers(columns * depth, 2));
        let base = numbers(rows * columns, 7);
        let want: Vec<f32> =
            base.iter().zip(f32_model(&a, &b, depth)).map(|(base, sum)| base + sum).collect();
        for instructions in Instructions::all() {
            let [a, b] =
                [(&a, rows), (&b, columns)].map(|(x, lanes)| Tile::new(Floats::F32(x), lanes, depth, depth));
            let mut out = base.clone();
            let target = TileMut::new(FloatsMut::F32(&mut out), rows, columns, columns);
            let product = Product { instructions, unit: Unit::Single, a, b, addend: Addend::Out };
            product.compute(&cpu(), target).unwrap();
            assert!(bits(&out) == bits(&want), "{instructions:?}, {rows}×{depth}×{columns}");
        }
    }
}

#[test]
fn all_instructions_give_the_bits_of_the_dot_product() {
    for (rows, columns, depth) in SIZES {
        let (a, b) = (rounded(&numbers(rows * depth, 3)), rounded(&numbers(columns * depth, 4)));
        let (a_turned, b_turned) = (transposed(&a, depth), transposed(&b, depth));
        let want = bits(&bf16_model(&a, &b, depth));
        let swapped = Instructions::all().into_iter().map(|instructions| (instructions, Unit::Swapped));
        let pairs = Instructions::pairs_if_any().map(|instructions| (instructions, Unit::Pair));
        for (instructions, unit) in swapped.chain(pairs) {
            let a = stored(Floats::Bf16(&a), Floats::Bf16(&a_turned), rows, depth);
            let b = stored(Floats::Bf16(&b), Floats::Bf16(&b_turned), columns, depth);
            for (way, out) in all_ways(instructions, unit, a, b).iter().enumerate() {
                assert!(bits(out) == want, "{instructions:?}, {unit:?}, {rows}×{depth}×{columns}, way {way}");
            }
        }
    }
}

/// Products are equal for every addend, whether or not they are stored to the output from
/// registers.
#[test]
fn sums_are_rounded_to_bf16_once() {
    for (rows, columns, depth) in SIZES {
        let (a, b) = (rounded(&numbers(rows * depth, 3)), rounded(&numbers(columns * depth, 4)));
        let base = rounded(&numbers(rows * columns, 7));
        let sums = bf16_model(&a, &b, depth);
        let added = |(base, sum): (&bf16, &f32)| flushed(flushed(base.to_f32()) + sum);
        let added = rounded(&base.iter().zip(&sums).map(added).collect::<Vec<_>>());
        let tile = |x, rows, columns| Tile::new(Floats::Bf16(x), rows, columns, columns);
        let ways = [
            (Addend::Zero, rounded(&sums)),
            (Addend::Out, added.clone()),
            (Addend::Base(tile(&base, rows, columns)), added),
        ];
        let swapped = Instructions::all().into_iter().map(|instructions| (instructions, Unit::Swapped));
        let pairs = Instructions::pairs_if_any().map(|instructions| (instructions, Unit::Pair));
        for (instructions, unit) in swapped.chain(pairs) {
            for (way, (addend, want)) in ways.iter().enumerate() {
                let mut out = base.clone();
                let target = TileMut::new(FloatsMut::Bf16(&mut out), rows, columns, columns);
                let (a, b) = (tile(&a, rows, depth), tile(&b, columns, depth));
                let product = Product { instructions, unit, a, b, addend: *addend };
                product.compute(&cpu(), target).unwrap();
                let same = out.iter().zip(want).all(|(out, want)| out.to_bits() == want.to_bits());
                assert!(same, "{instructions:?}, {unit:?}, {rows}×{depth}×{columns}, way {way}");
            }
        }
    }
}

/// An operand is rounded while it is copied, whichever way it is stored.
#[test]
fn wide_operands_that_are_rounded_give_the_bits_of_bf16_ones() {
    for (rows, columns, depth) in SIZES {
        let (a, b) = (numbers(rows * depth, 5), numbers(columns * depth, 6));
        let (a_turned, b_turned) = (transposed(&a, depth), transposed(&b, depth));
        let narrow = rounded(&b);
        let narrow_turned = transposed(&narrow, depth);
        let want = bits(&bf16_model(&rounded(&a), &narrow, depth));
        let swapped = Instructions::all().into_iter().map(|instructions| (instructions, Unit::Swapped));
        let pairs = Instructions::pairs_if_any().map(|instructions| (instructions, Unit::Pair));
        for (instructions, unit) in swapped.chain(pairs) {
            let a = stored(Floats::F32(&a), Floats::F32(&a_turned), rows, depth);
            let wide = stored(Floats::F32(&b), Floats::F32(&b_turned), columns, depth);
            let narrow = stored(Floats::Bf16(&narrow), Floats::Bf16(&narrow_turned), columns, depth);
            for b in [wide, narrow] {
                for (way, out) in all_ways(instructions, unit, a, b).iter().enumerate() {
                    assert!(
                        bits(out) == want,
                        "{instructions:?}, {unit:?}, {rows}×{depth}×{columns}, way {way}"
                    );
                }
            }
        }
    }
}

/// The mode for denormals is a thread's, and other arithmetic must not see it.
#[test]
fn denormals_are_themselves_again_after_a_product() {
    let half = || std::hint::black_box(f32::MIN_POSITIVE) / 2.0;
    {
        let _flushed = Flushed::begin();
        assert_eq!(half(), 0.0);
    }
    assert!(half().is_subnormal());
}

/// A product of denormal bf16 is 0, as is a sum that is denormal.
#[test]
fn denormal_bf16_count_as_zero() {
    let (tiny, least) = (bf16::from_bits(0x007f), bf16::MIN_POSITIVE);
    let half = bf16::from_f32(0.5);
    let (a, b) = ([tiny, bf16::ONE, least, bf16::ONE], [bf16::ONE, tiny, half, bf16::ZERO]);
    let mut out = [1.0];
    let target = TileMut::new(FloatsMut::F32(&mut out), 1, 1, 1);
    let (a, b) = (Tile::new(Floats::Bf16(&a), 1, 4, 4), Tile::new(Floats::Bf16(&b), 4, 1, 1));
    multiply(&cpu(), target, Addend::Zero, a, b, Rounding::None).unwrap();
    assert_eq!(out, [0.0]);
}
