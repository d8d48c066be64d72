//! Flat tensors: addition, conversion, filling, AdamW, sums over ranks. All to the bit.

use crate::memory::{Bench, Memory, Setting, assert_same, cases, floats, settings};
use crate::shim::{Shim, shim_or_return};
use device::cuda::kernels;
use device::{AdamW, AdamWUpdate, Buffer, DType};
use half::{bf16, f16};
use proptest::prelude::*;

/// Lengths around the sizes of a chunk and of a block's part.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..40, 2040usize..2060, 3000usize..5000]
}

fn check_binary(setting: Setting, out: DType, x: DType, len: usize) {
    let mut bench = setting.bench();
    let (shim, kernels) = (Shim::new(setting.seed), bench.device.clone());
    let (mut want, out) = bench.tensor(out, len, 4.0);
    let (x, x_memory) = bench.tensor(x, len, 4.0);
    kernels.kernels().add(want.view_mut(), x.view()).unwrap();
    kernels::add(&shim, out.operand(), x_memory.operand(), len).unwrap();
    assert_same(&out, &want);
    kernels.kernels().copy(want.view_mut(), x.view()).unwrap();
    kernels::convert(&shim, out.operand(), x_memory.operand(), len).unwrap();
    assert_same(&out, &want);
    kernels.kernels().fill(want.view_mut(), 0.3).unwrap();
    kernels::fill(&shim, out.operand(), 0.3, len).unwrap();
    assert_same(&out, &want);
}

fn check_adamw(setting: Setting, parameters: Option<DType>, gradients: DType, len: usize, step: Option<u32>) {
    let mut bench = setting.bench();
    let (mut master, master_memory) = bench.tensor(DType::F32, len, 1.0);
    let (mut momentum, momentum_memory) = bench.tensor(DType::F32, len, 0.1);
    let variances: Vec<f32> = (0..len).map(|i| (i * 37 % 101) as f32 * 1e-4).collect();
    let (mut variance, variance_memory) = bench.store(DType::F32, &variances);
    let (gradients, gradients_memory) = bench.tensor(gradients, len, 0.5);
    let out = parameters.map(|dtype| bench.tensor(dtype, len, 1.0));
    let update =
        AdamW { lr: 3e-4, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, step, gradient_scale: 0.37 };
    let arguments = AdamWUpdate {
        parameters: out.as_ref().map(|(_, memory)| memory.operand()),
        master: master_memory.operand(),
        momentum: momentum_memory.operand(),
        variance: variance_memory.operand(),
        gradients: gradients_memory.operand(),
        len,
        settings: update,
    };
    kernels::adamw(&Shim::new(setting.seed), arguments).unwrap();
    let (mut want, parameters) = out.unzip();
    let arguments = AdamWUpdate {
        parameters: want.as_mut().map(Buffer::view_mut),
        master: master.view_mut(),
        momentum: momentum.view_mut(),
        variance: variance.view_mut(),
        gradients: gradients.view(),
        len,
        settings: update,
    };
    bench.device.kernels().adamw(arguments).unwrap();
    if let (Some(memory), Some(want)) = (parameters, want) {
        assert_same(&memory, &want);
    }
    for (memory, want) in [(master_memory, master), (momentum_memory, momentum), (variance_memory, variance)]
    {
        assert_same(&memory, &want);
    }
}

/// Ranks split at the largest power of two below their count.
fn tree(values: &[f32]) -> f32 {
    match values {
        [value] => *value,
        _ => {
            let (left, right) = values.split_at(values.len().next_power_of_two() / 2);
            tree(left) + tree(right)
        }
    }
}

/// With sums stored as they are read, or exactly.
fn check_tree_sum(setting: Setting, (dtype, exact): (DType, bool), ranks: usize, outputs: usize, len: usize) {
    let mut bench = setting.bench();
    let (buffers, memories): (Vec<_>, Vec<_>) = (0..ranks).map(|_| bench.tensor(dtype, len, 100.0)).unzip();
    let inputs: Vec<Vec<f32>> = buffers
        .iter()
        .map(|buffer| Memory::copy_of(buffer, 0).values().iter().map(|x| *x as f32).collect())
        .collect();
    let sums: Vec<f32> =
        (0..len).map(|i| tree(&inputs.iter().map(|input| input[i]).collect::<Vec<_>>())).collect();
    let stored = if exact { DType::F32 } else { dtype };
    let (want, _) = bench.store(stored, &sums);
    // In place where there are as many outputs as inputs.
    let others: Vec<_> = (0..outputs).map(|_| bench.tensor(stored, len, 1.0).1).collect();
    let outputs = if outputs == ranks && stored == dtype { &memories } else { &others };
    let pointers = |all: &[Memory]| all.iter().map(Memory::pointer).collect::<Vec<_>>();
    let (to, from) = (pointers(outputs), pointers(&memories));
    kernels::tree_sum(&Shim::new(setting.seed), &to, &from, (dtype, stored), len).unwrap();
    outputs.iter().for_each(|out| assert_same(out, &want));
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn addition_conversion_and_filling(setting in settings(), out in floats(), x in floats(), len in lengths()) {
        check_binary(setting, out, x, len);
    }

    #[test]
    fn adamw(
        setting in settings(),
        parameters in proptest::option::of(floats()),
        gradients in floats(),
        len in lengths(),
        step in proptest::option::of(1u32..2000),
    ) {
        check_adamw(setting, parameters, gradients, len, step);
    }

    #[test]
    fn tree_sum(
        setting in settings(),
        dtype in floats(),
        exact in any::<bool>(),
        ranks in prop_oneof![1usize..9, 1usize..65],
        outputs in 0usize..5,
        len in 1usize..600,
    ) {
        check_tree_sum(setting, (dtype, exact), ranks, outputs, len);
    }
}

#[test]
fn sums_over_every_number_of_ranks() {
    shim_or_return!();
    for ranks in 1..=kernels::PEERS {
        check_tree_sum(Setting { seed: ranks as u64, shift: 0 }, (DType::F32, false), ranks, ranks, 19);
    }
}

/// Every 16-bit value, the halfway points above it, and their neighbours.
fn roundings(bits: u16) -> impl Iterator<Item = f32> {
    let half = |bits: u16| f16::from_bits(bits).to_f32();
    let middle = (half(bits) + half(bits.wrapping_add(1))) / 2.0;
    let brain = u32::from(bits) << 16;
    [f32::from_bits(brain), f32::from_bits(brain | 0x8000), half(bits), middle, 65520.0].into_iter().flat_map(
        |value| [-2i32, -1, 0, 1, 2].map(|step| f32::from_bits(value.to_bits().wrapping_add_signed(step))),
    )
}

#[test]
fn every_rounding_to_16_bits_is_to_nearest_even() {
    shim_or_return!();
    let bench = Setting { seed: 0, shift: 0 }.bench();
    let values: Vec<f32> = (0..=u16::MAX).flat_map(roundings).collect();
    for dtype in [DType::Bf16, DType::F16] {
        let (x, _) = bench.store(DType::F32, &values);
        let (want, _) = bench.store(dtype, &values);
        let (x, out) = (Memory::copy_of(&x, 0), Memory::poisoned(dtype, values.len(), 0));
        kernels::convert(&Shim::new(0), out.operand(), x.operand(), values.len()).unwrap();
        assert_same(&out, &want);
    }
}

#[test]
fn every_16_bit_value_is_widened_exactly() {
    shim_or_return!();
    let check = |bench: &Bench, want: Vec<f32>, dtype: DType| {
        let (narrow, _) = bench.store(dtype, &want);
        let (want, _) = bench.store(DType::F32, &want);
        let (x, out) = (Memory::copy_of(&narrow, 0), Memory::poisoned(DType::F32, want.len(), 0));
        kernels::convert(&Shim::new(0), out.operand(), x.operand(), want.len()).unwrap();
        assert_same(&out, &want);
    };
    let bench = Setting { seed: 0, shift: 0 }.bench();
    check(&bench, (0..=u16::MAX).map(|bits| bf16::from_bits(bits).to_f32()).collect(), DType::Bf16);
    check(&bench, (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32()).collect(), DType::F16);
}
